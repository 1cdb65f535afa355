"""The worker: hosts groups, waits for commands in the shared memory block, and carries them out.

How a command reaches a worker
------------------------------
The caller writes the command into the group's control words, adds one to the worker's POSTED word, and
rings the worker's doorbell if its SLEEPING word is set. The worker compares POSTED with its own count, runs
every group whose POSTED and FINISHED differ, and adds to FINISHED. Data is in the block before the words
change, and every word has one writer, so there are no locks.

Waking a sleeping process takes as long as several steps of a cheap environment. So an idle worker first
spins for a moment, yielding its core (`sched_yield`) and watching POSTED, and only then sleeps on its
doorbell. If its waits are usually longer, as between rollouts, it sleeps at once and leaves the core to
others. Going to sleep races with a command that is being posted. So the worker sets SLEEPING, checks POSTED
once more, and never sleeps longer than a quarter of a second without checking again.
"""

from __future__ import annotations

import os
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from envfleet.errors import EnvContext, EnvError, EnvfleetError, ProtocolError, WorkerError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import Channel
from envfleet.fleet.control import Command, GroupWord, Outcome, Phase, WorkerWord
from envfleet.fleet.group import Group, GroupDescription
from envfleet.fleet.os_compat import Doorbell, yield_core
from envfleet.fleet.requests import Request
from envfleet.fleet.spec import WorkerSpec

__all__ = ["Answers", "Bells", "Hello", "Worker", "unexpected"]

SPIN_SECONDS = 0.002  # how long a worker spins before it sleeps
SLEEP_SECONDS = 0.25  # it checks again after that long, in case it missed a ring


@dataclass(slots=True)
class Answers:
    """The combined answers of some groups to their last commands."""

    outcome: int = 0
    columns: int = 0
    messages: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bells:
    """The doorbells of a worker and of the caller, and whether the worker may spin before it sleeps."""

    worker: Doorbell
    caller: Doorbell
    spin: bool


@dataclass(frozen=True)
class Hello:
    """A worker's first message, sent when its environments are built: the description of each of its groups."""

    groups: list[GroupDescription]
    torch: str = ""  # digest of torch's arithmetic, if the spec asks for it and the worker has loaded torch


