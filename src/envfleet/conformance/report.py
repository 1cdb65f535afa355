"""What a check found: problems with their fixes, and notes."""

from __future__ import annotations

import importlib
import textwrap
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import gymnasium

from envfleet.errors import EnvContext, EnvError

__all__ = ["CheckReport", "CheckStopped", "Findings", "Problem", "duration", "own_traceback"]

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
        counts = [_count(len(self.errors), "error"), _count(len(self.warnings), "warning")]
        found = " and ".join(count for count in counts if count)
        verdict = "ok" if self.ok else "not ok"
        head = f"{self.env}: {verdict}, {found}" if found else f"{self.env}: {verdict}, nothing to mend"
        notes = "\n".join(_wrap(f"note: {note}") for note in self.notes)
        return "\n\n".join(part for part in (head, *map(str, self.errors + self.warnings), notes) if part)


class CheckStopped(Exception):
    """Nothing more can be learned from the environment; the reason is among the findings."""


@dataclass
class Findings:
    """Collects problems; one of each kind, because the tenth like the first says nothing new."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def error(self, what: str, fix: str) -> None:
        """Note what makes a fleet or an agent go wrong."""
        self._add(Problem("error", what, fix))

    def warning(self, what: str, fix: str) -> None:
        """Note what works, but worse than it could."""
        self._add(Problem("warning", what, fix))

    def raised(self, operation: str, error: Exception) -> None:
        """Note an exception of the environment's own code, with its traceback."""
        what = f"{operation} raised {type(error).__name__}"
        fix = f"mend what the traceback shows, then check again ({operation} must not raise)"
        self._add(Problem("error", what, fix, own_traceback(error)))

    def _add(self, problem: Problem) -> None:
        if all(known.fix != problem.fix for known in self.problems):
            self.problems.append(problem)


def own_traceback(error: Exception) -> str:
    """The last frames of the user's code: without ours, Gymnasium's wrappers and Python's import system."""
    package, wrapping = Path(__file__).parents[1], Path(gymnasium.__file__).parent
    ours = [package / name for name in ("cli", "conformance", "runs", "training")]
    between = [wrapping / name for name in ("core.py", "wrappers", "envs/registration.py")]
    passed_through = (*map(str, ours + between), importlib.__file__, "<frozen importlib")
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if not frame.filename.startswith(passed_through)][-_FRAMES_SHOWN:]
    return "".join(traceback.format_list(shown) + traceback.format_exception_only(error)).rstrip()


def _wrap(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _count(number: int, noun: str) -> str:
    return "" if number == 0 else f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Seconds in the unit in which people read them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
