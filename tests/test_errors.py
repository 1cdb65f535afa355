"""An environment's exception can be caught by its own type, wherever it was raised."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from envfleet.errors import EnvContext, EnvError, SettingsError, StateError, env_error_type

CONTEXT = EnvContext(3, "step", 7, None, 5, 1)


class OwnError(ValueError):
    """Needs arguments that are not available when the error is raised again."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class NeedsArguments(RuntimeError):
    """Cannot be created without its arguments."""

    def __new__(cls, code: int, *, reason: str) -> NeedsArguments:
        return super().__new__(cls)


class Mixin:
    pass


class Mixed(Mixin, LookupError):
    pass


def raised_as(kind: type[BaseException]) -> EnvError:
    return env_error_type(kind)("KeyError: 'x'", CONTEXT, original="Traceback: line 1\nline 2", hint="look")


@pytest.mark.parametrize(
    ("kind", "catchable"),
    [
        (ValueError, ValueError),
        (KeyError, KeyError),
        (FileNotFoundError, FileNotFoundError),
        (TimeoutError, TimeoutError),
        (UnicodeDecodeError, UnicodeDecodeError),
        (OwnError, OwnError),
        (Mixed, Mixed),
        (NeedsArguments, RuntimeError),  # the nearest base class that can be subclassed
        (ExceptionGroup, Exception),
        (SettingsError, ValueError),  # our own types are not kept: their meaning depends on where they are raised
    ],
)
def test_the_type_is_kept_here_and_on_the_way_from_a_worker(kind: Any, catchable: Any) -> None:
    plain = EnvError("KeyError: 'x'", CONTEXT, original="Traceback: line 1\nline 2", hint="look")
    error = raised_as(kind)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, EnvError) and isinstance(one, catchable)
        assert type(one).__name__ == "EnvError" and str(one) == str(plain)
        assert one.context == CONTEXT and one.original == plain.original and one.hint == "look"


@pytest.mark.parametrize("kind", [Exception, SystemExit, StopIteration, StopAsyncIteration, StateError])
def test_some_types_are_not_taken_over(kind: Any) -> None:
    """SystemExit would end the program silently; StopIteration would end the loop around a step."""
    assert env_error_type(kind) is EnvError


def test_a_type_that_the_receiver_does_not_know_arrives_as_its_nearest_known_base() -> None:
    class Local(OwnError):
        pass

    error = raised_as(Local)
    assert isinstance(error, Local)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, OwnError) and not isinstance(again, Local)


def test_one_class_per_type() -> None:
    assert env_error_type(OwnError) is env_error_type(OwnError)


class Secret:
    """Of a module that the receiver has not imported."""


def test_attributes_that_cannot_be_carried_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised_as(OwnError)
    error.carry({"code": 4, "hint": "theirs", "__notes__": ["a note"], "call": lambda: 0, "secret": Secret()})
    assert list(error.attributes) == ["code", "secret"]
    monkeypatch.setattr(Secret, "__module__", "tests.not_imported")
    monkeypatch.setitem(sys.modules, "tests.not_imported", sys.modules[__name__])
    sent = pickle.dumps(error)
    monkeypatch.delitem(sys.modules, "tests.not_imported")
    again: Any = pickle.loads(sent)
    assert (again.code, again.hint, again.attributes) == (4, "look", {"code": 4})
    assert not hasattr(again, "secret") and not hasattr(again, "__notes__")
    assert pickle.loads(pickle.dumps(again)).code == 4
