"""The supervisor: posts commands to the groups of a fleet and waits for their answers, whatever happens to the workers.

It knows groups by number and forwards requests without knowing what they mean; that is the fleet's job. There are two
ways to post: `post_all` for every group and `post` for some. Every wait returns the combined `Answers`. Each posted
command is answered: by the group, by an error, or, after a worker's death, by the recovered group of the restarted
worker (`lifecycle.py` restarts it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from envfleet.clock import GRACE_SECONDS
from envfleet.errors import EnvError, EnvfleetError, OutOfTimeError, StateError
from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.control import GROUP_WORDS, Command, GroupWord, Outcome, WorkerWord
from envfleet.fleet.lifecycle import WorkerLifecycle
from envfleet.fleet.requests import Posted, Recover, Request, Reset, Restore, RunRoutine, StepObjects
from envfleet.fleet.spec import Restarts, Timeouts, WorkerSpec
from envfleet.fleet.waiting import Waiter
from envfleet.fleet.watch import ProgressWatch
from envfleet.fleet.worker import Answers

__all__ = ["Supervisor"]


class Supervisor:
    """Posts commands to groups and waits for their answers."""

    def __init__(self, backend: Backend, specs: list[WorkerSpec], timeouts: Timeouts, restarts: Restarts) -> None:
        self.backend, self._specs, self._timeouts = backend, specs, timeouts
        self._workers, self._most_attempts = WorkerLifecycle(backend, specs, timeouts, restarts), restarts.limit
        self.start, self.loads = self._workers.start, self._workers.loads
        self.recovery: Callable[[int], Recover]  # set by the fleet: the request for a group that lost its step
        self._flush = backend.flush  # sends posted commands to workers that do not share the block; else None
        self._step_inline: Callable[[int], Answers] | None = None  # steps all groups in the caller's thread
        self._lockstep: int | None = None  # slot of the pending step of all groups
        self._number = 0  # of the last command
        self._host = {group.index: spec.index for spec in specs for group in spec.groups}
        groups = sorted((group for spec in specs for group in spec.groups), key=lambda group: group.index)
        self._sizes = [group.stop - group.start for group in groups]
        self._posted: dict[int, Posted] = {}
        self._announced: Request | None = None
        self._uninformed: set[int] = set()  # groups that have not carried out the announced request
        self._cut: set[int] = set()  # groups that lost their episodes and have not recovered yet
        self._failed: dict[int, EnvfleetError] = {}
        self._inbox: dict[int, Any] = {}  # replies received while waiting for another group's

    def attach(self, shape: FleetShape) -> FleetArrays:
        """Allocate the fleet's arrays and let the workers serve commands."""
        layout = shape.layout()
        arrays = FleetArrays(shape, layout, self.backend.block.allocate(layout.size))
        control = arrays.control
        self._words = control.words
        self._worker_words = [control.worker(w, WorkerWord.POSTED) for w in range(len(self._specs))]
        self._rows = [control.row(word) for word in range(GROUP_WORDS)]
        self._posted_at, self._finished_at = self._rows[GroupWord.POSTED], self._rows[GroupWord.FINISHED]
        self._outcomes = self._words[self._rows[GroupWord.OUTCOME] :][: shape.groups]
        self._columns = self._words[self._rows[GroupWord.COLUMNS] :][: shape.groups]
        self._groups = range(shape.groups)
        self._lockstep_workers = [
            (line, len(spec.groups), spec.index) for line, spec in zip(self._worker_words, self._specs, strict=True)
        ]
        self._waiter = Waiter(self.backend, control, self._timeouts, self._repair)
        self._workers.attach(arrays)
        self._step_inline = self.backend.inline_step(self._timeouts)
        return arrays

    # --- commands

    def post_all(self, slot: int, requests: Sequence[Request] | None = None) -> None:
        """Post a step to every group, or each group's own request; the results go to `slot`."""
        if self._uninformed:
            self._inform(self._groups)
        if requests is not None or self._cut or self._posted:
            self._post_each(self._groups, [slot] * len(self._groups), requests)
            return
        self._lockstep = slot
        if self._step_inline is not None:
            return  # wait_all() steps them
        words = self._words
        for line, count, worker in self._lockstep_workers:  # two words per worker, none per group
            words[line + WorkerWord.LOCKSTEP] = slot + 1
            words[line] += count
            if words[line + WorkerWord.SLEEPING]:
                self.backend.wake(worker)
        self._send()

    def post(self, groups: Sequence[int], slots: Sequence[int], requests: Sequence[Request] | None = None) -> None:
        """Post a step, or each group's own request, to some groups; each group has its own slot."""
        if self._uninformed:
            self._inform(groups)
        self._post_each(groups, slots, requests)

    def _post_each(self, groups: Sequence[int], slots: Sequence[int], requests: Sequence[Request] | None) -> None:
        """Post a command to each of these groups. Packing may fail, so it comes before anything is posted."""
        if self._lockstep is not None or not self._posted.keys().isdisjoint(groups):
            self.drain()  # the call before was interrupted
        packed = [self._packed(group, None if requests is None else requests[i]) for i, group in enumerate(groups)]
        for group, slot, (request, message) in zip(groups, slots, packed, strict=True):
            self._post(group, slot, request, message)
        self._send()

    def _packed(self, group: int, request: Request | None) -> tuple[Request | None, Any]:
        """A group's command and its message; if the group lost its episodes, a step becomes a recovery."""
        if group in self._cut and (request is None or isinstance(request, StepObjects)):
            request = self.recovery(group)
        elif group in self._cut and isinstance(request, RunRoutine):
            request = replace(request, lost=self.recovery(group))
        return request, None if request is None else self.backend.channel(self._host[group]).pack((group, request))

    def _post(self, group: int, slot: int, request: Request | None, message: Any, attempts: int = 1) -> None:
        worker = self._host[group]
        if isinstance(request, Recover | Restore | RunRoutine) or (isinstance(request, Reset) and request.mask is None):
            self._cut.discard(group)
        words, rows, line = self._words, self._rows, self._worker_words[worker]
        words[line + WorkerWord.LOCKSTEP] = 0
        self._posted[group] = Posted(slot, request, attempts)
        words[rows[GroupWord.SLOT] + group] = slot
        words[rows[GroupWord.COMMAND] + group] = Command.STEP if request is None else request.command
        if isinstance(request, RunRoutine):
            words[rows[GroupWord.BUFFER] + group] = request.buffer
            words[rows[GroupWord.WEIGHT_SET] + group] = request.weight_set
        self._number += 1
        words[rows[GroupWord.POSTED] + group] = self._number
        words[line] += 1
        if words[line + WorkerWord.SLEEPING]:
            self.backend.wake(worker)
        if message is not None:  # last, so that the worker reads while a long request is being written
            try:
                self.backend.channel(worker).send_packed(message)
            except ChannelClosed:
                pass  # the wait for the answer will notice that the worker died

    def _send(self) -> None:
        if self._flush is not None:
            self._flush()

    def _name_lockstep(self) -> None:
        """Turn a pending lockstep into one posted step per group, when groups must be handled separately."""
        if self._lockstep is not None:
            self._posted.update(dict.fromkeys(self._groups, Posted(self._lockstep, None)))
            self._lockstep = None

    def announce(self, request: Request) -> None:
        """Let every group carry out `request` before its next command, also after a restart of its worker."""
        self._announced = request
        self._uninformed.update(self._groups)

    def _inform(self, groups: Iterable[int]) -> None:
        behind = [group for group in groups if group in self._uninformed]
        self._uninformed.difference_update(behind)
        if self._announced is not None:
            self._post_each(behind, [0] * len(behind), [self._announced] * len(behind))
            self.answers_of(behind)

    def ask(
        self, requests: Sequence[Request], slot: int = 0, progress: Callable[[int, int], None] | None = None
    ) -> list[Any]:
        """Post one request to each group and return the replies.

        `progress` is called with the number of answered groups and the total.
        """
        self.post_all(slot, requests)
        replies: dict[int, Any] = {}
        failure: EnvfleetError | None = None
        for part in [self._groups] if progress is None else [[group] for group in self._groups]:
            self._sleep_until_finished(part)  # an error here is no reply: the group stays pending
            try:
                replies |= self._gather(part).messages
            except EnvfleetError as error:  # raised below, after all others have been read
                failure = failure or error
            if progress is not None:
                progress(part[-1] + 1, len(requests))
        if failure is not None:
            raise failure
        return [replies.get(group) for group in self._groups]

    # --- answers

    @property
    def pending(self) -> Collection[int]:
        """The groups with a command from `post` whose answer has not been read."""
        return self._posted.keys()

    def wait_all(self, seconds: float | None = None) -> Answers | None:
        """Answers to all posted commands; None if they are not finished after `seconds`."""
        if self._step_inline is not None and self._lockstep is not None:
            slot, self._lockstep = self._lockstep, None
            return self._step_inline(slot)
        return self._gather_all() if self._waiter.wait_all(seconds) else None

    def wait_first(self, wanted: int, stop: Callable[[], bool] = lambda: False) -> tuple[list[int], Answers]:
        """The groups that finish first, in the order they were posted, with their answers.

        These are just enough groups for `wanted` environments, or fewer once `stop()` is true (see
        `Backend.interrupt`). The caller sleeps until then; spinning would take a core from the groups that still step.
        """
        ready: list[int] = []
        largest = max(self._sizes)

        def lacking() -> int:
            nonlocal ready
            ready, missing = [], wanted
            for group in self._posted:
                if missing > 0 and self._finished(group):
                    ready.append(group)
                    missing -= self._sizes[group]
            return 0 if stop() else -(-max(0, missing) // largest)

        self._waiter.sleep(lacking)
        return ready, self._gather(ready)

    def wait_run(self, waiting: Callable[[], None] | None = None, until: float = math.inf) -> Answers:
        """Answers to all posted commands, for commands that take many steps: the caller sleeps.

        `waiting` is called a few times per second in the meantime. Workers stop by themselves at the time `until`; if
        one is still inside a long step then, raise OutOfTimeError.
        """
        if not self._waiter.sleep_all(until + GRACE_SECONDS, waiting):
            raise OutOfTimeError
        return self._gather_all()

    def drain(self) -> None:
        """Let all pending commands finish and drop their answers; raise an error only if they cannot finish."""
        if self._step_inline is not None:
            self._lockstep = None  # `wait_all` would begin it
        self._name_lockstep()
        try:
            self.wait_all()
        except EnvfleetError:
            if self._posted:
                raise

    def answers_of(self, groups: Sequence[int]) -> Answers:
        """Sleep until these groups are finished, whatever the others do, and return their answers."""
        self._sleep_until_finished(groups)
        return self._gather(groups)

    def _sleep_until_finished(self, groups: Sequence[int]) -> None:
        self._waiter.sleep(lambda: 0 if all(self._finished(group) for group in groups) else 1)

    def _finished(self, group: int) -> bool:
        words = self._words
        return words[self._posted_at + group] == words[self._finished_at + group] or group in self._failed

    def _gather_all(self) -> Answers:
        """Read the answers to all posted commands, which are finished."""
        if self._lockstep is None:
            return self._gather(list(self._posted))
        outcome = columns = 0
        for word in self._outcomes:
            outcome |= word
        if outcome & Outcome.MESSAGE:
            self._name_lockstep()
            return self._gather(self._groups)
        self._lockstep = None
        for word in self._columns:
            columns |= word
        return Answers(outcome, columns)

    def _gather(self, groups: Sequence[int]) -> Answers:
        """Read the answers of finished groups; raise a group's error after all others have been read."""
        answers = Answers()
        failure: EnvfleetError | None = None
        for group in groups:
            outcome = self._outcomes[group]
            if outcome & Outcome.MESSAGE or self._failed:
                message = self._receive(group)
                if isinstance(message, EnvfleetError):
                    failure = failure or message
                elif message is not None:
                    answers.messages[group] = message
            answers.outcome |= outcome
            answers.columns |= self._columns[group]
            del self._posted[group]
        if failure is not None:
            raise failure
        return answers

    def _receive(self, group: int) -> Any:
        """Receive the message of a finished group; its worker may die while sending it."""
        while True:
            if group in self._failed:
                return self._failed.pop(group)
            if not self._outcomes[group] & Outcome.MESSAGE:
                return None
            if group in self._inbox:
                return self._inbox.pop(group)
            worker = self._host[group]
            try:
                sender, message = self.backend.channel(worker).receive(self._timeouts.step)
                self._inbox[sender] = message
            except (ChannelClosed, TimeoutError):
                self._restart(worker, self._workers.restart, self._workers.how_it_ended(worker))
                self._sleep_until_finished([group])

    # --- faults

    def _repair(self, watch: ProgressWatch) -> None:
        for worker, reason in self._workers.deaths():
            self._restart(worker, self._workers.restart, reason)
        for hang in watch.stuck():
            pending = [group.index for group in self._specs[hang.worker].groups if group.index in self._posted]
            operation = (self._posted[pending[0]].operation if pending else None) or hang.operation
            killed = self._workers.kill_hung(replace(hang, operation=operation))
            self._restart(hang.worker, self._workers.restart, *killed, hung=True)

    def _restart(self, worker: int, restart: Callable[..., str], *arguments: Any, hung: bool = False) -> None:
        """Restart a worker and repeat its pending commands: a step as a recovery, a reset or call unchanged."""
        self._name_lockstep()
        reason = restart(worker, *arguments)
        for group in (group.index for group in self._specs[worker].groups):
            self._uninformed.add(group)
            self._cut.add(group)
            self._inbox.pop(group, None)
            posted = self._posted.get(group)
            if posted is None:
                continue
            failure = posted.failure(worker, reason, self._most_attempts, hung=hung)
            if failure is not None:
                self._failed[group] = failure
            else:
                self._post(group, posted.slot, *self._packed(group, posted.again), posted.attempts + 1)
        self._send()

    def move(self, worker: int, groups: Sequence[int], slots: Sequence[int], states: Sequence[Any]) -> Exception | None:
        """Let a worker continue elsewhere with these states; if an error is returned, it begins fresh episodes."""
        for group, slot, saved in zip(groups, slots, states, strict=True):
            self._posted[group] = Posted(slot, Restore(saved), attempts=0)  # no worker has died
        self._restart(worker, self._workers.move)
        try:
            self.answers_of(groups)
            return None
        except (EnvError, StateError) as error:
            self._cut.update(groups)
            return error

    def stop(self, seconds: float) -> None:
        """Tell all workers to stop and wait for them; free the memory."""
        self._workers.stop(seconds)
        self._step_inline = None
        for name in ("_words", "_outcomes", "_columns", "_waiter", "recovery"):
            self.__dict__.pop(name, None)
