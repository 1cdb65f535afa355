"""Every error that Envfleet raises on purpose.

EnvfleetError
├── SettingsError        an argument that cannot work (also a ValueError)
│   ├── CannotBeSentError an environment that cannot be pickled for a worker process
│   └── UnsupportedError something that a pool of environments cannot do
├── ProtocolError        a call at the wrong moment (also a RuntimeError)
│   └── ClosedError      a call after close()
├── ActionError          actions of the wrong shape or type (also a ValueError and a TypeError)
├── EnvError             an environment failed; says which one, when and on what action. It is also an instance of the
│   │                    type that the environment raised: `except ValueError` works (see `env_error_type`)
│   ├── ObservationError it returned something outside its declared spaces
│   └── EnvHungError     it did not return in time (also a TimeoutError)
├── WorkerError          a worker could not start, or died more often than allowed
│   └── ClusterLostError no node of the cluster is left, or its head is lost
├── ResourceError        the machine lacks memory or file descriptors for the request
├── StateError           a simulator cannot save or restore its state as plain data
├── TrainingError        training diverged: weights or losses are no longer numbers
├── OutOfTimeError       the time of a timed run is over; training catches it and ends
├── CheckpointError      a checkpoint cannot be written, or is missing or damaged
└── MissingExtraError    an optional dependency is not installed (also an ImportError)

Messages say what was received and what was expected; a line that starts with `hint:` says what to do. The errors that
a fleet raises for a misplaced call also derive from Gymnasium's. Those classes are in `fleet/protocol.py`, because
importing Gymnasium is slow.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ActionError",
    "CannotBeSentError",
    "CheckpointError",
    "ClosedError",
    "ClusterLostError",
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
    "UnsupportedError",
    "WorkerError",
    "env_error_type",
    "one_line_of",
]


class EnvfleetError(Exception):
    """Base of all errors raised by Envfleet."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        # Not super(): another base, such as an environment's own exception, may take other arguments.
        Exception.__init__(self, message if hint is None else f"{message}\nhint: {hint}")


class SettingsError(EnvfleetError, ValueError):
    """An argument or setting has a value that cannot work."""


class CannotBeSentError(SettingsError):
    """An environment cannot be sent to a worker process."""


class UnsupportedError(SettingsError):
    """Something that this kind of environments cannot do."""


class ProtocolError(EnvfleetError, RuntimeError):
    """A method was called in a state that does not allow it."""


class ClosedError(ProtocolError):
    """The fleet was used after it was closed."""


class ActionError(EnvfleetError, ValueError, TypeError):
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
    together: int = 1  # it was one of this many environments; `env_index` and `seed` are of the first

    @property
    def where(self) -> str:
        """The environment, or the environments of a pool, which fails as a whole."""
        last = self.env_index + self.together - 1
        return f"environment {last}" if self.together == 1 else f"one of environments {self.env_index} to {last}"

    def __str__(self) -> str:
        parts = [self.where, f"during {self.operation}"]
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        if self.task is not None:
            parts.append(f"task {self.task!r}")
        if self.step is not None:
            parts.append(f"step {self.step} of its episode")
        if self.operation == "step":
            parts.append(f"action {self.action!r}")
        return ", ".join(parts)


class EnvError(EnvfleetError):
    """An environment raised an exception; `context` says which and when, `original` is its traceback.

    Attributes that the exception had are attributes of this error too, if they can be pickled.
    """

    def __init__(self, message: str, context: EnvContext, *, original: str = "", hint: str | None = None) -> None:
        self.message, self.context, self.original = message, context, original
        self.attributes: dict[str, Any] = {}  # of the environment's own exception
        text = f"{message} ({context})"
        if original:
            text = f"{text}\n\n{original.rstrip()}"
        super().__init__(text, hint=hint)

    __str__ = Exception.__str__  # KeyError.__str__ would quote the text

    def carry(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes of the environment's exception, except those that cannot be pickled or are named like ours."""
        ours = self.__dict__.keys() | {"raised"}
        # On every backend the same ones. `__notes__` are part of `original` already.
        names = [name for name in attributes if name not in ours and not name.startswith("__")]
        self.attributes |= {name: attributes[name] for name in names if _packed(attributes[name]) is not None}
        self.__dict__.update(self.attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), *self._parts())

    def _parts(self) -> tuple[Any, ...]:
        packed = {name: _packed(value) for name, value in self.attributes.items()}
        return self.message, self.context, self.original, self.hint, packed


