"""Same seed, same bytes: on every backend, worker count and start method."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import envfleet
from envfleet import PoolMaker
from tests.fleet.backends import ALL_TESTS, BACKENDS, same, trace, use
from tests.fleet.pools import CounterPool
from tests.fleet.simulators import Counter, Masked, Nested, Talks

N_ENVS = 7
ENVS: dict[str, Any] = {
    "CartPole-v1": "CartPole-v1",
    "Pendulum-v1": "Pendulum-v1",
    "Taxi-v4": "Taxi-v4",
    "Blackjack-v1": "Blackjack-v1",
    "HalfCheetah-v5": "HalfCheetah-v5",
    "counter": Counter,
    "masked": Masked,
    "nested": Nested,
    "talks": Talks,
    "pool": PoolMaker(CounterPool),
}
WORKERS = [1, 2, 3]
MODES = ["next_step", "same_step"]
_references: dict[tuple[str, str], Any] = {}


def run(env: str, mode: str, **settings: Any) -> Any:
    tasks = draw_task if env == "counter" else None
    fleet = envfleet.make(ENVS[env], N_ENVS, group_size=2, seed=5, autoreset=mode, tasks=tasks, **settings)
    try:
        return trace(fleet, 40, seed=11)
    finally:
        fleet.close()


def draw_task(rng: Any) -> int:
    return int(rng.integers(1_000_000))


def reference(env: str, mode: str) -> Any:
    if (env, mode) not in _references:
        _references[env, mode] = run(env, mode, backend="sequential")
    return _references[env, mode]


def pairwise() -> list[tuple[str, str, int, str]]:
    """Return every environment on every backend, rotating through worker counts and autoreset modes.

    Spawned workers import for a while, so only every third environment gets them.
    """
    cases = []
    for turn, (env, name) in enumerate(itertools.product(ENVS, [b for b in ALL_TESTS if b != "sequential"])):
        if name != "spawn" or list(ENVS).index(env) % 3 == 0:
            cases.append((env, name, WORKERS[turn % 3], MODES[(turn // 3) % 2]))
    return cases


@pytest.mark.parametrize(("env", "name", "workers", "mode"), pairwise())
def test_same_bytes(env: str, name: str, workers: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**use(name, monkeypatch), "workers": workers}
    assert same(reference(env, mode), run(env, mode, **settings))


@pytest.mark.proof
@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("name", [b for b in BACKENDS if b != "sequential"])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("mode", MODES)
def test_same_bytes_everywhere(env: str, name: str, workers: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**use(name, monkeypatch), "workers": workers}
    assert same(reference(env, mode), run(env, mode, **settings))
