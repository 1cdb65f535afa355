"""The fleet: many environments as one Gymnasium vector environment.

`Fleet` is the user's API and its protocol: which call is allowed when. The `Exchange` handles the data (actions in,
results out); the `Supervisor` handles the commands (posts them, waits, deals with faults). Steps of the whole fleet or
a part of it, resets and routines all follow the same path: check the state, let the exchange write, post, wait, let the
exchange read.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.cluster import HostFacts
from envfleet.fleet.description import FleetDescription
from envfleet.fleet.env_access import EnvAccess
from envfleet.fleet.exchange import Exchange, StepResult
from envfleet.fleet.group import Capability
from envfleet.fleet.guarded import GuardedState
from envfleet.fleet.observation_modes import ObservationMode
from envfleet.fleet.protocol import FleetState, bad_min_envs, envs_ended, misplaced_call, still_pending, wait_timed_out
from envfleet.fleet.relocation import Relocation
from envfleet.fleet.requests import Capture, Rebuild, Request, Restore, RunRoutine
from envfleet.fleet.rows import Rows
from envfleet.fleet.seeds_and_tasks import SeedsAndTasks
from envfleet.fleet.spaces import Path
from envfleet.fleet.spec import WorkerSpec
from envfleet.fleet.statistics import FleetStatistics
from envfleet.fleet.supervisor import Supervisor
from envfleet.fleet.worker import Hello

__all__ = ["Fleet"]

Array = np.ndarray[Any, Any]
CLOSE_SECONDS = 1.5  # how long workers have to close their environments
BROKEN_SECONDS = 0.2  # the same for a broken fleet, whose workers do not respond

# As module constants: every step uses some of them, and Enum attributes are slow to look up.
NEW, READY, RESETTING, STEPPING, STREAMING, RUNNING, BROKEN, CLOSED = FleetState


# VectorEnv is named again: skrl looks at the direct bases.
class Fleet(GuardedState, EnvAccess, gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A `gymnasium.vector.VectorEnv` over groups of environments on workers. Made by `envfleet.make`."""

    def __init__(
        self,
        supervisor: Supervisor,
        specs: Sequence[WorkerSpec],
        hellos: Sequence[Hello],
        *,
        backend: str,
        copy: bool,
        observation_mode: ObservationMode = "same",
    ) -> None:
        settings, routine = specs[0].settings, specs[0].routine
        description = FleetDescription.combined(specs, hellos, observation_mode)
        self.groups, self.groups_of_workers = description.groups, description.groups_of_workers
        self.num_envs, self.workers, self.backend = self.groups[-1].stop, len(specs), backend
        self.observation_mode, self.autoreset_mode = observation_mode, settings.autoreset
        self.metadata = {**description.metadata, "autoreset_mode": settings.autoreset}
        self.render_mode, self.spec = description.render_mode, description.spec
        self.single_observation_space, self.observation_space = description.observation_spaces
        self.single_action_space, self.action_space = description.action_spaces
        single = (self.single_observation_space, self.single_action_space)
        extra = () if routine is None else routine.arrays(*single, self.groups)
        shape = FleetShape(self.num_envs, self.workers, len(self.groups), *single, extra, len(settings.log_info))
        arrays = supervisor.attach(shape)
        self.routine_arrays = arrays.extra  # arrays of the workers' routine
        self._supervisor = supervisor
        self._exchange = exchange = Exchange(
            arrays,
            self.groups,
            copy=copy,
            same_step=settings.autoreset is AutoresetMode.SAME_STEP,
            announce=supervisor.announce,
        )
        self.relocation = Relocation(supervisor, exchange, self.groups_of_workers)
        self._seeds_and_tasks = seeds_and_tasks = SeedsAndTasks(
            settings.seed, self.groups, take_tasks=Capability.TASKS in description.capabilities
        )
        supervisor.recovery = lambda group: seeds_and_tasks.recovery(group, exchange.awaits_reset(group))
        self._never_resets = settings.autoreset is AutoresetMode.DISABLED
        self._reset_mask: Array | None = None  # of the pending reset
        self._state = NEW
        self._finalizer = weakref.finalize(self, supervisor.stop, CLOSE_SECONDS)

    # --- reset

    @property
    def seed(self) -> int:
        """The fleet's seed; environment i is seeded with this seed + i."""
        return self._seeds_and_tasks.seed

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        tasks: Sequence[Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`.

        `seed=s` gives environment i the seed s + i. The first reset without a seed uses the fleet's seed.
        `tasks` has one task per environment; an environment gets its task as `options["task"]` in this reset and in
        every autoreset that follows, until it is replaced.
        """
        self._begin_reset("reset()", seed, options, tasks)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        tasks: Sequence[Any] | None = None,
    ) -> None:
        """Begin a reset, with the arguments of `reset`; `reset_wait` returns its results."""
        self._begin_reset("reset_async()", seed, options, tasks)

    def _begin_reset(self, call: str, seed: Any, options: dict[str, Any] | None, tasks: Sequence[Any] | None) -> None:
        """Begin a reset; `call` names the caller in errors."""
        self._expect(call, NEW, READY)
        first = self._state is NEW
        requests, self._reset_mask = self._seeds_and_tasks.resets(seed, options, tasks, first=first)
        slot = 1 - self._exchange.newest_slot()
        self._supervisor.post_all(slot, requests)  # may raise: an argument cannot be sent
        self._exchange.set_slot(slot)
        self._state = RESETTING

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the results of the reset begun by `reset_async`; `timeout` as in `step_wait`."""
        self._expect("reset_wait()", RESETTING)
        answers = self._guarded(self._supervisor.wait_all, timeout)
        if answers is None:
            raise wait_timed_out("reset_wait()", timeout)
        self._seeds_and_tasks.reset_done()
        self._state = READY
        return self._exchange.reset_results(answers, self._reset_mask)

    def set_tasks(self, tasks: Sequence[Any]) -> None:
        """Set the task of every environment, from its next reset on."""
        self._seeds_and_tasks.set_tasks(tasks)

    # --- step

    def step(self, actions: Any) -> StepResult:
        """Step every environment once."""
        self._begin_step("step()", actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Begin a step of every environment; `step_wait` returns its results."""
        self._begin_step("step_async()", actions)

    def _begin_step(self, call: str, actions: Any) -> None:
        """Begin a step; `call` names the caller in errors."""
        if self._state is not READY:
            raise misplaced_call(call, self._state)
        exchange = self._exchange
        if self._never_resets:
            self._refuse_ended(exchange.all)
        requests = exchange.write_actions(actions, exchange.all)
        self._supervisor.post_all(exchange.next_slot(), requests)
        self._state = STEPPING

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Return the results of the step begun by `step_async`.

        After `timeout` seconds it raises a TimeoutError and can be called again. Environments in the caller's own
        thread (sequential backend) step inside this call, which `timeout` cannot interrupt.
        """
        if self._state is not STEPPING:
            raise misplaced_call("step_wait()", self._state)
        answers = self._guarded(self._supervisor.wait_all, timeout)
        if answers is None:
            raise wait_timed_out("step_wait()", timeout)
        self._state = READY
        return self._exchange.results(answers, self._exchange.all)

    def _refuse_ended(self, rows: Rows) -> None:
        if ended := self._exchange.ended_envs(rows):
            raise envs_ended(ended)

    # --- steps of a part of the fleet

    def send(self, actions: Any, env_ids: Sequence[int] | Array) -> None:
        """Begin a step of some environments, with one action each; they must form whole groups."""
        self._expect("send()", READY, STREAMING)
        exchange, pending = self._exchange, self._supervisor.pending
        rows = exchange.rows_of(env_ids)
        if self._never_resets:
            self._refuse_ended(rows)
        if self._state is STREAMING and (waiting := [group for group in rows.groups if group in pending]):
            raise still_pending(self.groups[waiting[0]])
        requests = exchange.write_actions(actions, rows)
        self._supervisor.post(rows.groups, exchange.next_slots(rows.groups), requests)
        self._state = STREAMING

    def recv(self, min_envs: int | None = None) -> StepResult:
        """Return the results of the groups that are ready first, with at least `min_envs` environments.

        `infos["env_id"]` says which environments the rows belong to. Without `min_envs`, one group is enough.
        """
        self._expect("recv()", STREAMING)
        wanted = 1 if min_envs is None else min_envs
        under_way = sum([len(self.groups[group]) for group in self._supervisor.pending])
        if not 1 <= wanted <= under_way:
            raise bad_min_envs(min_envs, under_way)
        groups, answers = self._guarded(self._supervisor.wait_first, wanted)
        if not self._supervisor.pending:
            self._state = READY
        rows = self._exchange.rows_of_groups(groups)
        result = self._exchange.results(answers, rows)
        result[4]["env_id"] = rows.env_ids.copy()
        return result

    # --- routines: many steps without the caller

    def run_async(
        self, argument: Any, buffer: int = 0, groups: Sequence[int] | None = None, weight_set: int = 0
    ) -> None:
        """Start the routine in all groups, or in some; it reads `weight_set` and fills `buffer` of its arrays."""
        self._expect("run_async()", READY, *(() if groups is None else (RUNNING,)))
        chosen = range(len(self.groups)) if groups is None else groups
        self.relocation.move_idle(chosen)
        requests = [RunRoutine(argument, buffer, weight_set)] * len(chosen)
        self._supervisor.post(chosen, self._exchange.slots_of(chosen), requests)
        self._state = RUNNING

    def run_wait(self, steps: int, waiting: Callable[[], None] | None = None, until: float = math.inf) -> None:
        """Wait until every group has run its routine, which takes `steps` steps of each environment.

        `waiting` is called a few times per second meanwhile, except by a sequential fleet, which works itself. Raise
        OutOfTimeError shortly after the time `until` (`time.monotonic`); the fleet can then only be closed.
        """
        self._expect("run_wait()", RUNNING)
        answers = self._guarded(self._supervisor.wait_run, waiting, until)
        self._exchange.routine_done(answers.messages, steps)
        self._state = READY

    def run_first(self, steps: int, stop: Callable[[], bool]) -> list[int]:
        """Wait for the first group that has run its routine; return [group], or [] once `stop()` is true.

        A thread that makes `stop()` true must call `interrupt` afterwards.
        """
        self._expect("run_first()", RUNNING)
        groups, answers = self._guarded(self._supervisor.wait_first, 1, stop)
        self._exchange.routine_done(answers.messages, steps)
        self._state = RUNNING if self._supervisor.pending else READY
        return groups

    def interrupt(self) -> None:
        """Make a `run_first` in another thread check its `stop()`."""
        self._supervisor.backend.interrupt()

    # --- the arrays, for callers that act on views

    def newest_observations(self) -> dict[Path, Array]:
        """Observations to act on, by leaf, as views that the step after the next one overwrites."""
        return self._exchange.arrays.observations[self._exchange.newest_slot()]

    @property
    def last_step(self) -> FleetArrays:
        """The fleet's arrays with the data of the last step, as views: lost steps, final observations, and more."""
        return self._exchange.arrays

    # --- requests to the environments

    def _ask(self, call: str, requests: Sequence[Request]) -> list[Any]:
        self._expect(call, NEW, READY)
        return self._replies(requests)

    def rebuild(self) -> None:
        """Close all environments and build them again; they must be reset afterwards."""
        self._ask("rebuild()", [Rebuild()] * len(self.groups))
        self._state = NEW

    def _local_envs(self) -> list[gymnasium.Env[Any, Any]] | None:
        return None if self._state is CLOSED else self._supervisor.backend.local_envs()

    def state(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """State of all simulators, their episodes and last observations as plain data, for `restore`.

        `progress` is called with the number of saved groups and the total number of groups.
        """
        self._expect("state()", READY)
        captured = self._replies([Capture()] * len(self.groups), progress=progress)
        return {
            **self._seeds_and_tasks.state(),
            **self._exchange.state(),
            "environments": [saved for part in captured for saved in part],
        }

    def restore(self, state: dict[str, Any]) -> Any:
        """Continue from a captured state, on any backend; return the observations to act on."""
        self._expect("restore()", NEW, READY)
        self._seeds_and_tasks.load(state)
        self._state = NEW  # until all environments have their state
        self._exchange.load(state)
        requests = [Restore(state["environments"][group.start : group.stop]) for group in self.groups]
        self._replies(requests, self._exchange.newest_slot())
        self._state = READY
        return self._exchange.observations()

    @property
    def hosts(self) -> Sequence[tuple[str, HostFacts]]:
        """Address and facts of each cluster node that hosts workers; empty on one machine."""
        return self._supervisor.backend.hosts

    def statistics(self) -> FleetStatistics:
        """Steps, episodes and workers since the fleet was made."""
        self._expect("statistics()", *(state for state in FleetState if state is not CLOSED))
        return self._exchange.statistics(self._supervisor.loads())

    # --- end

    def close_extras(self, **kwargs: Any) -> None:
        """End all workers and free their resources."""
        seconds = BROKEN_SECONDS if self._state is BROKEN else CLOSE_SECONDS
        self._state = CLOSED
        if self._finalizer.detach() is not None:
            self._supervisor.stop(seconds)
        del self._exchange, self.relocation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = "environments" if self.spec is None else self.spec.id
        return f"Fleet({name}, num_envs={self.num_envs}, backend={self.backend!r}, workers={self.workers})"
