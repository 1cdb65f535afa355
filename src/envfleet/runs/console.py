"""The console of a run, on stderr: a live view in a terminal or notebook, occasional lines in a pipe.

There is no refresh thread. `update` and `collecting` draw the view, at most twice a second, so it costs time only when
there is something to show. On a slow machine it is drawn less often.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from envfleet.runs.live_view import ConsoleState, WorkerHealth, plain_line, view
from envfleet.streams import error_stream

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["Console", "WorkerHealth"]

_SECONDS_BETWEEN_VIEWS = 0.5
_MOST_SHARE = 0.003  # of the time may go to drawing
_MOST_SECONDS_BETWEEN_VIEWS = 2.0
_SECONDS_BETWEEN_LINES = 2.0
_SECONDS_BETWEEN_ROLLOUT_LINES = 10.0  # within one rollout, which may take minutes
_ENDLESS = 10_000  # columns of a pipe
_SHORTEST_REASON = 24  # columns; in less space the reason begins on a new line


class Console:
    """Shows the progress of a run. `close` (or `finish`) restores the terminal."""

    def __init__(
        self,
        title: str,
        *,
        budget_steps: int | None,
        mode: Literal["auto", "live", "lines", "quiet"] = "auto",
        verbose: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mode = mode if mode != "auto" else ("live" if _is_terminal() or _is_notebook() else "lines")
        self.verbose = verbose
        self._now = now
        self._state = ConsoleState(title, budget_steps)
        self._live: Live | None = None
        self._began: float | None = None
        self._last_shown = -1e9
        self._looked = -1e9  # when `collecting` last checked
        self._is_shown = True  # the latest update was shown
        self._pause = _SECONDS_BETWEEN_VIEWS  # between two views

    def start(self, choices: Sequence[tuple[str, str, str]]) -> None:
        """Print the choices made for the run: (name, value, reason)."""
        if self.mode == "quiet":
            return
        self._print(self._state.title)
        width = shutil.get_terminal_size().columns if self.mode == "live" else _ENDLESS
        for line in _choice_lines(choices, width):
            self._print(line)

    def update(
        self,
        step: int,
        metrics: Mapping[str, float],
        health: Sequence[WorkerHealth] = (),
        *,
        share: float | None = None,
    ) -> None:
        """Take the metrics of an update, and show them if it is time.

        `share` is the fraction of the budget spent, if that does not depend on steps alone.
        """
        self._state.take(step, self._seconds(), metrics, health, share)
        self._is_shown = False
        if self.mode == "live":
            self._show_after(0.0 if share == 1.0 else self._pause)
        elif share != 1.0:  # the last line comes at the end, with the last evaluation
            self._show_after(_SECONDS_BETWEEN_LINES)

    def collecting(self, so_far: Callable[[], tuple[int, float]]) -> None:
        """Show progress within a rollout. `so_far` returns the steps, this rollout's included, and the budget share.

        Cheap enough to call at every step: it calls `so_far` only if it is time to show something.
        """
        now = self._now()
        if self.mode == "quiet" or now - self._looked < self._pause:
            return
        self._looked = now
        step, share = so_far()
        seconds = self._seconds()
        self._state.take(step, seconds, {}, self._state.health, share)
        if self.mode == "live":
            self._show_after(self._pause)
        elif min(seconds, now - self._last_shown) >= _SECONDS_BETWEEN_ROLLOUT_LINES:
            self._show()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an evaluation, for the next and the last view or line."""
        self._state.metrics = {**self._state.metrics, **metrics}
        self._is_shown = False
        if self.mode == "live":
            self._show_after(self._pause)

    def _seconds(self) -> float:
        """Seconds since the run began to collect."""
        if self._began is None:
            self._began = self._now()
        return self._now() - self._began

    def _show_after(self, pause: float) -> None:
        if self.mode != "quiet" and self._now() - self._last_shown >= pause:
            self._show()

    def say(self, line: str) -> None:
        """Print a line for the user, above the live view."""
        if self.mode != "quiet":
            self._print(line)

    def error(self, line: str) -> None:
        """Print a line even when quiet."""
        self._print(line)

    def finish(self, summary: Mapping[str, Any], commands: Sequence[str] = ()) -> None:
        """End the view, and print a summary and the next commands."""
        self.close()
        if self.mode == "quiet":
            return
        self._print("")
        width = max((len(name) for name in summary), default=0)
        for name, value in summary.items():
            self._print(f"  {name.ljust(width)}  {value}")
        if commands:
            self._print("next:")
            for command in commands:
                self._print(f"  {command}")

    def close(self) -> None:
        """Show the latest update if it was held back, and end the live view."""
        if self.mode != "quiet" and not self._is_shown:
            self._show()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        self._last_shown, self._is_shown = self._now(), True
        if self.mode == "lines":
            self._print(plain_line(self._state, verbose=self.verbose))
            return
        from rich.console import Group

        live = self._live or self._begin_live()
        began = time.thread_time()  # CPU time: waiting for a core does not count
        live.update(Group(*view(self._state, live.console.width, verbose=self.verbose)), refresh=True)
        self._pause = min(
            _MOST_SECONDS_BETWEEN_VIEWS, max(_SECONDS_BETWEEN_VIEWS, (time.thread_time() - began) / _MOST_SHARE)
        )

    def _begin_live(self) -> Live:
        from rich.console import Console as RichConsole
        from rich.live import Live

        # Others print through this console too: their text is not rich markup.
        notebook = _is_notebook()
        terminal = RichConsole(file=error_stream(), highlight=False, markup=False, emoji=False, force_jupyter=notebook)
        # Output of others goes above the view, not into it. Data for a pipe still goes to the pipe.
        to_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._live = Live(console=terminal, auto_refresh=False, redirect_stdout=to_terminal, redirect_stderr=True)
        self._live.start()
        if terminal.is_terminal:
            terminal.show_cursor(True)  # a killed run leaves a usable terminal
        return self._live

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, soft_wrap=True)
        else:
            stream = error_stream()
            stream.write(f"{line}\n")
            stream.flush()


def _choice_lines(choices: Sequence[tuple[str, str, str]], width: int) -> list[str]:
    """Name, value and (reason) in columns. A long reason wraps within its column."""
    names, values = (max((len(choice[column]) for choice in choices), default=0) for column in (0, 1))
    lines: list[str] = []
    for name, value, reason in choices:
        line = f"  {name.ljust(names)}  {value.ljust(values)}"
        indent = len(line) + 2
        if width - indent < _SHORTEST_REASON:
            lines.append(line.rstrip())
            indent, line = names + 4, " " * (names + 2)
        wrapped = textwrap.wrap(f"({reason})", max(width - indent, 20)) if reason else [""]
        if line.strip() or reason:
            lines.append(f"{line}  {wrapped[0]}".rstrip())
        lines += [" " * indent + part for part in wrapped[1:]]
    return lines


def _is_notebook() -> bool:
    """Whether this is a notebook that rich can draw in. Without ipywidgets it gets lines."""
    if "IPython" not in sys.modules or find_spec("ipywidgets") is None:
        return False
    from rich.console import Console as RichConsole

    return RichConsole().is_jupyter


def _is_terminal() -> bool:
    # A terminal without size, or one that cannot move its cursor, gets lines.
    return error_stream().isatty() and os.environ.get("TERM") != "dumb" and shutil.get_terminal_size().columns > 20
