"""Runs all examinations of one environment, in the order in which a fleet would use it.

Import, build, inspect the interface, play, replay with the same seed, play next to a second instance, play tasks,
close. After a problem the examination continues if it can, so that one problem does not hide the next. Nothing here
protects from a crash or a hang: that is the job of `isolation`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from gymnasium import spaces

from envfleet.capabilities import HasTasks
from envfleet.conformance.budget import Budget
from envfleet.conformance.episodes import Calls, Player, check_end, check_self_reset
from envfleet.conformance.given import NamedEnv
from envfleet.conformance.interface import check_interface, check_picklable, check_rendering
from envfleet.conformance.probe import Probe
from envfleet.conformance.report import RAISED, CheckStopped, Findings
from envfleet.conformance.seeding import check_independent, check_reproducible, check_seed_matters
from envfleet.conformance.tasks import check_tasks
from envfleet.errors import MissingExtraError, SettingsError, StateError
from envfleet.fleet.random_actions import RandomAgent
from envfleet.fleet.state import capture
from envfleet.wording import counted, duration

__all__ = ["STARTS_FRESH", "Doing", "Examination"]

T = TypeVar("T")

STARTS_FRESH = "resume starts fresh episodes"
_FIRST_SHARE = 1 / 8  # of the time is for the first play; all plays together take about eight times its steps
_SECONDS_TO_AN_END = 5.0


@dataclass(frozen=True)
class Doing:
    """The next call of the environment, and the examination it is part of."""

    examination: str
    call: str


class Examination:
    """One environment under examination, built by `factory` or given as `instance`."""

    def __init__(
        self,
        factory: Callable[[], Any] | None,
        instance: Any,
        *,
        steps: int,
        seed: int,
        budget: Budget,
        findings: Findings,
    ) -> None:
        self._factory, self._instance = factory, instance
        self._steps, self._seed, self._budget = steps, seed, budget
        self.findings = findings
        self._built: list[Probe] = []

    def run(self) -> Iterator[Doing]:
        """Examine as much as there is time for; yield each call before it is made."""
        try:
            yield from self._examine()
        except CheckStopped:
            pass
        while self._built:
            yield Doing("closing", "close")
            self._built.pop(0).close()

    def close(self) -> None:
        """Close the environments that an interrupted examination left open."""
        while self._built:
            try:
                self._built.pop().env.close()
            except RAISED:  # irrelevant by now
                pass

    # --- the examinations

    def _examine(self) -> Iterator[Doing]:
        if self._factory is None:
            probe = Probe(self._instance, self.findings)
        else:
            if isinstance(self._factory, NamedEnv):
                yield Doing("importing", f"importing {self._factory.module}")
                self._factory = self._imported(self._factory)
            probe = yield from _named("building", self._build())
        yield Doing("the interface", "a look at its spaces")
        check_interface(probe)
        self._keep_spaces(probe.env)
        first = yield from self._play(probe)
        yield Doing("the state", "giving its state")
        self._look_for_state(probe)
        if "seed" in probe.reset_arguments:
            yield from self._play_again(probe, first)
        if isinstance(probe.base, HasTasks):
            yield from self._if_time("tasks", lambda part: check_tasks(probe, self._seed, part))
        # Last, because it plays further than the others and may reach new problems.
        seconds = min(_SECONDS_TO_AN_END, self._budget.left / 2)
        yield from self._if_time(
            "whether episodes end", lambda part: check_end(probe, self._seed, first, part), seconds
        )

    def _play_again(self, probe: Probe, first: Player) -> Iterator[Doing]:
        seed = self._seed
        fresh: Probe | None = None

        def again(part: Budget) -> Calls[bool]:
            nonlocal fresh
            if self._factory is not None:
                fresh = yield from self._build()
            return (yield from check_reproducible(probe, fresh, seed, first, part))

        def beside(part: Budget) -> Calls[None]:
            assert fresh is not None, "built when the same seed was played again, for which there was time"
            yield from check_independent(probe, fresh, seed, first, part)

        yield from self._if_time(
            "a step after an episode's end", lambda part: check_self_reset(probe, seed, first, part)
        )
        equal = yield from self._if_time("the same seed again", again)
        if equal is False:
            return  # the remaining examinations compare with the first play too
        yield from self._if_time("other seeds", lambda part: check_seed_matters(probe, seed, first, part))
        if self._factory is not None:
            yield from self._if_time("a second instance beside the first", beside)

    def _if_time(
        self, examination: str, work: Callable[[Budget], Calls[T]], seconds: float = float("inf")
    ) -> Generator[Doing, None, T | None]:
        """Run an examination and return its result, or None if no time is left; the report lists what was skipped."""
        part = self._budget.part(seconds)
        if not part.allows_more():
            self.findings.skip(examination)
            return None
        found = yield from _named(examination, work(part))
        if part.refused:
            self.findings.skip(f"{examination} (cut short)")
        return found

    # --- their parts

    def _imported(self, env: NamedEnv) -> Callable[[], Any]:
        try:
            factory = env.imported()
        except (SettingsError, MissingExtraError) as error:
            self.findings.refusal, self.findings.changed = error, True
            raise CheckStopped from error
        except RAISED as error:
            self.findings.raised(f"importing {env.module}", error)
            raise CheckStopped from error
        check_picklable(factory, self.findings)
        return factory

    def _build(self) -> Calls[Probe]:
        assert self._factory is not None
        yield "building the environment"
        started = time.perf_counter()
        try:
            env = self._factory()
        except RAISED as error:
            self.findings.raised("building the environment", error)
            raise CheckStopped from error
        if not self._built:
            self.findings.note(f"building it takes {duration(time.perf_counter() - started)}")
        if env is None:
            self.findings.error("the factory returned None, expected an environment", "return it")
            raise CheckStopped
        probe = Probe(env, self.findings)
        if self._built:
            probe.reset_arguments = self._built[0].reset_arguments
        self._built.append(probe)
        return probe

    def _keep_spaces(self, env: Any) -> None:
        found = (env.observation_space, env.action_space)
        if all(isinstance(space, spaces.Space) for space in found):
            self.findings.spaces = copy.deepcopy(found)
            self.findings.changed = True

    def _play(self, probe: Probe) -> Generator[Doing, None, Player]:
        """Play the reference that later plays are compared with; at least one step, whatever the time."""
        part = self._budget.part(self._budget.seconds * _FIRST_SHARE)
        first = Player(probe, RandomAgent(probe.env.action_space, self._seed))
        yield from _named("random play", first.reset(self._seed))
        yield Doing("rendering", "render")
        check_rendering(probe)
        while not first.actions or (len(first.actions) < self._steps and part.allows_more()):
            yield from _named("random play", first.advance())
        findings = self.findings
        findings.steps, findings.seconds_per_step = probe.steps, probe.step_seconds / probe.steps
        findings.note(
            f"one step takes {duration(findings.seconds_per_step)} (mean of {counted(probe.steps, 'step')}; "
            f"episodes ended: {first.ends})"
        )
        if part.refused:
            findings.skip(f"all but {probe.steps} of the {self._steps} steps of random play")
        elif first.ended:
            # The comparison includes the reset after an episode's end.
            yield from _named("random play", first.advance())
        return first

    def _look_for_state(self, probe: Probe) -> None:
        """Find out whether the environment can save its state as plain data; this does not prove it can restore it."""
        try:
            capture(probe.env)
        except StateError as error:
            reason = str(error).partition("\nhint:")[0]
            self.findings.resumable = False
            self.findings.note(f"{STARTS_FRESH}: {reason}{f'; {error.hint}' if error.hint else ''}")
        except RAISED as error:  # a user's get_state() may raise anything
            self.findings.raised("giving its state", error)
        else:
            self.findings.has_state = self.findings.changed = True


def _named(examination: str, calls: Calls[T]) -> Generator[Doing, None, T]:
    """Yield each call together with the examination it is part of."""
    while True:
        try:
            call = next(calls)
        except StopIteration as end:
            result: T = end.value
            return result
        yield Doing(examination, call)
