"""The fleet: many environments as one Gymnasium vector environment."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envfleet.errors import (
    EnvContext,
    EnvError,
    EnvfleetError,
    EnvHungError,
    OutOfTimeError,
    ProtocolError,
    SettingsError,
    StateError,
    WorkerError,
)
from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.exchange import Exchange, StepResult
from envfleet.fleet.group import Capability, unsupported
from envfleet.fleet.observation_modes import ObservationMode, observation_spaces
from envfleet.fleet.protocol import FleetState, ResetMaskError, SpacesError, WaitTimeoutError, misplaced_call
from envfleet.fleet.requests import (
    Apply,
    Call,
    Capture,
    Rebuild,
    Recover,
    Request,
    Reset,
    Restore,
    RunRoutine,
    SetAttr,
)
from envfleet.fleet.routine import WorkerRoutine
from envfleet.fleet.rows import Rows
from envfleet.fleet.spaces import Path
from envfleet.fleet.statistics import FleetStatistics
from envfleet.fleet.supervisor import Supervisor
from envfleet.fleet.worker import Answers, Hello
from envfleet.seeding import derive_seed

__all__ = ["Fleet"]

Array = np.ndarray[Any, Any]
CLOSE_SECONDS = 1.5  # how long workers have to close their environments
BROKEN_SECONDS = 0.2  # the same for a broken fleet, whose workers do not respond


# As module constants: every step uses some of them, and Enum attributes are slow to look up.
NEW, READY, RESETTING, STEPPING, STREAMING, RUNNING, BROKEN, CLOSED = FleetState


class Fleet(VectorEnv[Any, Any, Array]):
    """A `gymnasium.vector.VectorEnv` over groups of environments on workers. Made by `envfleet.make`."""

    def __init__(
        self,
        supervisor: Supervisor,
        hellos: list[Hello],
        *,
        seed: int,
        autoreset: AutoresetMode,
        copy: bool,
        backend: str,
        routine: WorkerRoutine | None = None,
        observation_mode: ObservationMode = "same",
    ) -> None:
        self._supervisor = supervisor
        self.backend, self.workers, self.seed = backend, len(supervisor.specs), seed
        specs = sorted((g for spec in supervisor.specs for g in spec.groups), key=lambda group: group.index)
        self.groups = [range(spec.start, spec.stop) for spec in specs]
        self.num_envs = self.groups[-1].stop
        self.observation_mode, self.autoreset_mode = observation_mode, autoreset
        self._describe(hellos, autoreset)
        single = (self.single_observation_space, self.single_action_space)
        extra = () if routine is None else routine.arrays(*single, self.groups)
        numbers = len(supervisor.specs[0].settings.log_info)
        arrays = supervisor.attach(FleetShape(self.num_envs, self.workers, len(specs), *single, extra, numbers))
        self.routine_arrays = arrays.extra  # arrays of the workers' routine
        self._exchange = Exchange(supervisor, arrays, self.groups, copy=copy, same_step=self._same_step)
        self._seeds: list[int] = [seed + i for i in range(self.num_envs)]
        self._tasks: list[Any] = [None] * self.num_envs
        self._new_tasks = False
        self._restarts_by_env = [0] * self.num_envs
        self._state = NEW
        self._resetting: tuple[int, Array | None] = (0, None)  # slot and mask of the pending reset
        recovery = weakref.WeakMethod(self._recovery)  # the supervisor must not keep the fleet alive
        supervisor.recovery = lambda group: recovery()(group)  # type: ignore[misc]
        self._finalizer = weakref.finalize(self, supervisor.stop, CLOSE_SECONDS)

    def _describe(self, hellos: list[Hello], autoreset: AutoresetMode) -> None:
        described = {
            group.index: description
            for spec, hello in zip(self._supervisor.specs, hellos, strict=True)
            for group, description in zip(spec.groups, hello.groups, strict=True)
        }
        groups = [described[index] for index in sorted(described)]
        first = groups[0]
        self._capabilities = first.capabilities
        self.metadata = {**first.metadata, "autoreset_mode": autoreset}
        self.render_mode, self.spec = first.render_mode, first.spec
        self._same_step = autoreset is AutoresetMode.SAME_STEP
        self._never_resets = autoreset is AutoresetMode.DISABLED
        self.single_observation_space, self.observation_space = observation_spaces(
            [space for group in groups for space in group.observation_spaces], self.observation_mode
        )
        self.single_action_space = first.action_spaces[0]
        for other in (space for group in groups for space in group.action_spaces):
            if other != self.single_action_space:
                raise SpacesError(
                    f"environments have different action spaces: {self.single_action_space} and {other}",
                    hint="give all environments of a fleet the same action space",
                )
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    # --- the protocol

    def _expect(self, call: str, *allowed: FleetState) -> None:
        if self._state not in allowed:
            raise misplaced_call(call, self._state)

    def _guard(self, error: EnvfleetError) -> EnvfleetError:
        """Set the fleet's state after an error, and return the error with more context if there is any."""
        if isinstance(error, EnvHungError):
            self._state = BROKEN
            return self._with_context(error)
        if isinstance(error, WorkerError | OutOfTimeError):
            self._state = BROKEN
        elif isinstance(error, EnvError):
            self._crew_idle()
            self._state = NEW
        return error

    def _with_context(self, error: EnvHungError) -> EnvHungError:
        """Add the seed, task and action, which only the fleet knows, to the error of a hung environment."""
        env, action = error.context.env_index, None
        if error.context.operation == "step" and not self._exchange.object_actions:
            action = self._exchange.reader.action_of(env)
        context = EnvContext(env, error.context.operation, self._seeds[env], self._tasks[env], None, action)
        return EnvHungError(error.message, context, original=error.original, hint=error.hint)

    def _crew_idle(self) -> None:
        """Let all pending commands finish and drop their results: after an error only a reset makes sense."""
        while self._supervisor.posted:
            self._supervisor.wait_all()
            try:
                self._supervisor.gather(list(self._supervisor.posted))
            except EnvError:
                continue

    # --- reset and step

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
        self.reset_async(seed, options, tasks)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        tasks: Sequence[Any] | None = None,
    ) -> None:
        """Begin a reset, with the arguments of `reset`; `reset_wait` returns its results."""
        self._expect("reset()", NEW, READY)
        seeds = self._seeds_for(seed)
        mask = _checked_mask(options, self.num_envs)
        if options is not None:
            options = {key: value for key, value in options.items() if key != "reset_mask"} or None
        if tasks is not None:
            self.set_tasks(tasks)
        slot = self._exchange.next_slot()
        try:
            for index, group in enumerate(self.groups):
                part = slice(group.start, group.stop)
                self._exchange.tell_columns(index)
                group_tasks = self._tasks[part] if self._new_tasks else None
                group_mask = None if mask is None else mask[part].tolist()
                self._supervisor.post(index, slot, Reset(seeds[part], options, group_tasks, group_mask))
        except EnvfleetError as error:
            raise self._guard(error) from None
        self._resetting, self._state = (slot, mask), RESETTING

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the results of the reset begun by `reset_async`; `timeout` as in `step_wait`."""
        self._expect("reset_wait()", RESETTING)
        try:
            self._wait_all("reset_wait()", timeout)
            answers = self._supervisor.gather(self._exchange.all.groups)
        except EnvfleetError as error:
            raise self._guard(error) from None
        slot, mask = self._resetting
        self._exchange.slots, self._new_tasks = [slot] * len(self.groups), False
        self._exchange.ended[...] = False if mask is None else self._exchange.ended & ~mask
        self._state = READY
        return self._exchange.reader.observations(slot, self._exchange.all, answers), self._exchange.infos(
            self._exchange.all, answers
        )

    def _wait_all(self, call: str, timeout: float | None) -> None:
        if not self._supervisor.wait_all(timeout):
            raise WaitTimeoutError(
                f"{call} has timed out after {timeout:g} s",
                hint=f"the environments go on: call {call} again, or close the fleet",
            )

    def set_tasks(self, tasks: Sequence[Any]) -> None:
        """Set the task of every environment, from its next reset on."""
        if Capability.TASKS not in self._capabilities:
            raise unsupported(Capability.TASKS)
        if len(tasks) != self.num_envs:
            raise SettingsError(f"tasks has {len(tasks)} entries, expected one per environment: {self.num_envs}")
        self._tasks = list(tasks)
        self._new_tasks = True

    def _seeds_for(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return list(self._seeds) if self._state is NEW else [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            self.seed = int(seed)
            seeds: list[int | None] = [self.seed + i for i in range(self.num_envs)]
        else:
            seeds = [None if s is None else int(s) for s in seed]
        if len(seeds) != self.num_envs:
            raise SettingsError(f"seed has {len(seeds)} entries, expected one per environment: {self.num_envs}")
        self._seeds = [old if new is None else new for old, new in zip(self._seeds, seeds, strict=True)]
        return seeds

    def step(self, actions: Any) -> StepResult:
        """Step every environment once."""
        inline = self._supervisor.step_inline
        if inline is None or self._exchange.object_actions:
            self.step_async(actions)
            return self.step_wait()
        if self._state is not READY:
            self._expect("step()", READY)
        if self._never_resets:
            self._refuse_ended(self._exchange.all)
        try:
            return self._exchange.step_inline(actions, inline)
        except EnvfleetError as error:
            raise self._guard(error) from None

    def step_async(self, actions: Any) -> None:
        """Begin a step of every environment; `step_wait` returns its results."""
        self._expect("step()", READY)
        exchange = self._exchange
        if self._never_resets:
            self._refuse_ended(exchange.all)
        exchange.post(actions, exchange.all, exchange.next_slot())
        self._state = STEPPING

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Return the results of the step begun by `step_async`.

        After `timeout` seconds it raises a TimeoutError and can be called again. Environments in the caller's own
        thread (sequential backend) step inside this call, which `timeout` cannot interrupt.
        """
        self._expect("step_wait()", STEPPING)
        try:
            self._wait_all("step_wait()", timeout)
            answers = self._supervisor.gather_lockstep()
        except EnvfleetError as error:
            raise self._guard(error) from None
        self._state = READY
        return self._exchange.results(self._exchange.all, answers)

    def send(self, actions: Any, env_ids: Sequence[int] | Array) -> None:
        """Begin a step of some environments, with one action each; they must form whole groups."""
        self._expect("send()", READY, STREAMING)
        rows = self._exchange.rows_of(env_ids)
        if self._never_resets:
            self._refuse_ended(rows)
        for group in rows.groups:
            if group in self._supervisor.posted:
                raise ProtocolError(
                    f"environments {self.groups[group].start} to {self.groups[group].stop - 1} were sent actions "
                    "and have not answered yet",
                    hint="take their results with recv() first",
                )
        self._exchange.post(actions, rows, None)
        self._state = STREAMING

    def recv(self, min_envs: int | None = None) -> StepResult:
        """Return the results of the groups that are ready first, with at least `min_envs` environments.

        `infos["env_id"]` says which environments the rows belong to. Without `min_envs`, one group is enough.
        """
        self._expect("recv()", STREAMING)
        supervisor, sizes = self._supervisor, self._exchange.sizes
        wanted = 1 if min_envs is None else min_envs
        under_way = sum([sizes[group] for group in supervisor.posted])
        if not 1 <= wanted <= under_way:
            raise SettingsError(
                f"recv(min_envs={min_envs}) while {under_way} environments are under way",
                hint="ask for at least 1 and at most as many as were sent actions",
            )
        try:
            rows = self._exchange.rows_of_groups(supervisor.wait_first(wanted, sizes))
            answers = supervisor.gather(rows.groups)
        except EnvfleetError as error:
            raise self._guard(error) from None
        if not supervisor.posted:
            self._state = READY
        result = self._exchange.results(rows, answers)
        result[4]["env_id"] = rows.env_ids.copy()
        return result

    def run_async(self, argument: Any) -> None:
        """Start the fleet's routine in every group with this argument; `run_wait` waits for it."""
        self._expect("run_async()", READY)
        for group in range(len(self.groups)):
            self._supervisor.post(group, self._exchange.slots[group], RunRoutine(argument))
        self._state = RUNNING

    def run_wait(self, steps: int, waiting: Callable[[], None] | None = None, until: float = math.inf) -> None:
        """Wait until every group has run its routine, which takes `steps` steps of each environment.

        `waiting` is called a few times per second in the meantime, except by a sequential fleet, which does the work
        itself. Raise OutOfTimeError if the routine is still running shortly after the time `until` (`time.monotonic`);
        the fleet can then only be closed.
        """
        self._expect("run_wait()", RUNNING)
        try:
            self._supervisor.wait_run(waiting, until)
            slots = self._supervisor.gather(self._exchange.all.groups).messages
        except EnvfleetError as error:
            raise self._guard(error) from None
        self._exchange.slots = [slots[group] for group in range(len(self.groups))]
        self._exchange.keeper.steps += steps * self.num_envs
        self._state = READY

    def newest_observations(self) -> dict[Path, Array]:
        """Observations to act on, by leaf, as views that the step after the next one overwrites."""
        slot = 1 - self._exchange.next_slot()  # brings all groups to one slot
        return self._supervisor.arrays.observations[slot]

    @property
    def last_step(self) -> FleetArrays:
        """The fleet's arrays with the data of the last step, as views: lost steps, final observations, and more."""
        return self._supervisor.arrays

    def _refuse_ended(self, rows: Rows) -> None:
        if rows.take(self._exchange.ended).any():
            ended = [int(i) for i in rows.env_ids if self._exchange.ended[i]]
            raise ProtocolError(
                f"environments {ended} have ended and autoreset is disabled",
                hint='reset them: reset(options={"reset_mask": terminations | truncations})',
            )

    def _recovery(self, group: int) -> Recover:
        """The request that lets a group of a restarted worker recover: new seeds, tasks, and ended episodes."""
        rows = self.groups[group]
        for i in rows:
            self._restarts_by_env[i] += 1
        seeds = [derive_seed(self._seeds[i], 0, self._restarts_by_env[i]) for i in rows]
        ended = [False if self._same_step else bool(self._exchange.ended[i]) for i in rows]
        return Recover(seeds, self._tasks[rows.start : rows.stop], ended)

    # --- everything else

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Attribute `name` of every environment; if it is callable, the result of calling it."""
        return self.call_at(None, name, *args, **kwargs)

    def call_at(self, env_ids: Sequence[int] | None, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As `call`, for the given environments only; results are in the order of the environments."""
        self._expect(f"call({name!r})", NEW, READY)
        only = None if env_ids is None else {int(env) for env in env_ids}
        return tuple(value for part in self._ask_all(Call(name, args, kwargs, only)) for value in part)

    def _ask_all(self, request: Request, progress: Callable[[int, int], None] | None = None) -> list[Any]:
        """Replies of all groups to a request; a failure here does not end the episode, so no reset is needed."""
        groups = range(len(self.groups))
        replies = self._supervisor.ask(dict.fromkeys(groups, request), progress=progress)
        return [replies.get(group) for group in groups]

    def apply(self, function: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Call `function(env)` for every environment, in its worker, and return the results.

        The function is sent to the workers, and its results are sent back; a generator's items come as a list.
        The time limit is that of a reset; for a generator it applies to each item.
        """
        self._expect("apply()", NEW, READY)
        return tuple(value for part in self._ask_all(Apply(function)) for value in part)

    def rebuild(self) -> None:
        """Close all environments and build them again; they must be reset afterwards."""
        self._expect("rebuild()", NEW, READY)
        self._ask_all(Rebuild())
        self._state = NEW

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Attribute `name` of every environment."""
        return self.call(name)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seed of every environment's generator, as in Gymnasium's vector environments."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read-only, as in Gymnasium's vector environments
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Generator of every environment; a copy if the environment runs in another process."""
        return self.get_attr("np_random")

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environment objects; only available with the sequential backend."""
        workers = None if self._state is CLOSED else self._supervisor.backend.local_workers()
        if workers is None:
            where = "closed" if self._state is CLOSED else f"of the backend {self.backend!r}"
            raise AttributeError(
                f"this fleet is {where}: envs is only available if the environments run in the caller's thread\n"
                "hint: backend='sequential', or call(), get_attr(), set_attr() and apply(), which work everywhere"
            )
        return [env for worker in workers for group in worker.groups for env in group.envs()]

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, any other value is for all."""
        self._expect(f"set_attr({name!r})", NEW, READY)
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise SettingsError(f"set_attr got {len(values)} values, expected one per environment: {self.num_envs}")
        requests: dict[int, Request] = {
            index: SetAttr(name, values[group.start : group.stop]) for index, group in enumerate(self.groups)
        }
        self._supervisor.ask(requests)

    def render(self) -> tuple[Any, ...]:
        """The frame of every environment."""
        return self.call("render")

    def statistics(self) -> FleetStatistics:
        """Steps, episodes and workers since the fleet was made."""
        self._expect("statistics()", *(state for state in FleetState if state is not CLOSED))
        return self._exchange.keeper.summary(self._supervisor)

    def state(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """State of all simulators, their episodes and last observations as plain data, for `restore`.

        `progress` is called with the number of saved groups and the total number of groups.
        """
        self._expect("state()", READY)
        slot = 1 - self._exchange.next_slot()  # brings all groups to one slot
        captured = self._ask_all(Capture(), progress)
        return {
            "version": 1,
            "n_envs": self.num_envs,
            "seed": self.seed,
            "seeds": list(self._seeds),
            "tasks": list(self._tasks),
            "restarts": list(self._restarts_by_env),
            "ended": self._exchange.ended.copy(),
            "observations": self._exchange.reader.save(slot),
            "environments": [saved for part in captured for saved in part],
        }

    def restore(self, state: dict[str, Any]) -> Any:
        """Continue from a captured state, on any backend; return the observations to act on."""
        self._expect("restore()", NEW, READY)
        if state.get("version") != 1 or state.get("n_envs") != self.num_envs:
            raise StateError(
                f"the state is of version {state.get('version')} and {state.get('n_envs')} environments, "
                f"expected version 1 and {self.num_envs}",
                hint="make the fleet with the same environment and n_envs as the one that was saved",
            )
        self.seed, self._seeds, self._tasks = state["seed"], list(state["seeds"]), list(state["tasks"])
        self._restarts_by_env = list(state["restarts"])
        self._exchange.ended[...] = state["ended"]
        self._exchange.reader.load(0, state["observations"])
        self._exchange.slots = [0] * len(self.groups)
        saved = state["environments"]
        requests: dict[int, Request] = {
            index: Restore(saved[group.start : group.stop]) for index, group in enumerate(self.groups)
        }
        try:
            self._supervisor.ask(requests, slot=0)
        except EnvfleetError as error:
            raise self._guard(error) from None
        self._state = READY
        return self._exchange.reader.observations(0, self._exchange.all, Answers())

    def close_extras(self, **kwargs: Any) -> None:
        """End all workers and free their resources."""
        seconds = BROKEN_SECONDS if self._state is BROKEN else CLOSE_SECONDS
        self._state = CLOSED
        if self._finalizer.detach() is not None:
            self._supervisor.stop(seconds)
        del self._exchange

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else "environments"
        return f"Fleet({name}, num_envs={self.num_envs}, backend={self.backend!r}, workers={self.workers})"


def _checked_mask(options: dict[str, Any] | None, n_envs: int) -> Array | None:
    if options is None or "reset_mask" not in options:
        return None
    mask, name = options["reset_mask"], "`options['reset_mask']`"  # same messages as Gymnasium's
    if not isinstance(mask, np.ndarray):
        raise ResetMaskError(f"{name} must be a numpy array, got {type(mask)}")
    if mask.shape != (n_envs,):
        raise ResetMaskError(f"{name} must have shape `({n_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise ResetMaskError(f"{name} must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ResetMaskError(f"{name} must contain a boolean array with at least one True value, got reset_mask={mask}")
    return mask
