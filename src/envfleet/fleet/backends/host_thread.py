"""The thread of a host: it does all work of the host, so that calls may come from any thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from envfleet.errors import EnvfleetError
from envfleet.fleet.backends.host import Commands, Host, Report
from envfleet.fleet.transfer import Array

__all__ = ["HostThread"]

HELLO_SECONDS = 0.02  # how often to ask whether the environments of a worker are built


class HostThread:
    """Runs a host; `deliver` receives its reports, and `fail` the error that ended the thread, if one did."""

    def __init__(self, host: Host, deliver: Callable[[Report], None], fail: Callable[[BaseException], None]) -> None:
        self._host, self._deliver, self._fail = host, deliver, fail
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="envfleet-host", daemon=True)
        self._thread.start()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the host."""
        if method == "signs":  # answered at once, while the host is busy
            return self._host.signs()
        if method == "hello":
            return self._hello(*arguments)
        work = self._host.backend.stack if method == "stack" else getattr(self._host, method)
        return self._submit(lambda: work(*arguments)).result()

    def send(self, commands: Commands, whole: Array) -> None:
        """Post commands; the report comes later."""
        self._submit(lambda: self._host.post(commands, whole)).add_done_callback(self._posted)

    def _posted(self, result: Future[Any]) -> None:
        """Without this, an error while posting would be lost, and the caller would wait for a report forever."""
        error = result.exception()
        if error is not None:
            self._fail(error)

    def _hello(self, worker: int, start: int, seconds: float | None) -> Any:
        """As `Host.hello`, in many short calls: other workers of the host may be stepping meanwhile."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                return self._submit(lambda: self._host.hello(worker, start, 0.0)).result()
            except TimeoutError as error:
                raised_by_env = isinstance(error, EnvfleetError)
                if raised_by_env or (until is not None and time.monotonic() >= until):
                    raise
            time.sleep(HELLO_SECONDS)

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        result: Future[Any] = Future()
        self._jobs.put((job, result))
        self._host.backend.interrupt()
        return result

    def close(self, seconds: float) -> None:
        """Stop the thread, then all workers."""
        self._jobs.put(None)
        self._host.backend.interrupt()
        self._thread.join()
        self._host.close(seconds)

    def _run(self) -> None:
        host, jobs = self._host, self._jobs
        try:
            while True:
                while host.busy and jobs.empty():
                    for report in host.serve(lambda: not jobs.empty()):
                        self._deliver(report)
                job = jobs.get()
                if job is None:
                    return
                work, result = job
                try:
                    result.set_result(work())
                except BaseException as error:
                    result.set_exception(error)
        except BaseException as error:
            self._fail(error)
