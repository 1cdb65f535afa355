"""All checks on one environment, in the order of a fleet's life.

Build, look at the interface, play, play again with the same seed, play beside a second instance, restore a state,
close. One broken thing does not hide the next one while there is a way on.
"""

from __future__ import annotations

import difflib
import functools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from envfleet.conformance.episodes import Player, check_end, check_self_reset, random_actions
from envfleet.conformance.exactness import COVER_ALL, why_inexact
from envfleet.conformance.interface import check_interface, check_picklable, check_rendering
from envfleet.conformance.probe import Probe
from envfleet.conformance.report import CheckReport, CheckStopped, Findings, duration
from envfleet.conformance.seeding import (
    GlobalGenerators,
    check_independent,
    check_reproducible,
    check_seed_matters,
)
from envfleet.errors import SettingsError, StateError
from envfleet.extras import import_provider
from envfleet.fleet.state import capture

__all__ = ["check"]


def check(
    env: str | Callable[..., Any] | gymnasium.Env[Any, Any],
    *,
    steps: int = 200,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> CheckReport:
    """A report on the environment: every problem with its fix.

    `env` is a Gymnasium id, a callable that builds an environment, or an environment. A given environment is
    played and left open; what needs a second instance or a factory is then not looked at, and a note says so.
    """
    if steps < 1:
        raise SettingsError(f"steps is {steps}, expected at least 1")
    factory = _factory(env, dict(env_kwargs or {}))
    examination = _Examination(_name(env), factory, None if factory else env, steps, seed)
    generators = GlobalGenerators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium warns of much that the report names with its fix
        try:
            examination.run()
        except CheckStopped:
            pass
        finally:
            examination.close()
            generators.put_back()
    return examination.report()


class _Examination:
    """One run of all checks on one environment."""

    def __init__(self, name: str, factory: Callable[[], Any] | None, instance: Any, steps: int, seed: int) -> None:
        self._name, self._steps, self._seed = name, steps, seed
        self._factory, self._instance = factory, instance
        self._findings = Findings()
        self._built: list[Probe] = []
        self._steps_timed = 0
        self._seconds_per_step: float | None = None
        self._resumable: bool | None = None

    def run(self) -> None:
        """Look at everything, in order; raises `CheckStopped` where there is no way on."""
        if self._factory is not None:
            check_picklable(self._factory, self._findings)
            probe = self._build()
        else:
            probe = Probe(self._instance, self._findings)
            self._findings.notes.append(
                "an environment was given, not what builds it: nothing was said about second instances, "
                "close and worker processes"
            )
        check_interface(probe)
        first = self._play(probe)
        has_state = self._has_state(probe)
        if "seed" in probe.reset_arguments:
            self._play_again(probe, first)
        check_end(probe, self._seed, first)  # last, because it goes where the others have not been
        if has_state:
            self._note_resume()

    def _play_again(self, probe: Probe, first: Player) -> None:
        check_self_reset(probe, self._seed, first)
        fresh = None if self._factory is None else self._build()
        if check_reproducible(probe, fresh, self._seed, first, self._steps):
            check_seed_matters(probe, self._seed, first, self._steps)
            if fresh is not None:
                check_independent(probe, fresh, self._seed, first, self._steps)

    def close(self) -> None:
        """Close what was built, and look at how it takes it."""
        for probe in self._built:
            probe.close()

    def report(self) -> CheckReport:
        """Everything that was found."""
        return CheckReport(
            env=self._name,
            seed=self._seed,
            steps=self._steps_timed,
            seconds_per_step=self._seconds_per_step,
            resumable=self._resumable,
            problems=tuple(self._findings.problems),
            notes=tuple(self._findings.notes),
        )

    def _build(self) -> Probe:
        assert self._factory is not None
        started = time.perf_counter()
        try:
            env = self._factory()
        except Exception as error:
            self._findings.raised("building the environment", error)
            raise CheckStopped from error
        if not self._built:
            self._findings.notes.append(f"building it takes {duration(time.perf_counter() - started)}")
        if env is None:
            self._findings.error("the factory returned None, expected an environment", "return it")
            raise CheckStopped
        probe = Probe(env, self._findings)
        if self._built:
            probe.reset_arguments = self._built[0].reset_arguments
        self._built.append(probe)
        return probe

    def _play(self, probe: Probe) -> Player:
        first = Player(probe, self._seed, random_actions(probe.env.action_space, self._seed))
        check_rendering(probe)
        for _ in range(self._steps):
            first.advance()
        self._steps_timed, self._seconds_per_step = probe.steps, probe.step_seconds / probe.steps
        self._findings.notes.append(
            f"one step takes {duration(self._seconds_per_step)} (mean of {probe.steps} steps; "
            f"episodes ended: {first.ends})"
        )
        if first.ended:
            first.advance()  # what the reset after an end gives belongs to the comparison
        return first

    def _has_state(self, probe: Probe) -> bool:
        """Whether it gives its state as plain data, which is no proof yet that it can take it back."""
        try:
            capture(probe.env)
        except StateError as error:
            self._starts_fresh(str(error).partition("\nhint:")[0], error.hint)
        except Exception as error:  # noqa: BLE001 - a get_state of the user's may raise anything
            self._findings.raised("giving its state", error)
        else:
            return True
        return False

    def _note_resume(self) -> None:
        """Say that resume is exact only once a state was restored and continued to the same bytes."""
        notes = self._findings.notes
        if self._factory is None:
            notes.append("it gives its state as plain data; whether resume is exact was not tried")
        elif any(problem.severity == "error" for problem in self._findings.problems):
            notes.append("whether resume is exact was not tried: mend the errors first")
        elif (reason := why_inexact(self._factory, seed=self._seed)) is not None:
            self._starts_fresh(reason, COVER_ALL)
        else:
            self._resumable = True
            notes.append("resume is exact: a state was restored in a fresh process and continued with the same bytes")

    def _starts_fresh(self, reason: str, advice: str | None) -> None:
        self._resumable = False
        self._findings.notes.append(f"resume starts fresh episodes: {reason}{f'; {advice}' if advice else ''}")


def _factory(env: Any, env_kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    if isinstance(env, str):
        _refuse_unknown_id(env)
        # Gymnasium's own passive checker would raise the first problem; ours names them all.
        return functools.partial(gymnasium.make, env, disable_env_checker=True, **env_kwargs)
    if callable(env) and not isinstance(env, gymnasium.Env):
        return functools.partial(env, **env_kwargs)
    if env_kwargs:
        raise SettingsError(
            f"env_kwargs {sorted(env_kwargs)} came with an environment that is already built",
            hint="give the callable that builds it",
        )
    return None


def _refuse_unknown_id(env: str) -> None:
    import_provider(env)
    try:
        gymnasium.spec(env)
    except (gymnasium.error.Error, ImportError) as error:
        unheard_of = isinstance(error, gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound)
        why = "" if unheard_of else f": {error}"
        near = difflib.get_close_matches(env, gymnasium.registry, n=3)
        hint = f"nearest: {', '.join(near)}" if near else f"name the module that registers it: module:{env}"
        raise SettingsError(f"{env!r} is not a registered environment{why}", hint=hint) from error


def _name(env: Any) -> str:
    if isinstance(env, str):
        return env
    if isinstance(env, gymnasium.Env):
        return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return str(getattr(env, "__qualname__", None) or type(env).__name__)
