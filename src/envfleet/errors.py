"""Every error that Envfleet raises on purpose.

EnvfleetError
├── SettingsError        an argument that cannot work (also a ValueError)
│   └── CannotBeSentError an environment that cannot be pickled for a worker process
├── ProtocolError        a call at the wrong moment (also a RuntimeError)
│   └── ClosedError      a call after close()
├── ActionError          actions of the wrong shape or type (also a ValueError)
├── EnvError             an environment failed; says which one, when and on what action
│   ├── ObservationError it returned something outside its declared spaces
│   └── EnvHungError     it did not return in time (also a TimeoutError)
├── WorkerError          a worker could not start, or died more often than allowed
├── ResourceError        the machine lacks memory or file descriptors for the request
├── StateError           a simulator cannot give or take its state as plain data
├── TrainingError        learning went wrong: weights or losses are no longer numbers
├── OutOfTimeError       the time of a timed run is over; the training takes it and ends
├── CheckpointError      a checkpoint cannot be written, or is missing or damaged
└── MissingExtraError    an optional dependency is not installed (also an ImportError)

Messages say what was received and what was expected; a line that starts with `hint:` says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActionError",
    "CannotBeSentError",
    "CheckpointError",
    "ClosedError",
    "EnvContext",
    "EnvError",
    "EnvHungError",
    "EnvfleetError",
    "MissingExtraError",
    "ObservationError",
    "OutOfTimeError",
    "ProtocolError",
    "ResourceError",
    "SettingsError",
    "StateError",
    "TrainingError",
    "WorkerError",
]


class EnvfleetError(Exception):
    """Base of all errors raised by Envfleet."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")


class SettingsError(EnvfleetError, ValueError):
    """An argument or setting has a value that cannot work."""


class CannotBeSentError(SettingsError):
    """An environment cannot be sent to a worker process."""


class ProtocolError(EnvfleetError, RuntimeError):
    """A method was called in a state that does not allow it."""


class ClosedError(ProtocolError):
    """The fleet was used after it was closed."""


class ActionError(EnvfleetError, ValueError):
    """Actions do not have the shape or type of the fleet's action space."""


@dataclass(frozen=True)
class EnvContext:
    """Where and when an environment failed."""

    env_index: int
    operation: str  # "make", "reset", "step", ...
    seed: int | None = None
    task: Any = None
    step: int | None = None  # steps taken in the episode before the failure
    action: Any = None

    def __str__(self) -> str:
        parts = [f"environment {self.env_index}", f"during {self.operation}", f"seed {self.seed}"]
        if self.task is not None:
            parts.append(f"task {self.task!r}")
        if self.step is not None:
            parts.append(f"step {self.step} of its episode")
        if self.operation == "step":
            parts.append(f"action {self.action!r}")
        return ", ".join(parts)


class EnvError(EnvfleetError):
    """An environment raised; `context` says which and when, `original` is its own traceback."""

    def __init__(self, message: str, context: EnvContext, *, original: str = "", hint: str | None = None) -> None:
        self.message, self.context, self.original = message, context, original
        text = f"{message} ({context})"
        if original:
            text = f"{text}\n\n{original.rstrip()}"
        super().__init__(text, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.context, self.original, self.hint)


def _rebuild(kind: type[EnvError], message: str, context: EnvContext, original: str, hint: str | None) -> EnvError:
    return kind(message, context, original=original, hint=hint)


class ObservationError(EnvError):
    """An environment returned an observation or reward that its spaces do not allow."""


class EnvHungError(EnvError, TimeoutError):
    """An environment did not return in time; `original` is the stack it was in."""


class WorkerError(EnvfleetError):
    """A worker could not be started, or died more often than `restarts` allows."""


class ResourceError(EnvfleetError):
    """The machine has too little memory or too few file descriptors for what was asked."""


class StateError(EnvfleetError):
    """A simulator's state cannot be captured or restored as plain data."""


class TrainingError(EnvfleetError, RuntimeError):
    """Learning went wrong in a way that going on would not mend."""


class OutOfTimeError(EnvfleetError):
    """The time of a timed run is over: what was under way is left as it is, and does not count."""

    def __init__(self) -> None:
        super().__init__("the time of the run is over")

    def __reduce__(self) -> tuple[type[OutOfTimeError], tuple[()]]:
        return OutOfTimeError, ()


class CheckpointError(EnvfleetError):
    """A checkpoint cannot be written, or the one asked for is missing or damaged."""


class MissingExtraError(EnvfleetError, ImportError):
    """An optional dependency is missing; the hint names the pip command."""
