"""The supervisor: sends commands to the workers of a fleet, waits for answers, and restarts workers that die or hang.

The supervisor knows groups by number and forwards requests without knowing what they mean; that is the fleet's job. It
guarantees that every posted command is answered: by the group, by an error, or, after a worker's death, by the
recovered group of the restarted worker.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envfleet.clock import GRACE_SECONDS
from envfleet.errors import ClosedError, EnvContext, EnvError, EnvfleetError, EnvHungError, OutOfTimeError, WorkerError
from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.control import Command, GroupWord, Outcome, WorkerWord
from envfleet.fleet.os_compat import yield_core
from envfleet.fleet.requests import Call, DefineColumns, Rebuild, Recover, Request, Reset, Restore, RunRoutine, SetAttr
from envfleet.fleet.restart_limiter import RestartLimiter
from envfleet.fleet.spec import Restarts, Timeouts, WorkerSpec
from envfleet.fleet.watch import Hang, ProgressWatch
from envfleet.fleet.worker import Answers, Hello

__all__ = ["Supervisor"]

# Requests that are repeated after a worker was restarted.
_REPEATED = (Reset, Restore, DefineColumns, Rebuild, RunRoutine, Call, SetAttr)
SPIN_SECONDS = 0.002  # if waits are usually shorter than this, the caller spins instead of sleeping
_log = logging.getLogger("envfleet")


class _Posted(NamedTuple):
    """A command that has not been answered yet."""

    slot: int
    request: Request | None  # None: a plain step


class Supervisor:
    """Posts commands to groups and waits for their answers."""

    def __init__(
        self,
        backend: Backend,
        specs: list[WorkerSpec],
        timeouts: Timeouts,
        restarts: Restarts,
    ) -> None:
        self.backend, self.specs = backend, specs
        self._timeouts = timeouts
        self.recovery: Callable[[int], Recover]  # set by the fleet: the request for a group that lost its step
        self.step_inline: Callable[[int], Answers] | None = None  # steps all groups in the caller's thread
        self._lockstep: int | None = None  # slot of the pending step of all groups
        self._number = 0  # of the last command
        self._usual_wait = 0.0
        self.host = {group.index: spec.index for spec in specs for group in spec.groups}
        self.posted: dict[int, _Posted] = {}
        self.restarted = [0] * len(specs)  # restarts of each worker
        self.forgetful: set[int] = set()  # groups whose worker was restarted and has no info columns yet
        self._cut: set[int] = set()  # groups that lost their episodes and have not recovered yet
        self._restarts = [RestartLimiter(restarts) for _ in specs]
        self._failed: dict[int, EnvfleetError] = {}
        self._inbox: dict[int, Any] = {}  # replies received while waiting for another group's
        self._stopped = False  # may be set by another thread than the one that waits

    # --- start

    def start(self) -> list[Hello]:
        """Start all workers at once and wait until their environments are built."""
        for spec in self.specs:
            self.backend.start(spec)
        if self.specs[0].routine is not None:
            self.specs[0].routine.load()  # in parallel with the workers, which load it too
        return [self._hello(spec) for spec in self.specs]

    def _hello(self, spec: WorkerSpec) -> Hello:
        limit = self._timeouts.start
        try:
            return self.backend.hello(spec.index, limit)
        except TimeoutError as error:
            if isinstance(error, EnvError) and not isinstance(error, EnvHungError):
                raise  # raised by the environment itself
            stack = self.backend.stack(spec.index)
            context = EnvContext(spec.groups[0].start, "make", spec.settings.seed + spec.groups[0].start)
            raise EnvHungError(
                f"worker {spec.index} did not build its environments within {limit:g} s",
                context,
                original=stack,
            ) from None
        except ChannelClosed:
            self.backend.kill(spec.index)
            raise WorkerError(
                f"worker {spec.index} died while it built its environments: {self.backend.death(spec.index)}",
                hint="run envfleet.check(env), or backend='sequential' to see the failure in this process",
            ) from None

    def attach(self, shape: FleetShape) -> FleetArrays:
        layout = shape.layout()
        self.arrays = FleetArrays(shape, layout, self.backend.block.allocate(layout.size))
        control = self.arrays.control
        self._words = control.words
        self._waits = control.caller_waits
        self._worker_words = [control.worker(w, WorkerWord.POSTED) for w in range(len(self.specs))]
        self._rows = [control.row(word) for word in range(GroupWord.COLUMNS + 1)]
        self._groups = shape.groups
        self._posted_at, self._finished_at = self._rows[GroupWord.POSTED], self._rows[GroupWord.FINISHED]
        at = self._rows[GroupWord.OUTCOME]
        self._outcomes = self._words[at : at + shape.groups]
        at = self._rows[GroupWord.COLUMNS]
        self._columns = self._words[at : at + shape.groups]
        self._lockstep_workers = [
            (line, len(spec.groups), spec.index) for line, spec in zip(self._worker_words, self.specs, strict=True)
        ]
        for spec in self.specs:
            self.backend.attach(spec.index, self.arrays)
        self.step_inline = self.backend.inline_step(self._timeouts)
        return self.arrays

    # --- commands

    def post(self, group: int, slot: int, request: Request | None = None) -> None:
        """Post a command to a group; if the group lost its episodes, a step becomes a recovery."""
        if group in self._cut and request is None:
            request = self.recovery(group)
        elif group in self._cut and isinstance(request, RunRoutine):
            request = RunRoutine(request.argument, lost=self.recovery(group))
        if isinstance(request, Recover | Reset | Restore | RunRoutine):
            self._cut.discard(group)
        words, rows, worker = self._words, self._rows, self.host[group]
        words[self._worker_words[worker] + WorkerWord.LOCKSTEP] = 0
        self.posted[group] = _Posted(slot, request)
        words[rows[GroupWord.SLOT] + group] = slot
        words[rows[GroupWord.COMMAND] + group] = Command.STEP if request is None else Command.REQUEST
        self._number += 1
        words[rows[GroupWord.POSTED] + group] = self._number
        line = self._worker_words[worker]
        words[line] += 1
        if words[line + WorkerWord.SLEEPING]:
            self.backend.wake(worker)
        if request is not None:  # last, so that the worker reads while a long request is being written
            self._send(worker, (group, request))

    def post_lockstep(self, slot: int) -> None:
        """Post a step to all groups at once: writes two words per worker, none per group."""
        self._lockstep = slot
        words = self._words
        for line, count, worker in self._lockstep_workers:
            words[line + WorkerWord.LOCKSTEP] = slot + 1
            words[line] += count
            if words[line + WorkerWord.SLEEPING]:
                self.backend.wake(worker)

    @property
    def can_lockstep(self) -> bool:
        return not self.posted and not self._cut

    def _name_lockstep(self) -> None:
        """Turn a pending lockstep into one posted step per group, when groups must be handled separately."""
        if self._lockstep is not None:
            self.posted.update(dict.fromkeys(range(self._groups), _Posted(self._lockstep, None)))
            self._lockstep = None

    def gather_lockstep(self) -> Answers:
        """Collect the answers to a finished lockstep."""
        outcome = columns = 0
        for word in self._outcomes:
            outcome |= word
        if outcome & Outcome.MESSAGE or self._lockstep is None:  # None: a worker died and its groups recovered
            self._name_lockstep()
            return self.gather(range(self._groups))
        self._lockstep = None
        for word in self._columns:
            columns |= word
        return Answers(outcome, columns)

    def _send(self, worker: int, letter: tuple[int, Request]) -> None:
        try:
            self.backend.channel(worker).send(letter)
        except ChannelClosed:
            pass  # the wait for the answer will notice that the worker died

    # --- answers

    def finished(self, group: int) -> bool:
        words = self._words
        return words[self._posted_at + group] == words[self._finished_at + group] or group in self._failed

    def wait_first(self, wanted: int, sizes: list[int]) -> list[int]:
        """Wait for finished groups, in the order they were posted, just enough for `wanted` environments.

        The caller sleeps until there are enough; spinning would take a core from the groups that still step.
        """
        self.backend.run_inline(self._timeouts)
        ready, lacking = self._finished_first(wanted, sizes)
        if lacking > 0:
            largest = max(sizes)
            self._sleep(lambda: -(-max(0, self._finished_first(wanted, sizes)[1]) // largest))
            ready, _ = self._finished_first(wanted, sizes)
        return ready

    def _finished_first(self, wanted: int, sizes: list[int]) -> tuple[list[int], int]:
        """Finished groups, no more than needed, and how many environments are still missing."""
        words, posted_at, finished_at = self._words, self._posted_at, self._finished_at
        ready = []
        for group in self.posted:
            if words[posted_at + group] == words[finished_at + group] or group in self._failed:
                ready.append(group)
                wanted -= sizes[group]
                if wanted <= 0:
                    break
        return ready, wanted

    def wait_all(self, seconds: float | None = None) -> bool:
        """Wait until every posted command is finished, at most `seconds`; return whether they all are.

        While the caller wakes up, all workers are idle. So it spins instead of sleeping if the wait is usually short.
        """
        self.backend.run_inline(self._timeouts)
        began = time.monotonic()
        until = math.inf if seconds is None else began + seconds
        spins = self.backend.spins and self._usual_wait < SPIN_SECONDS
        spun = spins and self._spin(min(until, began + 2 * SPIN_SECONDS))
        finished = spun or self._sleep(self._unfinished, until)
        self._usual_wait += 0.05 * (time.monotonic() - began - self._usual_wait)
        return finished

    def _unfinished(self) -> int:
        """Number of posted commands that are not finished."""
        words = self._words
        return sum([words[line] - words[line + WorkerWord.FINISHED] for line in self._worker_words])

    def _spin(self, until: float) -> bool:
        words = self._words
        for line in self._worker_words:
            posted = words[line]
            while words[line + WorkerWord.FINISHED] != posted:
                yield_core()
                if time.monotonic() > until:
                    return False
        return True

    def wait_run(self, waiting: Callable[[], None] | None = None, until: float = math.inf) -> None:
        """Sleep until every posted command is finished; for commands that take many steps.

        `waiting` is called a few times per second in the meantime. Workers stop by themselves at the time `until`; if
        one is still inside a long step then, raise OutOfTimeError.
        """
        self.backend.run_inline(self._timeouts)
        if not self._sleep(self._unfinished, until + GRACE_SECONDS, waiting):
            raise OutOfTimeError

    def _wait_for(self, groups: Sequence[int]) -> None:
        """Sleep until these groups are finished, whatever the others do."""
        self.backend.run_inline(self._timeouts)
        self._sleep(lambda: 0 if all(self.finished(group) for group in groups) else 1)

    def _sleep(
        self, lacking: Callable[[], int], until: float = math.inf, waiting: Callable[[], None] | None = None
    ) -> bool:
        """Sleep until `lacking()` is 0; it returns how many more commands must finish at least.

        Return False if the time `until` (`time.monotonic`) comes first.

        The workers see how many commands they must finish in total before one of them rings the caller, because a
        wake-up costs more than a step of many environments.
        """
        words, watch = self._words, None
        try:
            while True:
                finished = sum([words[line + WorkerWord.FINISHED] for line in self._worker_words])
                count = lacking()
                if count == 0:
                    return True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                words[self._waits] = finished + count
                if lacking() == 0:  # they finished before they saw that the caller waits
                    return True
                watch = watch or ProgressWatch(words, self._worker_words, self._timeouts)
                if self.backend.wait(min(watch.look_every, left)):
                    continue
                words[self._waits] = 0
                self._mend_deaths()
                for hang in watch.stuck():
                    self._hung(hang)
                if waiting is not None:
                    waiting()
        finally:
            words[self._waits] = 0

    def gather(self, groups: Sequence[int]) -> Answers:
        """Collect the answers of finished groups; raise a group's error after all others have been read."""
        words, posted = self._words, self.posted
        at_outcome, at_columns = self._rows[GroupWord.OUTCOME], self._rows[GroupWord.COLUMNS]
        answers = Answers()
        failure: EnvfleetError | None = None
        for group in groups:
            outcome = words[at_outcome + group]
            if outcome & Outcome.MESSAGE or self._failed:
                message = self._receive(group)
                if isinstance(message, EnvfleetError):
                    failure = failure or message
                elif message is not None:
                    answers.messages[group] = message
            answers.outcome |= outcome
            answers.columns |= words[at_columns + group]
            del posted[group]
        if failure is not None:
            raise failure
        return answers

    def _receive(self, group: int) -> Any:
        """Receive the message of a finished group; its worker may die while sending it."""
        while True:
            if group in self._failed:
                return self._failed.pop(group)
            if not self._words[self._rows[GroupWord.OUTCOME] + group] & Outcome.MESSAGE:
                return None
            if group in self._inbox:
                return self._inbox.pop(group)
            try:
                sender, message = self.backend.channel(self.host[group]).receive(self._timeouts.step)
                self._inbox[sender] = message
            except (ChannelClosed, TimeoutError):
                self._restart(self.host[group], self._how_it_ended(self.host[group]))
                self._wait_for([group])

    def ask(
        self, requests: dict[int, Request], slot: int = 0, progress: Callable[[int, int], None] | None = None
    ) -> dict[int, Any]:
        """Post one request to each of some groups and return their replies."""
        for group, request in requests.items():
            self.post(group, slot, request)
        if progress is None:
            self._wait_for(list(requests))
            return self.gather(list(requests)).messages
        replies: dict[int, Any] = {}
        failure: EnvfleetError | None = None
        for done, group in enumerate(requests, start=1):
            self._wait_for([group])
            try:
                replies |= self.gather([group]).messages
            except EnvfleetError as error:  # raised below, after all others have been read
                failure = failure or error
            progress(done, len(requests))
        if failure is not None:
            raise failure
        return replies

    # --- faults

    def _mend_deaths(self) -> None:
        for spec in self.specs:
            reason = self.backend.death(spec.index)
            if reason is not None:
                self._restart(spec.index, reason)

    def _how_it_ended(self, worker: int) -> str:
        self.backend.kill(worker)
        return self.backend.death(worker) or "it ended"

    def _hung(self, hang: Hang) -> None:
        """Handle a worker that made no progress: record its stack, then kill and restart it, or raise EnvHungError."""
        worker = hang.worker
        env = self._words[self._worker_words[worker] + WorkerWord.CURRENT]
        stack = self.backend.stack(worker)
        if not self.backend.killable:
            context = EnvContext(env, hang.operation, self.specs[worker].settings.seed + env)
            raise EnvHungError(
                f"an environment did not return within {hang.limit:g} s; a thread cannot be killed, "
                "so the fleet is broken",
                context,
                original=stack,
                hint="backend='processes' kills and restarts what hangs; timeout= sets the limit",
            )
        self.backend.kill(worker)
        self._restart(
            worker,
            f"environment {env} did not return from its {hang.operation} within {hang.limit:g} s; "
            f"it was in\n{stack.rstrip()}",
            stack,
        )

    def _restart(self, worker: int, reason: str, stack: str | None = None) -> None:
        """Restart a dead worker, as often as allowed, and ask its groups to recover."""
        if self._stopped:  # the worker ended because the fleet was closed
            raise ClosedError("the fleet was closed while its environments were stepping")
        env = self._words[self._worker_words[worker] + WorkerWord.CURRENT]
        restarts = self._restarts[worker]
        if restarts.exhausted:
            raise WorkerError(
                f"worker {worker} died {restarts.recent + 1} times within {restarts.within:g} s, last in environment "
                f"{env}: {reason}",
                hint="the simulator crashes again and again: envfleet.check(env) may show why; restarts= allows more",
                ending=reason,
                stack=self.backend.stack(worker) if stack is None else stack,
                hung=stack is not None,
            )
        _log.warning("worker %d is restarted (%s); it was in environment %d", worker, reason, env)
        time.sleep(restarts.count())
        self.restarted[worker] += 1
        spec = self.specs[worker]
        self._name_lockstep()
        self._clear_words(spec)
        self.backend.start(spec)
        try:
            self._hello(spec)
            self.backend.attach(worker, self.arrays)
        except (ChannelClosed, WorkerError):  # it died again before it was ready
            self._restart(worker, self._how_it_ended(worker))
            return
        self._recover(spec, reason)

    def _clear_words(self, spec: WorkerSpec) -> None:
        words, line = self._words, self._worker_words[spec.index]
        for word in (
            WorkerWord.POSTED,
            WorkerWord.FINISHED,
            WorkerWord.SLEEPING,
            WorkerWord.LOCKSTEP,
            WorkerWord.PHASE,
        ):
            words[line + word] = 0
        for group in spec.groups:
            for word in (GroupWord.POSTED, GroupWord.FINISHED):
                words[self._rows[word] + group.index] = 0

    def _recover(self, spec: WorkerSpec, reason: str) -> None:
        """Repeat the pending commands of a dead worker: a step as a recovery, a reset or a call unchanged."""
        for group in (group.index for group in spec.groups):
            self.forgetful.add(group)
            self._cut.add(group)
            self._inbox.pop(group, None)
            posted = self.posted.get(group)
            if posted is None:
                continue
            if posted.request is None or isinstance(posted.request, Recover):
                self.post(group, posted.slot)
            elif isinstance(posted.request, _REPEATED):
                self.post(group, posted.slot, posted.request)
            else:
                self._failed[group] = WorkerError(
                    f"worker {spec.index} died during {type(posted.request).__name__}: {reason}",
                    hint="it was restarted; ask again",
                )

    # --- end

    def stop(self, seconds: float) -> None:
        """Tell all workers to stop and wait for them."""
        self._stopped = True
        if hasattr(self, "_words"):
            for line in self._worker_words:
                self._words[line + WorkerWord.STOP] = 1
        self.backend.close(seconds)
        self.__dict__.pop("arrays", None)  # the memory is freed with the last array that is still in use
        self.step_inline = None
        for name in ("_words", "_outcomes", "_columns"):
            self.__dict__.pop(name, None)
