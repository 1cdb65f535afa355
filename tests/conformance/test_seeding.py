"""The same seed gives the same episode: in one instance, in another, and beside another."""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest

from envfleet.conformance.values import fingerprint
from tests.conformance.worlds import Walk, assert_problem, check, returning


@pytest.mark.parametrize(
    ("draw", "name"), [(random.random, "random"), (np.random.rand, "numpy.random")], ids=["python", "numpy"]
)
def test_unseeded_global_random_numbers(draw: Any, name: str) -> None:
    class Global(Walk):
        def noise(self) -> float:
            return draw()

    report = check(Global)
    fix = f"draws from the global generator of {name}: use self.np_random"
    assert_problem(report, "error", "the same seed gives another episode: observation of step 1 differs", fix)


def test_unseeded_random_numbers_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    state = np.zeros(1)
    torch = types.ModuleType("torch")  # only the parts that the check needs; importing the real one takes seconds
    torch.get_rng_state = state.copy  # type: ignore[attr-defined]
    torch.set_rng_state = lambda saved: state.__setitem__(slice(None), saved)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)

    class Tensor(Walk):
        def noise(self) -> float:
            state[0] += 0.01
            return float(state[0])

    assert_problem(check(Tensor()), "error", "the same seed gives another episode", "generator of torch")
    assert state[0] == 0  # restored


def test_seeded_global_random_numbers_are_found_beside_a_second_instance() -> None:
    class GloballySeeded(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is not None:
                random.seed(seed)
            return super().reset(seed=seed)

        def noise(self) -> float:
            return random.random()

    report = check(GloballySeeded)
    assert_problem(report, "error", "a second instance changes the first", "shared generator of random")


def test_a_check_leaves_the_global_generators_as_they_were() -> None:
    class Global(Walk):
        def noise(self) -> float:
            return random.random() + numpy_draw()

    numpy_draw = np.random.rand
    before = random.getstate(), fingerprint(np.random.mtrand._rand.get_state(legacy=False))
    check(Global)
    assert (random.getstate(), fingerprint(np.random.mtrand._rand.get_state(legacy=False))) == before


def test_a_seed_that_is_not_passed_on() -> None:
    class Deaf(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self._generator = np.random.default_rng()
            self.taken, self.position = 0, self._generator.uniform()
            return self.observe(), {}

        def noise(self) -> float:
            return 0.0

    fix = "reset does not pass its seed on"
    assert_problem(check(Deaf), "error", "observation of the reset before step 1 differs", fix)


def test_a_generator_of_its_own() -> None:
    class Own(Walk):
        def __init__(self) -> None:
            super().__init__()
            self._generator = np.random.default_rng()

        def noise(self) -> float:
            return self._generator.normal()

    assert_problem(check(Own), "error", "the same seed gives another episode", "generators of its own")
    assert_problem(check(Own()), "error", "the same seed gives another episode", "set in reset every attribute")


def test_state_that_reset_leaves_behind() -> None:
    class Sticky(Walk):
        total = 0

        def step(self, action: Any) -> Any:
            self.total += 1
            self.position += self.total
            return super().step(action)

    assert_problem(check(Sticky), "error", "reset leaves state behind", "set in reset every attribute")


def test_a_constructor_that_draws_random_numbers() -> None:
    class RandomMap(Walk):
        def __init__(self) -> None:
            super().__init__()
            self._offset = np.random.default_rng().uniform()

        def start(self) -> float:
            return super().start() + self._offset

    assert_problem(check(RandomMap), "error", "two instances differ with the same seed", "in the constructor")


def test_an_environment_that_says_it_is_nondeterministic_is_warned_only() -> None:
    class Noisy(Walk):
        def noise(self) -> float:
            return random.random()

    gymnasium.register("CheckNoisy-v0", Noisy, nondeterministic=True, max_episode_steps=20)
    try:
        report = check("CheckNoisy-v0")
    finally:
        del gymnasium.registry["CheckNoisy-v0"]
    assert_problem(report, "warning", "its spec says that it is nondeterministic", "self.np_random")


def test_an_info_that_differs() -> None:
    report = check(returning(info=lambda env: {"ticket": random.random()}))
    assert_problem(report, "warning", "info['ticket'] of step 1 differs", "if it is a time or a path, leave it")


def test_the_time_in_episode_statistics_is_no_difference() -> None:
    assert check(lambda: gymnasium.wrappers.RecordEpisodeStatistics(Walk())).problems == ()


@pytest.mark.parametrize("generator", ["np_random", "own", "random", "state"])
def test_a_seed_that_changes_nothing(generator: str) -> None:
    class Ignoring(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self._generator = {
                "np_random": None,
                "own": np.random.default_rng(1),
                "random": random.Random(1),
                "state": np.random.RandomState(1),
            }[generator]
            return super().reset(seed=1)

        def noise(self) -> float:
            return 0.0 if self._generator is None else self._generator.uniform(0, 1)

    report = check(Ignoring)
    assert_problem(report, "warning", "the seeds 0, 1 and 2 give the same random numbers", "pass the seed on")


def test_a_deterministic_environment_needs_no_seed() -> None:
    class Deterministic(Walk):
        def start(self) -> float:
            return 0.0

        def noise(self) -> float:
            return 0.0

    assert check(Deterministic).problems == ()


def test_random_numbers_that_decide_nothing_are_no_problem() -> None:
    class Idle(Walk):
        def start(self) -> float:
            return 0.0 * super().start()

        def noise(self) -> float:
            return 0.0 * super().noise()

    assert check(Idle).problems == ()


def test_instances_that_share_state() -> None:
    class Shared(Walk):
        positions = [0.0]  # the mistake under test

        @property
        def position(self) -> float:
            return self.positions[0]

        @position.setter
        def position(self, value: float) -> None:
            self.positions[0] = value

    assert_problem(check(Shared), "error", "a second instance changes the first", "no mutable class attributes")
