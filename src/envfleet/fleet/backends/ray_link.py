"""The connection to a host on a node of a Ray cluster."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from envfleet.errors import EnvfleetError, WorkerError
from envfleet.fleet.backends.by_value import dumped_by_value
from envfleet.fleet.backends.host import Commands
from envfleet.fleet.backends.host_actor import HostActor
from envfleet.fleet.backends.link import HostLost
from envfleet.fleet.backends.packing import pack
from envfleet.fleet.backends.ray_cluster import (
    ActorDiedError,
    NodeAffinitySchedulingStrategy,
    RayError,
    RayTaskError,
    inline_bytes,
    ray,
)
from envfleet.fleet.cluster import HostFacts, Node, reason_of_loss
from envfleet.fleet.spec import Timeouts
from envfleet.fleet.transfer import Array

if TYPE_CHECKING:
    from envfleet.fleet.backends.ray_hosts import RayHosts

__all__ = ["START_SECONDS", "RayLink", "words_of"]

# After this long without an answer, a host is given up: seconds, counted as beats. This process may have been stopped
# or too busy to beat, and then the host had no time to answer either.
SILENCE_BEATS = 8
START_SECONDS = 600.0  # until an actor answers; a runtime environment may have to be installed
BY_VALUE_BYTES = 2**20  # larger arrays for all hosts are stored once
# How many threads of a host answer calls, and how many wait for reports. With the schedule async, each worker has a
# message of its own. Calls have their own threads, so that a hung worker can be killed whatever the others do.
CALLS_AT_ONCE, MESSAGES_AT_ONCE = 8, 128
_TRACEBACK = "\n\nTraceback"  # of our own code, if the worker could not import something


def words_of(error: EnvfleetError) -> str:
    """An error without its hint."""
    return str(error).partition("\nhint:")[0]


@functools.cache
def _actor_class() -> Any:
    """The actor of every host; Ray keeps each class that it is given."""
    return ray.remote(concurrency_groups={"beat": 1, "calls": CALLS_AT_ONCE})(HostActor)


class RayLink:
    """The connection to the host on one node."""

    def __init__(self, hosts: RayHosts, node: Node, cpus: int, runtime_env: dict[str, Any]) -> None:
        self.node, self.cpus, self._hosts = node, cpus, hosts
        self.started = time.monotonic()
        self.drained = False  # its node is being drained
        self.place: int | None = None  # in the list of the hosts that the fleet began with
        self.torch = ""  # digest of torch's arithmetic, once a worker has reported it
        self.lost: str | None = None  # why it was given up
        self.heard: float | None = None  # when it last answered, once it has
        self._asked = False  # whether an answer is pending
        self._unanswered = 0  # beats since it was asked
        self._sent = itertools.count()  # messages so far
        self._actor = (
            _actor_class()
            .options(
                num_cpus=cpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=MESSAGES_AT_ONCE,
                runtime_env=runtime_env,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote()
        )
        self._facts = self._actor.facts.remote()

    def facts(self) -> HostFacts:
        """Wait until the host answers; raise an error that says what is missing on its node."""
        try:
            found = self._result(self._facts.future(), START_SECONDS)
        except HostLost as lost:
            missing = "could not start a host" in str(lost)
            hint = "envfleet must be installed on every node, in the same version of Python" if missing else None
            raise WorkerError(str(lost), hint=hint) from None
        assert isinstance(found, HostFacts)
        self.heard = time.monotonic()
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        self._refuse_if_shut_down()
        call = self._actor.call.options(concurrency_group="calls")
        done, value = self._result(call.remote(method, dumped_by_value(arguments)).future())
        if done:
            return value
        if isinstance(value, WorkerError) and method == "hello":
            raise WorkerError(
                f"node {self.node.name}: {words_of(value).partition(_TRACEBACK)[0]}",
                hint="install what is missing on every node, or describe it in a file for --runtime-env",
            )
        raise value

    def _result(self, future: concurrent.futures.Future[Any], seconds: float | None = None) -> Any:
        until = None if seconds is None else time.monotonic() + seconds
        while self.lost is None:
            try:
                return future.result(0.5)
            except concurrent.futures.TimeoutError:
                if until is not None and time.monotonic() > until:
                    raise HostLost(f"node {self.node.name} did not answer within {seconds:g} s") from None
            except RayTaskError as error:
                raise WorkerError(f"node {self.node.name}: {error}") from None
            except RayError as error:
                reason = self.reason_of(error)
                if self.heard is not None:  # else it has never run, and `start_host` gives it up
                    self._hosts.lose(self, reason, node=not isinstance(error, ActorDiedError))
                raise HostLost(reason) from None
        raise HostLost(self.lost)

    def reason_of(self, error: RayError) -> str:
        """Why a host is lost, in words."""
        return reason_of_loss(self.node.name, type(error).__name__, str(error))

    def _refuse_if_shut_down(self) -> None:
        """Raise HostLost after `ray.shutdown()`, since a call would start a new cluster."""
        if not ray.is_initialized():
            raise HostLost("Ray was shut down")

    def send(self, commands: Commands, whole: Array) -> None:
        self._refuse_if_shut_down()
        place, size = next(self._sent), commands.parcel.data.nbytes
        if whole.nbytes < min(BY_VALUE_BYTES, inline_bytes()):
            ref = self._actor.run.remote(pack((place, commands, whole), size + whole.nbytes))
        else:
            ref = self._actor.run.remote(pack((place, commands, None), size), self._hosts.stored(whole))
        self._hosts.expect(self, ref)

    def more(self, number: int) -> None:
        """Ask for the next report of a message."""
        self._hosts.expect(self, self._actor.more.remote(number))

    def beat(self) -> None:
        """Ask for a sign of life, unless an answer is pending; give up a host that is silent for too long."""
        if self.heard is None or self.lost is not None or not ray.is_initialized():
            return
        if not self._asked:
            self._asked, self._unanswered = True, 0
            ref = self._actor.beat.options(concurrency_group="beat").remote()
            self._hosts.expect(self, ref, self._answered)
            return
        self._unanswered += 1
        if self._unanswered >= SILENCE_BEATS:
            reason = f"node {self.node.name} has not answered for {SILENCE_BEATS} s"
            self._hosts.lose(self, reason, silent=True)

    def _answered(self) -> None:
        """Note an answer when it arrives: the thread that handles it may be busy with reports."""
        self._asked, self.heard = False, time.monotonic()

    def run_inline(self, timeouts: Timeouts) -> None:
        """Nothing runs in the caller's thread."""

    def abandon(self, reason: str) -> None:
        """Kill the host, which may still live and be out of reach."""
        self.lost = self.lost or reason
        if ray.is_initialized():
            ray.kill(self._actor, no_restart=True)

    def stop(self) -> None:
        """Tell the host to end its workers, without the help of the cluster's head, which `abandon` needs."""
        if ray.is_initialized():
            self._actor.close.options(concurrency_group="calls").remote(0.0)

    def close(self, seconds: float) -> Callable[[], None]:
        if self.lost is not None or not ray.is_initialized():
            return lambda: None
        closing = self._actor.close.options(concurrency_group="calls").remote(seconds).future()

        def wait() -> None:
            try:
                closing.result(seconds + 5.0)
            except (RayError, concurrent.futures.TimeoutError):
                pass  # it is killed below
            self.abandon("the fleet was closed")

        return wait
