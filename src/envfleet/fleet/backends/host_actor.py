"""A host as an actor on a node of a cluster. It does not import Ray; threads of the actor call its methods."""

from __future__ import annotations

import os
import pickle
import queue
import threading
import time
from typing import Any

from envfleet.errors import EnvfleetError
from envfleet.fleet.backends.host import Commands, Host, Report, Sign
from envfleet.fleet.backends.host_thread import HostThread
from envfleet.fleet.backends.packing import pack, unpack
from envfleet.fleet.backends.processes import ProcessesBackend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.cluster import HostFacts
from envfleet.fleet.os_compat import default_start_method
from envfleet.fleet.transfer import Array
from envfleet.machine import keep_freed_memory

__all__ = ["HostActor"]

ALONE_SECONDS = 30.0  # after this long without a beat from its caller, a host ends itself


class HostActor:
    """A host whose methods are called from another machine, by several threads."""

    def __init__(self) -> None:
        keep_freed_memory()  # every report needs a large buffer
        self._reports: dict[int, queue.SimpleQueue[Report | BaseException]] = {}
        self._early: dict[int, tuple[Commands, Array]] = {}  # messages that overtook others, by place
        self._posted = 0  # messages that were passed on
        self._posting = threading.Lock()
        self._thread = HostThread(Host(ProcessesBackend(default_start_method())), self._deliver, self._fail)
        self._heard: float | None = None  # when the last beat came
        threading.Thread(target=self._watch, name="envfleet-host-watch", daemon=True).start()

    def facts(self) -> HostFacts:
        return HostFacts.of_this_process()

    def call(self, method: str, packed: bytes) -> tuple[bool, Any]:
        """Whether a method of `Host` succeeded, and its result or its error; `packed` has its arguments."""
        try:
            return True, self._thread.call(method, *pickle.loads(packed))
        except (EnvfleetError, ChannelClosed, TimeoutError) as error:
            return False, error

    def run(self, message: Any, stored: Any = None) -> Any:
        """Carry out commands and return the first report; `more` returns the next one, if it is not the last.

        The packed message has its number among the messages to this host, the commands, and the arrays that are not
        divided, unless they are `stored`. Ray may deliver messages in another order, but an older one must not replace
        the weights or rows of a newer one.
        """
        place, commands, whole = unpack(message)
        arrays: Array = stored if whole is None else whole
        self._reports[commands.number] = queue.SimpleQueue()
        with self._posting:
            self._early[place] = commands, arrays
            while self._posted in self._early:
                self._thread.send(*self._early.pop(self._posted))
                self._posted += 1
        return self.more(commands.number)

    def more(self, number: int) -> Any:
        """Return a packed report."""
        report = self._reports[number].get()
        if isinstance(report, BaseException):
            raise report
        if report.last:
            del self._reports[number]
        return pack(report, 0 if report.parcel is None else report.parcel.data.nbytes)

    def beat(self) -> list[Sign]:
        """The signs of life of all workers. The caller asks regularly, which is its own sign of life."""
        self._heard = time.monotonic()
        signs: list[Sign] = self._thread.call("signs")
        return signs

    def close(self, seconds: float) -> None:
        self._heard = None
        self._thread.close(seconds)

    def _deliver(self, report: Report) -> None:
        self._reports[report.number].put(report)

    def _fail(self, error: BaseException) -> None:
        for reports in list(self._reports.values()):
            reports.put(error)

    def _watch(self) -> None:
        """End this process, and with it the workers, if the caller is gone or cannot be reached."""
        while True:
            time.sleep(ALONE_SECONDS / 6)
            if self._heard is not None and time.monotonic() - self._heard > ALONE_SECONDS:
                os._exit(1)
