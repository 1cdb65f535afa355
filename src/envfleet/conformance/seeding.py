"""Checks that an environment is reproducible: with the same seed, in another instance, next to another instance."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from envfleet.conformance.budget import Budget
from envfleet.conformance.episodes import Calls, Player, differing_info, first_difference, play
from envfleet.conformance.probe import Probe
from envfleet.conformance.values import fingerprint
from envfleet.fleet.random_actions import RandomAgent

__all__ = ["GlobalGenerators", "check_independent", "check_reproducible", "check_seed_matters"]

_OWN_GENERATOR = "draw every random number from self.np_random, after `super().reset(seed=seed)` in reset"
_SEED_STEPS = 50  # enough to see an effect of the seed


class GlobalGenerators:
    """A snapshot of the global random generators of a process, to detect draws from them."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - users draw from it
        self._torch = sys.modules["torch"].get_rng_state() if "torch" in sys.modules else None

    def moved(self) -> list[str]:
        """Names of the generators that were drawn from since the snapshot."""
        now = GlobalGenerators()
        names = [
            "random" if now._python != self._python else "",
            "numpy.random" if fingerprint(now._numpy) != fingerprint(self._numpy) else "",
            "torch" if self._torch is not None and bool((now._torch != self._torch).any()) else "",
        ]
        return [name for name in names if name]

    def put_back(self) -> None:
        """Restore the generators, so that a check has no side effect on its caller."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002 - as above
        if self._torch is not None:
            sys.modules["torch"].set_rng_state(self._torch)


def check_reproducible(probe: Probe, fresh: Probe | None, seed: int, first: Player, budget: Budget) -> Calls[bool]:
    """Replay the first episodes in the same instance and in a fresh one; return whether they are equal."""
    generators, steps = GlobalGenerators(), len(first.actions)
    again = yield from play(probe, seed, action_seed=seed, steps=steps, budget=budget)
    moved = generators.moved()
    again_differs = first_difference(first, again)
    elsewhere_differs = None
    if fresh is not None:
        elsewhere = yield from play(fresh, seed, action_seed=seed, steps=steps, budget=budget)
        elsewhere_differs = first_difference(first, elsewhere)
    if again_differs is None and elsewhere_differs is None:
        _check_infos(probe, first, again)
        return True
    what, fix = _cause(probe, seed, again_differs, elsewhere_differs, moved, alone=fresh is None)
    if getattr(getattr(probe.env, "spec", None), "nondeterministic", False):
        probe.findings.warning(f"{what}; its spec says that it is nondeterministic", fix)
    else:
        probe.findings.error(what, fix)
    return False


def check_seed_matters(probe: Probe, seed: int, first: Player, budget: Budget) -> Calls[None]:
    """Warn if the environment provably draws random numbers that do not depend on its seed."""
    generators, steps = [], min(len(first.actions), _SEED_STEPS)
    for other_seed in (seed + 1, seed + 2):
        other = yield from play(probe, other_seed, action_seed=seed, steps=steps, budget=budget)
        if first_difference(first, other) is not None or budget.refused:
            return
        generators.append(_own_generators(probe))
    # Equal episodes are no proof: many environments are deterministic, or draw numbers that have no effect. The
    # proof is a generator that every reset rebuilds and that ends in the same state whatever the seed.
    before, after = generators
    rebuilt = [name for name in before.keys() & after.keys() if before[name] is not after[name]]
    if any(_state(before[name]) == _state(after[name]) for name in rebuilt):
        probe.findings.warning(
            f"the seeds {seed}, {seed + 1} and {seed + 2} give the same random numbers: reset does not use its seed",
            "pass the seed on (`super().reset(seed=seed)`), and draw from self.np_random",
        )


def check_independent(probe: Probe, other: Probe, seed: int, first: Player, budget: Budget) -> Calls[None]:
    """Replay while a second instance is stepped in turn; the second must not affect the first."""
    generators = GlobalGenerators()
    watched = Player(probe, RandomAgent(probe.env.action_space, seed))
    neighbour = Player(other, RandomAgent(other.env.action_space, seed + 1))
    yield from watched.reset(seed)
    yield from neighbour.reset(seed + 1)
    for _ in first.actions:
        if not budget.allows_more():
            break
        yield from watched.advance()
        yield from neighbour.advance()
    difference = first_difference(first, watched)
    if difference is None:
        return
    moved = generators.moved()
    what = f"a second instance changes the first: {difference} differs when another is stepped in turn"
    if moved:
        drawn = " and ".join(moved)
        fix = f"both draw from the shared generator of {drawn}, even if reset seeds it: use self.np_random"
        probe.findings.error(what, fix)
    else:
        fix = "keep all state in the instance: no mutable class attributes, module globals or shared files"
        probe.findings.error(what, fix)


def _cause(
    probe: Probe, seed: int, again: str | None, elsewhere: str | None, moved: list[str], *, alone: bool
) -> tuple[str, str]:
    """Return the problem and the fix for episodes that differ, judging by where they differ."""
    if again is not None and elsewhere is None and not alone:
        what = f"reset leaves state behind: {again} differs when the same instance plays the same seed again"
        return what, "set in reset every attribute that step changes, generators and counters among them"
    if again is None:
        what = f"two instances differ with the same seed: {elsewhere} differs"
        return what, "draw nothing random in the constructor: do it in reset, from self.np_random"
    what = f"the same seed gives another episode: {again} differs when reset(seed={seed}) is played again"
    if moved:
        drawn = " and ".join(moved)
        return what, f"the environment draws from the global generator of {drawn}: use self.np_random instead"
    if getattr(probe.base, "_np_random_seed", None) is None:
        return what, f"reset does not pass its seed on: {_OWN_GENERATOR}"
    if alone:
        return what, f"{_OWN_GENERATOR}; and set in reset every attribute that step changes"
    return what, f"{_OWN_GENERATOR}; look for generators of its own, for time and for the order of sets"


def _check_infos(probe: Probe, first: Player, again: Player) -> None:
    difference = differing_info(first, again)
    if difference is not None:
        probe.findings.warning(
            f"{difference} differs when the same seed is played again",
            "if it is a time or a path, leave it; otherwise draw it from self.np_random too",
        )


def _own_generators(probe: Probe) -> dict[str, Any]:
    """The random generators among the environment's attributes."""
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    attributes: dict[str, Any] = getattr(probe.base, "__dict__", {})
    return {name: value for name, value in attributes.items() if isinstance(value, kinds)}


def _state(generator: Any) -> bytes:
    if isinstance(generator, random.Random):
        return fingerprint(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return fingerprint(generator.get_state(legacy=False))
    return fingerprint(generator.bit_generator.state)