class Worker:
    """Hosts the groups of one spec; the backend decides where it runs."""

    def __init__(self, spec: WorkerSpec, channel: Channel, bells: Bells | None) -> None:
        self.spec, self._channel, self._bells = spec, channel, bells
        self.groups = [group.make(group, spec.settings) for group in spec.groups]
        self._requests: dict[int, Request] = {}
        self._usual_wait = 0.0

    def build(self) -> Hello:
        if self.spec.core is not None:
            os.sched_setaffinity(0, {self.spec.core})
        self.spec.load()
        return Hello([group.build() for group in self.groups], self._torch())

    def _torch(self) -> str:
        if not self.spec.fingerprint:
            return ""
        from envfleet.fleet.numerics import measure_torch  # few workers need it

        return measure_torch()

    def attach(self, arrays: FleetArrays) -> None:
        """Find the worker's words in the block and attach its groups; before a restart the caller clears the words."""
        control, index = arrays.control, self.spec.index
        self._words = control.words
        self._posted = control.worker(index, WorkerWord.POSTED)
        self._finished = control.worker(index, WorkerWord.FINISHED)
        self._sleeping = control.worker(index, WorkerWord.SLEEPING)
        self._busy = control.worker(index, WorkerWord.BUSY_NS)
        self._phase = control.worker(index, WorkerWord.PHASE)
        self._stop = control.worker(index, WorkerWord.STOP)
        self._lockstep = control.worker(index, WorkerWord.LOCKSTEP)
        self._caller_waits = control.caller_waits
        self._all_finished = [control.worker(w, WorkerWord.FINISHED) for w in range(control.workers)]
        rows = [control.row(word) for word in range(GroupWord.COLUMNS + 1)]
        self._word_indices = [(group, tuple(row + group.spec.index for row in rows)) for group in self.groups]
        for group in self.groups:
            group.attach(arrays, index)
        if self.spec.routine is not None:
            for group, routine in zip(self.groups, self.spec.routine.attach(self.groups, arrays), strict=True):
                group.routine = routine

    def serve(self) -> None:
        """Carry out commands until the caller sets STOP."""
        words = self._words
        while not words[self._stop]:
            if words[self._posted] == words[self._finished]:
                self._await_command()
            else:
                self.serve_posted()
        self.close()

    def serve_posted(self) -> None:
        """Carry out all posted commands."""
        words = self._words
        if words[self._posted] == words[self._finished]:
            return
        began = time.perf_counter_ns()
        lockstep = words[self._lockstep]
        try:
            for group, indices in self._word_indices:
                if lockstep:
                    self._run(group, indices, Command.STEP, lockstep - 1)
                elif words[indices[0]] != words[indices[1]]:
                    self._run(group, indices, words[indices[2]], words[indices[3]])
        except BaseException:
            if self._bells is None:
                self._give_up()
            raise
        words[self._busy] += time.perf_counter_ns() - began

    def _give_up(self) -> None:
        """Answer the commands that are left, after the caller's thread was interrupted (Ctrl-C) in one of them."""
        words = self._words
        if words[self._lockstep]:
            done = len(self._word_indices) + words[self._finished] - words[self._posted]
            left = self._word_indices[done:]
        else:
            left = [(group, at) for group, at in self._word_indices if words[at[0]] != words[at[1]]]
        self._requests.clear()
        try:
            while True:
                self._channel.receive(0.0)
        except TimeoutError:
            pass  # all requests have been read
        for group, (posted, finished, _, _, outcome, columns) in left:
            words[outcome], words[columns], words[finished] = Outcome.MESSAGE, 0, words[posted]
            self._channel.send((group.spec.index, ProtocolError("the command was interrupted")))
        words[self._finished] = words[self._posted]

    def step_groups(self, slot: int) -> Answers:
        """Step all groups within this call, for a caller that hosts the worker; no commands, no messages.

        A group's error is raised after all other groups have stepped.
        """
        began = time.perf_counter_ns()
        self._words[self._phase] = Phase.STEP
        answers = Answers()
        failure: EnvfleetError | None = None
        for group in self.groups:
            try:
                extras = group.step(slot)
            except EnvfleetError as error:
                failure = failure or error
                continue
            except Exception as error:
                failure = failure or unexpected(error)
                continue
            if extras is not None:
                answers.messages[group.spec.index] = extras
            if group.episode_ended:
                answers.outcome |= Outcome.ENDED
            answers.columns |= group.columns_present
        self._words[self._busy] += time.perf_counter_ns() - began
        if failure is not None:
            raise failure
        return answers

    def _run(self, group: Group, indices: tuple[int, ...], command: int, slot: int) -> None:
        words = self._words
        posted, finished, _, _, outcome, columns = indices
        message: Any = None
        reply: Any = None
        request: Request | None = None
        try:
            if command == Command.STEP:
                words[self._phase] = Phase.STEP
                reply = group.step(slot)
                if reply is not None:
                    message = self._channel.pack((group.spec.index, reply))
            else:
                request = self._request_for(group.spec.index)
                words[self._phase] = request.phase
                reply = request.apply(group, slot)
                message = self._channel.pack((group.spec.index, reply))
        except EnvfleetError as error:
            message = self._channel.pack((group.spec.index, error))
        except Exception as error:
            failure = unexpected(error) if reply is None else self._not_sent(error, group, request)
            message = self._channel.pack((group.spec.index, failure))
        words[outcome] = (Outcome.ENDED if group.episode_ended else 0) | (Outcome.MESSAGE if message else 0)
        words[columns] = group.columns_present
        words[finished] = words[posted]
        words[self._finished] += 1
        waits = words[self._caller_waits]
        if waits and sum([words[at] for at in self._all_finished]) >= waits:
            self._ring_caller()
        if message:  # after the words, so that the caller reads while a long message is being written
            self._channel.send_packed(message)

    def _not_sent(self, error: Exception, group: Group, request: Request | None) -> EnvError:
        """The error for a reply that cannot be packed, e.g. an info with a lock."""
        spec = group.spec
        operation = "step" if request is None else request.operation or "reset"
        return EnvError(
            f"its result cannot be sent to the caller: {type(error).__name__}: {error}",
            EnvContext(spec.start, operation, self.spec.settings.seed + spec.start, together=len(spec)),
            hint="return what can be pickled, or use backend='sequential' or 'threads'",
        )

    def _request_for(self, index: int) -> Request:
        """Receive the request posted to a group; keep requests for other groups that arrive before it."""
        while index not in self._requests:
            group, request = self._channel.receive()
            self._requests[group] = request
        return self._requests.pop(index)

    def _ring_caller(self) -> None:
        if self._bells is not None:
            self._bells.caller.ring()

    def _await_command(self) -> None:
        words, bells = self._words, self._bells
        assert bells is not None
        began = time.perf_counter()
        spins = bells.spin and self._usual_wait < SPIN_SECONDS
        if not (spins and self._spin(began + SPIN_SECONDS)):
            words[self._sleeping] = 1
            while words[self._posted] == words[self._finished] and not words[self._stop]:
                bells.worker.wait(SLEEP_SECONDS)
            words[self._sleeping] = 0
        waited = min(time.perf_counter() - began, 2 * SPIN_SECONDS)  # one long wait must not end the spinning
        self._usual_wait += 0.05 * (waited - self._usual_wait)

    def _spin(self, until: float) -> bool:
        """Watch for a command until a time; return whether one came, or the stop."""
        words, posted, finished, stop = self._words, self._posted, self._words[self._finished], self._stop
        while time.perf_counter() < until:
            for _ in range(8):
                yield_core()
                if words[posted] != finished or words[stop]:
                    return True
        return False

    def close(self) -> None:
        for group in self.groups:
            group.close()


def unexpected(error: Exception) -> EnvfleetError:
    """The error as one of ours; wraps one that did not come from an environment."""
    if isinstance(error, EnvfleetError):
        return error
    return WorkerError(f"a worker failed: {type(error).__name__}: {error}\n\n{traceback.format_exc()}")