def _rebuild(
    kind: type[EnvError],
    message: str,
    context: EnvContext,
    original: str,
    hint: str | None,
    packed: dict[str, bytes | None],
) -> EnvError:
    error = kind(message, context, original=original, hint=hint)
    for name, value in packed.items():
        try:
            error.carry({name: _KnownTypes(io.BytesIO(value or b"")).load()})
        except Exception:  # noqa: BLE001 (an attribute that cannot be loaded here is left out)
            continue
    return error


def _packed(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 (pickling runs the value's own code)
        return None


class _KnownTypes(pickle.Unpickler):
    """Loads an attribute without importing anything: no code here can know types of other modules."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name not in sys.modules:
            raise pickle.UnpicklingError(f"{module_name} is not imported")
        return super().find_class(module_name, global_name)


class _AlsoRaised:
    """Marks the classes of `env_error_type`, which pickle cannot find by name."""

    raised: type[BaseException]

    def __reduce__(self: Any) -> tuple[Any, ...]:
        """Pickle the names of the type and its bases; the receiver uses the first one that it knows."""
        names = [(kind.__module__, kind.__qualname__) for kind in self.raised.__mro__]
        return _rebuild_raised, (names, *self._parts())


# Code that catches our own errors relies on where they come from, so an environment must not imitate them.
# StopIteration would silently end a loop around a step.
_NEVER_RAISED_AS = (EnvfleetError, StopIteration, StopAsyncIteration)


_types: dict[Any, type[EnvError]] = {}  # the type that an environment raised -> our type


def env_error_type(raised: type[BaseException]) -> type[EnvError]:
    """Return a subclass of EnvError and of the type that an environment raised, or of its nearest base that allows it.

    The class has the methods of EnvError; `EnvError.carry` adds the attributes of the environment's exception.
    """
    if raised not in _types:
        _types[raised] = _made_type(raised)
    return _types[raised]


def _made_type(raised: type[BaseException]) -> type[EnvError]:
    for kind in raised.__mro__:
        if not issubclass(kind, Exception) or kind is Exception or issubclass(kind, _NEVER_RAISED_AS):
            continue
        try:
            namespace = {"__module__": EnvError.__module__, "__doc__": EnvError.__doc__, "raised": kind}
            made: Any = type(EnvError.__name__, (_AlsoRaised, EnvError, kind), namespace)
            made("probe", EnvContext(0, "probe"))
        except Exception:  # noqa: BLE001 (its layout, metaclass or __new__ does not allow it)
            continue
        return made  # type: ignore[no-any-return]
    return EnvError


def _rebuild_raised(names: list[tuple[str, str]], *parts: Any) -> EnvError:
    known = (_known_type(module, name) for module, name in names)
    return _rebuild(env_error_type(next(found for found in known if found is not None)), *parts)


def _known_type(module: str, qualified_name: str) -> type[BaseException] | None:
    """The exception type of that name, if its module is loaded here; otherwise no code could catch it anyway."""
    found: Any = sys.modules.get(module)
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


class ObservationError(EnvError):
    """An environment returned an observation or reward that its spaces do not allow."""


class EnvHungError(EnvError, TimeoutError):
    """An environment did not return in time; `original` is its stack at that moment."""


class WorkerError(EnvfleetError):
    """A worker could not be started, or died more often than `restarts` allows.

    `ending` says how its process ended, `hung` whether it was killed because it hung, and `stack` where it was, if
    known.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, ending: str = "", stack: str = "", hung: bool = False
    ) -> None:
        self.ending, self.stack, self.hung = ending, stack, hung
        super().__init__(message, hint=hint)


class ClusterLostError(WorkerError):
    """No node of the cluster is left, or its head is lost. A run can be resumed on another cluster."""


class ResourceError(EnvfleetError):
    """The machine has too little memory or too few file descriptors for the request."""


class StateError(EnvfleetError):
    """A simulator's state cannot be captured or restored as plain data."""


class TrainingError(EnvfleetError, RuntimeError):
    """Training diverged and cannot recover."""


class OutOfTimeError(EnvfleetError):
    """The time of a timed run is over: work in progress is dropped and does not count."""

    def __init__(self) -> None:
        super().__init__("the time of the run is over")

    def __reduce__(self) -> tuple[type[OutOfTimeError], tuple[()]]:
        return OutOfTimeError, ()


class CheckpointError(EnvfleetError):
    """A checkpoint cannot be written, or the requested one is missing or damaged."""


class MissingExtraError(EnvfleetError, ImportError):
    """An optional dependency is missing; the hint names the pip command."""


def one_line_of(error: Exception) -> str:
    """First line of an error's message, without traceback, context and hint."""
    return (error.message if isinstance(error, EnvError) else str(error)).splitlines()[0]
