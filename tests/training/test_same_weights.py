"""The same seed gives the same weights, byte for byte, on every backend and with both ways of acting.

`make test` runs a set of trainings in which every pair of values of {backend, workers, acting, schedule, memory, world}
occurs; `make proof` runs all combinations in the world of vectors. The reference for each schedule, memory and world
is a sequential fleet.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.loop_back import use_loop_back
from tests.training.running import run, weights

BACKENDS: dict[str, dict[str, Any]] = {
    "sequential": {"backend": "sequential"},
    "threads": {"backend": "threads"},
    "spawn": {"backend": "processes", "start_method": "spawn"},
    "fork": {"backend": "processes", "start_method": "fork"},
    "loop-back": {"backend": "threads"},  # workers with a block of their own
}
WORKERS, ACTING, SCHEDULES, MEMORIES = (1, 2, 3), ("worker", "central"), ("sync", "overlap"), ("none", "gru")
WORLDS: dict[str, dict[str, Any]] = {
    "vectors": {"env": "CartPole-v1"},
    "pictures": {"env": "tests.training.picture_worlds:Quarters", "rollout_steps": 16, "steps": 12 * 16 * 3},
}
Case = tuple[str, int, str, str, str, str]  # backend, workers, acting, schedule, memory, world

# Every pair of values occurs at least once.
PAIRWISE: list[Case] = [
    ("sequential", 1, "central", "sync", "none", "vectors"),
    ("sequential", 1, "central", "overlap", "gru", "pictures"),
    ("threads", 1, "worker", "overlap", "none", "pictures"),
    ("threads", 2, "central", "sync", "gru", "vectors"),
    ("threads", 3, "worker", "sync", "gru", "vectors"),
    ("spawn", 1, "worker", "sync", "gru", "pictures"),  # only one worker that imports torch
    ("spawn", 2, "central", "overlap", "gru", "vectors"),
    ("spawn", 3, "central", "sync", "none", "vectors"),
    ("fork", 1, "worker", "sync", "gru", "vectors"),
    ("fork", 2, "worker", "sync", "none", "pictures"),
    ("fork", 3, "central", "overlap", "none", "pictures"),
    ("loop-back", 1, "worker", "overlap", "gru", "pictures"),
    ("loop-back", 2, "central", "sync", "none", "vectors"),
    ("loop-back", 3, "worker", "sync", "gru", "vectors"),
]
MATRIX = [
    case
    for case in itertools.product(BACKENDS, WORKERS, ACTING, SCHEDULES, MEMORIES, ["vectors"])
    if case[0] != "sequential" or (case[1] == 1 and case[2] == "central")  # the sequential backend has one worker
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Look up weights by schedule, memory and world, each trained once: sequential, the policy in the only worker."""
    known: dict[tuple[str, str, str, int | None], bytes] = {}

    def look_up(schedule: str, memory: str, world: str = "vectors", threads: int | None = None) -> bytes:
        key = (schedule, memory, world, threads)
        if key not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            run(folder, **WORLDS[world], schedule=schedule, memory=memory, learner_threads=threads)
            known[key] = weights(folder)
        return known[key]

    return look_up


@pytest.fixture(autouse=True)
def _prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the threads backend in cases of 'loop-back'."""
    if "loop-back" in request.node.name:
        use_loop_back("loop-back", monkeypatch)


def assert_same(folder: Path, reference: Any, case: Case) -> None:
    backend, workers, acting, schedule, memory, world = case
    expected = reference(schedule, memory, world)
    run(folder, **WORLDS[world], **BACKENDS[backend], workers=workers, acting=acting, schedule=schedule, memory=memory)
    assert weights(folder) == expected


@pytest.mark.parametrize("case", PAIRWISE, ids=lambda case: "-".join(map(str, case)))
def test_pairs(tmp_path: Path, reference: Any, case: Case) -> None:
    assert_same(tmp_path / "run", reference, case)


@pytest.mark.proof
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: "-".join(map(str, case)))
def test_the_whole_matrix(tmp_path: Path, reference: Any, case: Case) -> None:
    assert_same(tmp_path / "run", reference, case)


def test_the_pairs_are_complete() -> None:
    """Every two values that can be combined occur together in some case, including the references."""
    references = itertools.product(["sequential"], [1], ["worker"], SCHEDULES, MEMORIES, WORLDS)
    cases, kinds = [*PAIRWISE, *references], (tuple(BACKENDS), WORKERS, ACTING, SCHEDULES, MEMORIES, tuple(WORLDS))
    missing = [
        (one, two)
        for a, b in itertools.combinations(range(6), 2)
        for one, two in itertools.product(kinds[a], kinds[b])
        if not any(case[a] == one and case[b] == two for case in cases)
    ]
    assert missing == [("sequential", 2), ("sequential", 3)]


@pytest.mark.parametrize(("acting", "world"), [("worker", "vectors"), ("central", "pictures")])
def test_with_two_threads_of_the_learner(tmp_path: Path, reference: Any, acting: str, world: str) -> None:
    """Learner threads change the weights; with the same number of them, backend and workers still do not."""
    where = {"backend": "processes", "start_method": "fork", "workers": 2}
    run(tmp_path / "run", **where, **WORLDS[world], acting=acting, learner_threads=2)
    assert weights(tmp_path / "run") == reference("sync", "none", world, 2)


@pytest.mark.parametrize(
    ("backend", "workers", "acting"), [("sequential", 1, "worker"), ("fork", 2, "worker"), ("fork", 3, "central")]
)
def test_a_pool_of_cart_poles(tmp_path: Path, reference: Any, backend: str, workers: int, acting: str) -> None:
    """It gives the same bytes as Gymnasium's environment, so the weights are the same too."""
    run(tmp_path / "run", env="tests.fleet.pools:cart_pole", **BACKENDS[backend], workers=workers, acting=acting)
    assert weights(tmp_path / "run") == reference("sync", "none")


def test_the_schedules_and_seeds_differ(tmp_path: Path, reference: Any) -> None:
    """Otherwise equal weights would prove nothing."""
    run(tmp_path / "other", seed=6)
    found = {reference("sync", "none"), reference("overlap", "none"), weights(tmp_path / "other")}
    assert len(found) == 3


@pytest.mark.parametrize("env", ["Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_with_normalisers_and_other_spaces(tmp_path: Path, env: str, schedule: str) -> None:
    options = {"env": env, "schedule": schedule, "normalise_observations": True, "normalise_rewards": True}
    run(tmp_path / "one", **options)
    run(tmp_path / "two", **options, backend="threads", workers=3, acting="central")
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
