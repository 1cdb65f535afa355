"""What a check found: problems with their fixes, and notes."""

from __future__ import annotations

import importlib
import textwrap
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium

from envfleet.errors import EnvContext, EnvError

__all__ = [
    "RAISED",
    "CheckReport",
    "CheckStopped",
    "Findings",
    "Problem",
    "counted",
    "duration",
    "own_stack",
    "own_traceback",
]

RAISED = (Exception, SystemExit)  # what an environment may raise; sys.exit() must not end the check

Severity = Literal["error", "warning"]

_FRAMES_SHOWN = 5
_WIDTH = 79


@dataclass(frozen=True)
class Problem:
    """One thing to mend: `what` was received against what was expected, and the `fix`."""

    severity: Severity  # error: a fleet or an agent goes wrong; warning: it works, but worse than it could
    what: str
    fix: str
    traceback: str = ""  # of the environment's own code, where it raised

    def __str__(self) -> str:
        quoted = [f"    {line}" for line in self.traceback.splitlines()]
        return "\n".join([_wrap(f"{self.severity}: {self.what}"), *quoted, _wrap(f"  fix: {self.fix}")])


@dataclass(frozen=True)
class CheckReport:
    """Everything a check found in one environment; `print` it, or ask whether it is `ok`."""

    env: str
    seed: int
    steps: int  # steps taken in the first pass, on which `seconds_per_step` rests
    seconds_per_step: float | None
    resumable: bool | None  # whether a state restored in a fresh process continued exactly; None: not tried
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0  # the time that the check was given
    skipped: tuple[str, ...] = ()  # what it could not examine, or not in full, for lack of time
    algorithms: tuple[str, ...] | None = None  # those that can train on it; None: not known
    observation_space: Any = field(default=None, repr=False, compare=False)
    action_space: Any = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may remain."""
        return not self.errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that a fleet or an agent cannot live with."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that cost speed, comfort or learning."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def raise_for_errors(self) -> None:
        """Raise an `EnvError` that holds the report, if there are errors."""
        if not self.ok:
            context = EnvContext(env_index=0, operation="check", seed=self.seed)
            raise EnvError(f"{self.env} does not pass its check", context, original=str(self))

    def __str__(self) -> str:
        counts = {"error": len(self.errors), "warning": len(self.warnings)}
        found = " and ".join(counted(number, noun) for noun, number in counts.items() if number)
        verdict = "ok" if self.ok else "not ok"
        if self.ok and self.skipped:
            verdict = "ok as far as it was examined"
        head = f"{self.env}: {verdict}, {found}" if found else f"{self.env}: {verdict}, nothing to mend"
        notes = "\n".join(_wrap(f"note: {note}") for note in self.notes)
        parts = (head, *map(str, self.errors + self.warnings), notes, self._unexamined())
        return "\n\n".join(part for part in parts if part)

    def _unexamined(self) -> str:
        if not self.skipped:
            return ""
        more = f"{max(4 * self.seconds, 20):g}"
        lines = [f"not examined, for lack of time ({self.seconds:g} s):", *(f"  - {what}" for what in self.skipped)]
        return "\n".join([*map(_wrap, lines), _wrap(f"  more time: --seconds {more}, or check(env, seconds={more})")])


class CheckStopped(Exception):
    """Nothing more can be learned from the environment; the reason is among the findings."""


@dataclass
class Findings:
    """What was found so far. Of each kind of problem one is kept: the tenth like the first says nothing new."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    steps: int = 0
    seconds_per_step: float | None = None
    resumable: bool | None = None
    has_state: bool = False  # it gives its state as plain data
    spaces: tuple[Any, Any] | None = None  # of observations and of actions
    changed: bool = True  # since somebody looked

    def error(self, what: str, fix: str, traceback: str = "") -> None:
        """Note what makes a fleet or an agent go wrong."""
        self._add(Problem("error", what, fix, traceback))

    def warning(self, what: str, fix: str) -> None:
        """Note what works, but worse than it could."""
        self._add(Problem("warning", what, fix))

    def raised(self, operation: str, error: BaseException) -> None:
        """Note an exception of the environment's own code, with its traceback."""
        what = f"{operation} raised {type(error).__name__}"
        fix = f"mend what the traceback shows, then check again ({operation} must not raise)"
        self._add(Problem("error", what, fix, own_traceback(error)))

    def note(self, text: str) -> None:
        """Note what is worth knowing."""
        self.notes.append(text)
        self.changed = True

    def skip(self, what: str) -> None:
        """Note what there was no time for."""
        self.skipped.append(what)
        self.changed = True

    def _add(self, problem: Problem) -> None:
        if all(known.fix != problem.fix for known in self.problems):
            self.problems.append(problem)
            self.changed = True


def own_traceback(error: BaseException) -> str:
    """The last frames of the user's code: without ours, Gymnasium's wrappers and Python's import system."""
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if not frame.filename.startswith(_passed_through())][-_FRAMES_SHOWN:]
    return "".join(traceback.format_list(shown) + traceback.format_exception_only(error)).rstrip()


def own_stack(stack: str) -> str:
    """The user's part of the stack in which an environment hung or crashed, innermost call last.

    `stack` is what `faulthandler` writes of all threads, innermost first, or what `traceback.format_stack` gives.
    """
    ours = f'File "{Path(__file__).parent}'
    innermost_first = "most recent call first" in stack
    for thread in stack.split("\n\n") if innermost_first else [stack]:
        frames = [line.strip() for line in thread.splitlines() if line.strip().startswith("File ")]
        frames = frames if innermost_first else frames[::-1]
        called_by_us = next((place for place, frame in enumerate(frames) if frame.startswith(ours)), None)
        if called_by_us is not None:
            passed_through = tuple(f'File "{path}' for path in _passed_through())
            own = [f"  {frame}" for frame in frames[:called_by_us] if not frame.startswith(passed_through)]
            return "\n".join(own[:_FRAMES_SHOWN][::-1])
    return ""


def _passed_through() -> tuple[str, ...]:
    package, wrapping = Path(__file__).parents[1], Path(gymnasium.__file__).parent
    ours = [package / name for name in ("cli", "conformance", "runs", "training")]
    between = [wrapping / name for name in ("core.py", "wrappers", "envs/registration.py")]
    return (*map(str, ours + between), importlib.__file__, "<frozen importlib")


def _wrap(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def counted(number: int, noun: str) -> str:
    """A number of things: '1 step', '2 steps'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in the unit in which people read them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
