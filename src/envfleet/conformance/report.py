"""The findings of a check: problems with their fixes, and notes."""

from __future__ import annotations

import importlib
import textwrap
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium

from envfleet.errors import EnvContext, EnvError, EnvfleetError, MissingExtraError, SettingsError
from envfleet.wording import counted

__all__ = [
    "RAISED",
    "CheckReport",
    "CheckStopped",
    "Findings",
    "Problem",
    "more_time",
    "own_stack",
    "own_traceback",
]

RAISED = (Exception, SystemExit)  # what an environment may raise; sys.exit() must not end the check

Severity = Literal["error", "warning"]

_FRAMES_SHOWN = 5
_WIDTH = 79


@dataclass(frozen=True)
class Problem:
    """A problem: `what` was received and what was expected, and the `fix`."""

    severity: Severity  # error: breaks a fleet or an agent; warning: works, but not as well as it could
    what: str
    fix: str
    traceback: str = ""  # of the environment's own code, if it raised

    def __str__(self) -> str:
        quoted = [f"    {line}" for line in self.traceback.splitlines()]
        return "\n".join([_wrap(f"{self.severity}: {self.what}"), *quoted, _wrap(f"  fix: {self.fix}")])


@dataclass(frozen=True)
class CheckReport:
    """Everything a check found in one environment; `print` it, or test `ok`."""

    env: str
    seed: int
    steps: int  # steps of the first play, over which `seconds_per_step` was measured
    seconds_per_step: float | None
    resumable: bool | None  # whether a state restored in a fresh process continued exactly; None: not tried
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0  # time limit of the check
    skipped: tuple[str, ...] = ()  # examinations left out or cut short for lack of time
    algorithms: tuple[str, ...] | None = None  # algorithms that can train on it; None: unknown
    observation_space: Any = field(default=None, repr=False, compare=False)
    action_space: Any = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may remain."""
        return not self.errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that break a fleet or an agent."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that break nothing but should be fixed."""
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
        head = f"{self.env}: {verdict}, {found}" if found else f"{self.env}: {verdict}, nothing to fix"
        notes = "\n".join(_wrap(f"note: {note}") for note in self.notes)
        parts = (head, *map(str, self.errors + self.warnings), notes, self._unexamined())
        return "\n\n".join(part for part in parts if part)

    def _unexamined(self) -> str:
        if not self.skipped:
            return ""
        lines = [f"not examined, for lack of time ({self.seconds:g} s):", *(f"  - {what}" for what in self.skipped)]
        return "\n".join([*map(_wrap, lines), _wrap(f"  more time: {more_time(self.seconds)}")])


def more_time(seconds: float) -> str:
    """How to give a check more time than `seconds`, on the command line or in Python."""
    more = f"{max(4 * seconds, 20):g}"
    return f"--seconds {more}, or check(env, seconds={more})"


class CheckStopped(Exception):
    """The check cannot continue; the reason is among the findings."""


@dataclass
class Findings:
    """The findings so far. Of several problems with the same fix, one is kept: the first error, else the first."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    steps: int = 0
    seconds_per_step: float | None = None
    resumable: bool | None = None
    has_state: bool = False  # it can save its state as plain data
    spaces: tuple[Any, Any] | None = None  # observation space, action space
    refusal: EnvfleetError | None = None  # the environment's name leads nowhere: there is nothing to examine
    changed: bool = True  # since they were last read

    def error(self, what: str, fix: str, traceback: str = "") -> None:
        """Add a problem that breaks a fleet or an agent."""
        self._add(Problem("error", what, fix, traceback))

    def warning(self, what: str, fix: str) -> None:
        """Add a problem that does not break anything but should be fixed."""
        self._add(Problem("warning", what, fix))

    def raised(self, operation: str, error: BaseException) -> None:
        """Add an exception of the environment's own code, with its traceback; our own refusals explain themselves."""
        if isinstance(error, SettingsError | MissingExtraError):
            lines = [line.strip() for line in str(error).partition("\nhint:")[0].splitlines()]
            what = " ".join([f"{operation} failed:", *lines[:1], "; ".join(lines[1:])])
            self.error(what.rstrip(), error.hint or f"change what the message names ({operation} must not raise)")
            return
        what = f"{operation} raised {type(error).__name__}"
        fix = f"fix what the traceback shows, then check again ({operation} must not raise)"
        self._add(Problem("error", what, fix, own_traceback(error)))

    def note(self, text: str) -> None:
        """Add a note."""
        self.notes.append(text)
        self.changed = True

    def skip(self, what: str) -> None:
        """Record an examination that there was no time for."""
        self.skipped.append(what)
        self.changed = True

    def _add(self, problem: Problem) -> None:
        same = [known for known in self.problems if known.fix == problem.fix]
        if same and (problem.severity == "warning" or same[0].severity == "error"):
            return
        self.problems = [known for known in self.problems if known not in same] + [problem]
        self.changed = True


def own_traceback(error: BaseException) -> str:
    """Format the last frames of the user's code, without ours, Gymnasium's wrappers and Python's import system."""
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if not frame.filename.startswith(_passed_through())][-_FRAMES_SHOWN:]
    return "".join(traceback.format_list(shown) + traceback.format_exception_only(error)).rstrip()


def own_stack(stack: str) -> str:
    """The user's part of the stack in which an environment hung or crashed, innermost call last.

    `stack` is the output of `faulthandler` for all threads, innermost call first, or of `traceback.format_stack`.
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
    ours = [package / name for name in ("cli", "conformance", "importing.py", "runs", "training")]
    between = [wrapping / name for name in ("core.py", "wrappers", "envs/registration.py")]
    return (*map(str, ours + between), importlib.__file__, "<frozen importlib")


def _wrap(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
