"""The life of a fleet's workers: starts them, restarts those that died or hang, within limits, and stops them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from envfleet.errors import ClosedError, EnvContext, EnvError, EnvHungError, WorkerError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.channel import ChannelClosed
from envfleet.fleet.control import WorkerWord
from envfleet.fleet.infos import clear_columns
from envfleet.fleet.restart_limiter import RestartLimiter
from envfleet.fleet.spec import Restarts, Timeouts, WorkerSpec
from envfleet.fleet.watch import Hang
from envfleet.fleet.worker import Hello

__all__ = ["WorkerLifecycle", "WorkerLoad"]

_log = logging.getLogger("envfleet")


class WorkerLoad(NamedTuple):
    """One worker's process, the time it has worked so far, its restarts and its memory."""

    pid: int
    busy_ns: int
    restarts: int
    memory: int  # private memory of its process, in bytes


class WorkerLifecycle:
    """Starts, restarts and stops workers. It knows nothing of their commands."""

    def __init__(self, backend: Backend, specs: list[WorkerSpec], timeouts: Timeouts, restarts: Restarts) -> None:
        self._backend, self._specs, self._timeouts = backend, specs, timeouts
        self._arrays: FleetArrays | None = None
        self._restart_counts = [0] * len(specs)
        self._restarts = [RestartLimiter(restarts) for _ in specs]
        self._stopped = False  # may be set by another thread than the one that waits

    def start(self) -> list[Hello]:
        """Start all workers at once and wait until their environments are built."""
        for spec in self._specs:
            self._backend.start(spec)
        self._specs[0].load()  # in parallel with the workers, which load it too
        return [self._hello(spec) for spec in self._specs]

    def _hello(self, spec: WorkerSpec) -> Hello:
        limit = self._timeouts.start
        try:
            return self._backend.hello(spec.index, limit)
        except TimeoutError as error:
            if isinstance(error, EnvError) and not isinstance(error, EnvHungError):
                raise  # raised by the environment itself
            # The stack of a caller that was interrupted is in the error; by now it is in this function.
            stack = error.original if isinstance(error, EnvHungError) else self._backend.stack(spec.index)
            first, last = spec.groups[0].start, spec.groups[-1].stop
            context = EnvContext(first, "make", spec.settings.seed + first, together=last - first)
            raise EnvHungError(
                f"worker {spec.index} did not build its environments within {limit:g} s",
                context,
                original=stack,
            ) from None
        except ChannelClosed:
            self._backend.kill(spec.index)
            raise WorkerError(
                f"worker {spec.index} died while it built its environments: {self._backend.death(spec.index)}",
                hint="run envfleet.check(env), or backend='sequential' to see the failure in this process",
            ) from None

    def attach(self, arrays: FleetArrays) -> None:
        """Let all workers map the block and serve commands."""
        self._arrays = arrays
        for spec in self._specs:
            self._backend.attach(spec.index, arrays)

    def loads(self) -> list[WorkerLoad]:
        """The process, working time, restarts and memory of each worker."""
        return [
            WorkerLoad(
                self._backend.pid(spec.index),
                self._word(spec.index, WorkerWord.BUSY_NS),
                self._restart_counts[spec.index],
                self._backend.memory(spec.index),
            )
            for spec in self._specs
        ]

    def _word(self, worker: int, word: int) -> int:
        assert self._arrays is not None
        control = self._arrays.control
        return control.words[control.worker(worker, word)]

    def _context(self, worker: int, operation: str) -> EnvContext:
        return self._specs[worker].context(self._word(worker, WorkerWord.CURRENT), operation)

    # --- faults

    def deaths(self) -> Iterator[tuple[int, str]]:
        """Yield the workers that have died, and how."""
        for spec in self._specs:
            reason = self._backend.death(spec.index)
            if reason is not None:
                yield spec.index, reason

    def how_it_ended(self, worker: int) -> str:
        """Describe how a worker ended that closed its channel or does not answer."""
        self._backend.kill(worker)
        return self._backend.death(worker) or "it ended"

    def kill_hung(self, hang: Hang) -> tuple[str, str]:
        """Kill a worker that made no progress; return the reason and its stack. Raise EnvHungError if impossible."""
        worker = hang.worker
        context = self._context(worker, hang.operation)
        stack = self._backend.stack(worker)
        if not self._backend.killable:
            raise EnvHungError(
                f"an environment did not return within {hang.limit:g} s; a thread cannot be killed, "
                "so the fleet is broken",
                context,
                original=stack,
                hint="backend='processes' kills and restarts what hangs; timeout= sets the limit",
            )
        self._backend.kill(worker)
        reason = (
            f"{context.where} did not return from its {hang.operation} within {hang.limit:g} s\n"
            f"it was in:\n{stack.rstrip()}"
        )
        return reason, stack

    def restart(self, worker: int, reason: str, stack: str | None = None) -> str:
        """Restart a dead worker and wait until its environments are built; `stack` is given if it was hung.

        Return why it died: the last reason, if it died again before it was ready.
        """
        while True:
            delay = self._delay(worker, reason, stack)
            where = self._context(worker, "step").where
            _log.warning("worker %d is restarted (%s); it was in %s", worker, reason, where)
            time.sleep(delay)
            self._restart_counts[worker] += 1
            spec, arrays = self._specs[worker], self._clear(worker)
            self._backend.start(spec)
            try:
                self._hello(spec)
                self._backend.attach(worker, arrays)
                return reason
            except (ChannelClosed, WorkerError):  # it died again before it was ready
                reason, stack = self.how_it_ended(worker), None

    def _clear(self, worker: int) -> FleetArrays:
        """Set the control words of a worker to their first values, and remove the infos that it has left."""
        arrays, groups = self._arrays, self._specs[worker].groups
        assert arrays is not None
        arrays.control.clear(worker, [group.index for group in groups])
        for group in groups:
            rows = slice(group.start, group.stop)
            clear_columns(arrays.column_definitions, arrays.columns, arrays.shape.n_envs, rows)
        return arrays

    def move(self, worker: int) -> str:
        """Let an idle worker continue on another host, where its environments are built; return why it moved.

        If the other host is lost at this moment, the worker is restarted.
        """
        relocator = self._backend.relocator
        assert relocator is not None
        arrays = self._clear(worker)
        try:
            relocator.move(worker)
            self._backend.attach(worker, arrays)
        except ChannelClosed:
            return self.restart(worker, self.how_it_ended(worker))
        return "it moved to another host"

    def _delay(self, worker: int, reason: str, stack: str | None) -> float:
        """Count a restart and return the seconds to wait before it; raise WorkerError if there were too many."""
        if self._stopped:  # the worker ended because the fleet was closed
            raise ClosedError("the fleet was closed while its environments were stepping")
        restarts = self._restarts[worker]
        if restarts.exhausted:
            where = self._context(worker, "step").where
            raise WorkerError(
                f"worker {worker} died {restarts.recent + 1} times within {restarts.within:g} s, last in {where}: "
                f"{reason}",
                hint="the simulator crashes again and again: envfleet.check(env) may show why; restarts= allows more",
                ending=reason,
                stack=self._backend.stack(worker) if stack is None else stack,
                hung=stack is not None,
            )
        return restarts.count()

    # --- end

    def stop(self, seconds: float) -> None:
        """Tell all workers to stop and wait for them."""
        self._stopped = True
        if self._arrays is not None:
            control = self._arrays.control
            for spec in self._specs:
                control.words[control.worker(spec.index, WorkerWord.STOP)] = 1
        self._backend.close(seconds)
        self._arrays = None  # the memory is freed with the last array that is still in use
