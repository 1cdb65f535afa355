"""The connection between the caller and a host, as the remote backend sees it."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from envfleet.errors import CannotBeSentError
from envfleet.fleet.backends.by_value import by_value, dumped_by_value
from envfleet.fleet.backends.host import Commands
from envfleet.fleet.backends.processes import packed_spec
from envfleet.fleet.channel import ChannelClosed, dump
from envfleet.fleet.cluster import HostFacts
from envfleet.fleet.requests import Apply, Call, Reset, SetAttr
from envfleet.fleet.spec import Timeouts, WorkerSpec
from envfleet.fleet.transfer import Array

if TYPE_CHECKING:
    from envfleet.fleet.backends.remote import RemoteBackend
    from envfleet.fleet.worker import Hello

__all__ = ["HostLost", "HostPlacement", "Link", "RelayedChannel", "packed_by_value"]


class HostLost(Exception):
    """A host does not answer any more; the message says why."""


class Link(Protocol):
    """The connection to one host. It passes reports, and the loss of the host, to the backend it was given."""

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of `Host`; raise HostLost if the host is gone."""

    def send(self, commands: Commands, whole: Array) -> None:
        """Send commands and the arrays that are the same for all hosts, without waiting for the report."""

    def run_inline(self, timeouts: Timeouts) -> None:
        """Let a host in the caller's own thread carry out its commands."""

    def close(self, seconds: float) -> Callable[[], None]:
        """Begin to close the host; the result waits until it is closed."""


class HostPlacement(Protocol):
    """Decides which host runs which worker."""

    killable: bool  # a hung worker can be killed and restarted
    sign_seconds: float  # how old the progress of workers may be that hosts show

    @property
    def facts(self) -> Sequence[tuple[str, HostFacts]]:
        """Name and facts of each host's machine."""

    def bind(self, backend: RemoteBackend) -> None:
        """Remember the backend that gets the reports."""

    def host_of(self, worker: int) -> Link:
        """The host of a worker, at its first start."""

    def replacements(self, lost: Link, workers: Sequence[int]) -> Mapping[int, Link]:
        """Another host for each worker of a lost one; raise WorkerError if there is none."""

    def approve(self, link: Link, hello: Hello) -> None:
        """Look at the first message of a worker; raise an error if its host must not be used."""

    def moves(self) -> Sequence[int]:
        """Workers that have a better place, where `RemoteBackend.prepare` has built their environments."""

    def better_place(self, worker: int) -> tuple[Link, int]:
        """The other host of a worker in `moves`, and its process id there; the worker moves now.

        Raise ChannelClosed if it has lost that place since.
        """

    def stay(self, worker: int, reason: str) -> None:
        """Give up the better place of a worker."""

    def close(self) -> None:
        """Free the remaining resources after all hosts were closed."""


def packed_by_value(spec: WorkerSpec, large: list[bytes]) -> list[list[bytes]]:
    """A spec with the user's own modules pickled by value, or by name if that fails (one may hold a lock)."""
    try:
        with by_value():
            return packed_spec(spec, large)
    except CannotBeSentError:
        return packed_spec(spec, large)


class RelayedChannel:
    """The caller's end of a channel to a worker on a host; messages travel with commands and reports.

    Requests with objects of the user are pickled by value, since the host may not have the user's modules.
    """

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.replies: deque[bytes] = deque()

    def pack(self, value: Any) -> bytes:
        _, request = value
        return dumped_by_value(value) if isinstance(request, Apply | Call | Reset | SetAttr) else dump(value)

    def send_packed(self, packed: bytes) -> None:
        self.requests.append(packed)

    def send(self, value: Any) -> None:
        self.send_packed(self.pack(value))

    def receive(self, seconds: float | None = None) -> Any:
        return pickle.loads(self.receive_packed(seconds))

    def receive_packed(self, seconds: float | None = None) -> bytes:
        if not self.replies:  # they come with the report that announces them
            raise ChannelClosed
        return self.replies.popleft()
