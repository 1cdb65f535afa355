"""The thread of a host: errors reach the caller, and waiting for one worker holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from envfleet.errors import EnvContext, EnvHungError
from envfleet.fleet.backends.host_thread import HostThread
from tests.waiting import wait_until


class FakeHost:
    """A host without workers."""

    busy = False

    def __init__(self) -> None:
        self.backend = self
        self.asked: list[float | None] = []
        self.answer: Callable[[], Any] = lambda: "hello"

    def interrupt(self) -> None:
        """Nothing waits."""

    def post(self, commands: Any, whole: Any) -> None:
        raise KeyError("no such group")

    def hello(self, worker: int, start: int, seconds: float | None) -> Any:
        self.asked.append(seconds)
        return self.answer()

    def close(self, seconds: float) -> None:
        """There is nothing to close."""


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def thread(host: FakeHost, failures: list[BaseException]) -> Iterator[HostThread]:
    made = HostThread(host, lambda report: None, failures.append)  # type: ignore[arg-type]
    yield made
    made.close(0.0)


def test_an_error_while_posting_is_reported(thread: HostThread, failures: list[BaseException]) -> None:
    thread.send(None, None)  # type: ignore[arg-type]
    assert wait_until(lambda: failures)
    assert isinstance(failures[0], KeyError)


def test_the_thread_never_waits_for_a_worker_that_starts(thread: HostThread, host: FakeHost) -> None:
    def answer() -> str:
        if len(host.asked) < 3:
            raise TimeoutError
        return "hello"

    host.answer = answer
    assert thread.call("hello", 0, 1, 3600.0) == "hello"
    assert host.asked == [0.0] * 3


def test_a_worker_that_takes_too_long_to_start(thread: HostThread, host: FakeHost) -> None:
    def too_late() -> None:
        raise TimeoutError

    def hung() -> None:
        raise EnvHungError("it hangs", EnvContext(0, "make", 0))

    host.answer = too_late
    with pytest.raises(TimeoutError):
        thread.call("hello", 0, 1, 0.0)
    host.answer = hung
    with pytest.raises(EnvHungError):  # raised by the environment itself, so there is nothing to wait for
        thread.call("hello", 0, 1, 3600.0)
