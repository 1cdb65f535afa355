"""The thread of a host: it does all work of the host, so that calls may come from any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from envfleet.fleet.backends.host import Commands, Host, Report
from envfleet.fleet.transfer import Array

__all__ = ["HostThread"]


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
        work = self._host.backend.stack if method == "stack" else getattr(self._host, method)
        return self._submit(lambda: work(*arguments)).result()

    def send(self, commands: Commands, whole: Array) -> None:
        """Post commands; the report comes later."""
        self._submit(lambda: self._host.post(commands, whole))

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
