"""A worker that dies or hangs, or an environment that raises, loses only the rows in progress."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet.fleet.pool import PoolMaker
from envfleet.fleet.spec import Timeouts
from envfleet.rollout.acting import RolloutRequest
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.sequences import WHOLE, SequenceSampler, SequenceSpec
from tests.fleet.loop_back import use_loop_back
from tests.fleet.pools import CounterPool
from tests.rollout.collecting import ENVS, GROUP, PIECE, SEED, STEPS, Rig, collecting, kept
from tests.rollout.envs import Counter, Fault, diary, length_of
from tests.rollout.made import transitions_at

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("start_method")
BOTH_WAYS = pytest.mark.parametrize("acting", ["worker", "central"])
STRUCK, STEP = 1, 10  # the environment that fails, and the step in which it fails
PROCESSES = {"backend": "processes", "workers": 2, "group_size": GROUP}


def expected_of(env: int, steps: int) -> Array:
    """Return observations [time + 1, 3] of the environment without faults."""
    return np.array([page.observation for page in diary(SEED + env, steps + 1)])


def assert_untouched(rollout: Rollout, env: int, rows: slice = slice(None)) -> None:
    pages = diary(SEED + env, STEPS)
    for what, found in (("reward", rollout.rewards), ("terminated", rollout.terminated)):
        assert np.array_equal(found[rows, env], np.array([getattr(page, what) for page in pages])[rows]), what
    assert np.array_equal(rollout.observations[""][:-1][rows, env], expected_of(env, STEPS)[:-1][rows])
    assert rollout.valid[rows, env].all()


def assert_cut(rollout: Rollout, envs: list[int]) -> None:
    """Step STEP of `envs` is lost and they continue with fresh episodes; everything else is unchanged."""
    expected = np.ones((STEPS, ENVS), bool)
    expected[STEP, envs] = False
    assert np.array_equal(rollout.valid, expected)
    for env in range(ENVS):
        if env not in envs:
            assert_untouched(rollout, env)
            continue
        assert_untouched(rollout, env, slice(0, STEP))
        seen = rollout.observations[""][:, env]
        assert np.array_equal(seen[STEP], expected_of(env, STEPS)[STEP])  # the state after the previous step
        assert seen[STEP + 1, 0] != SEED + env  # a new seed ...
        assert seen[STEP + 1, 1:].tolist() == [0, 0]  # ... and its first episode
        after = diary(int(seen[STEP + 1, 0]), STEPS - STEP)
        assert np.array_equal(seen[STEP + 1 :], [page.observation for page in after])
        assert np.array_equal(rollout.rewards[STEP + 1 :, env], [page.reward for page in after[:-1]])
        assert rollout.rewards[STEP, env] == 0.0
    returns, lengths = rollout.episodes()
    assert len(returns) == np.count_nonzero(rollout.ended & rollout.valid)
    assert not set(lengths.tolist()) & {0}


def counter_with(kind: str, mark: Path) -> Any:
    return partial(Counter, fault=Fault(kind, SEED + STRUCK, STEP, f"{mark}-once"))


def pool_with(kind: str, mark: Path) -> Any:
    return PoolMaker(CounterPool, {"fault": Fault(kind, SEED + STRUCK, STEP, f"{mark}-once")})


@pytest.mark.parametrize(
    ("kind", "env", "acting"),
    [
        ("kill", "loop", "worker"),
        ("kill", "loop", "central"),
        ("kill", "pool", "worker"),
        ("kill", "pool", "central"),
        ("hang", "loop", "worker"),
        ("hang", "loop", "central"),
        ("hang", "pool", "worker"),
        ("hang", "pool", "central"),
    ],
)
def test_a_worker_that_dies_or_hangs(env: str, acting: str, kind: str, limits_hold: Path) -> None:
    timeout, faulty = Timeouts(1.0, 600.0), (counter_with if env == "loop" else pool_with)
    with collecting(faulty(kind, limits_hold), acting=acting, timeout=timeout, **PROCESSES) as rig:
        rollout = rig.collect(0)
        assert_cut(rollout, [0, 1, 2, 3])
        assert sum(worker.restarts for worker in rig.fleet.statistics().workers) == 1
        assert rig.collect(1).valid.all()


@pytest.mark.parametrize("kind", ["kill", pytest.param("hang", marks=pytest.mark.proof)])
def test_a_worker_of_a_host_that_dies_or_hangs(kind: str, limits_hold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host outlives its worker, and with it the rows that were collected."""
    use_loop_back("loop-back-hosts", monkeypatch)
    hosting = {**PROCESSES, "backend": "threads"}
    with collecting(counter_with(kind, limits_hold), acting="worker", timeout=Timeouts(1.0, 600.0), **hosting) as rig:
        assert_cut(rig.collect(0), [0, 1, 2, 3])
        assert sum(worker.restarts for worker in rig.fleet.statistics().workers) == 1
        assert rig.collect(1).valid.all()


@BOTH_WAYS
@pytest.mark.parametrize("backend", ["sequential", "threads"])
def test_an_environment_that_raises(acting: str, backend: str, tmp_path: Path) -> None:
    env = counter_with("raise", tmp_path / "struck")
    with collecting(env, acting=acting, backend=backend, on_error="restart") as rig:
        assert_cut(rig.collect(0), [STRUCK])
        assert rig.collect(1).valid.all()


@BOTH_WAYS
@pytest.mark.parametrize("backend", ["sequential", "threads"])
def test_a_pool_that_raises(acting: str, backend: str, tmp_path: Path) -> None:
    """All episodes of the pool are cut, those of the other pool are untouched."""
    env = pool_with("raise", tmp_path / "struck")
    with collecting(env, acting=acting, backend=backend, on_error="restart") as rig:
        assert_cut(rig.collect(0), [0, 1, 2, 3])
        assert rig.collect(1).valid.all()


@BOTH_WAYS
def test_memory_of_a_cut_episode_is_forgotten(acting: str, tmp_path: Path) -> None:
    env = counter_with("raise", tmp_path / "struck")
    with collecting(env, acting=acting, memory="gru", on_error="restart") as rig:
        rollout = rig.collect(0)
        assert rollout.starts[STEP + 1, STRUCK]
        assert not rollout.starts[STEP + 1, [0, 2, 3]].all()


def kill(rig: Rig, worker: int) -> None:
    os.kill(rig.fleet.statistics().workers[worker].pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("env", "acting"),
    [("loop", "worker"), ("loop", "central"), ("pool", "worker"), ("pool", "central")],
)
def test_a_worker_that_dies_between_rollouts(env: str, acting: str) -> None:
    made = Counter if env == "loop" else PoolMaker(CounterPool)
    with collecting(made, acting=acting, memory="gru", **PROCESSES) as rig:
        before = kept(rig.collect(0))
        kill(rig, 1)
        assert all(np.array_equal(before[name], array) for name, array in kept(rig.collector.collected(0)).items())
        rollout = rig.collect(1)
        expected = np.ones((STEPS, ENVS), bool)
        expected[0, GROUP:] = False
        assert np.array_equal(rollout.valid, expected)
        assert (rollout.observations[""][1, GROUP:, 1:] == 0).all()
        assert rollout.starts[1, GROUP:].all()  # memory is reset after the lost row
        for i in range(GROUP):
            seen = np.array([page.observation for page in diary(SEED + i, 2 * STEPS)])[STEPS:]
            assert np.array_equal(rollout.observations[""][:-1, i], seen)
        assert rig.collect(2).valid.all()


@pytest.mark.parametrize(
    ("env", "acting"),
    [("loop", "worker"), ("loop", "central"), ("pool", "worker"), ("pool", "central")],
)
def test_a_worker_that_dies_in_its_first_step(env: str, acting: str, tmp_path: Path) -> None:
    fault = Fault("kill", SEED + STRUCK, 0, str(tmp_path / "struck"))
    faulty = partial(Counter, fault=fault) if env == "loop" else PoolMaker(CounterPool, {"fault": fault})
    with collecting(faulty, acting=acting, **PROCESSES) as rig:
        rig.poison()
        rollout = rig.collect(0)
        assert not rollout.valid[0, :GROUP].any()
        assert rollout.valid[1:].all()
        assert np.isfinite(rollout.observations[""]).all()


@pytest.mark.parametrize("env", ["loop", "pool"])
def test_both_ways_of_acting_give_the_same_rows_around_a_death(env: str, tmp_path: Path) -> None:
    found = []
    faulty = counter_with if env == "loop" else pool_with
    for acting in ("worker", "central"):
        (tmp_path / acting).mkdir()
        with collecting(faulty("kill", tmp_path / acting / "struck"), acting=acting, memory="gru", **PROCESSES) as rig:
            rollout = rig.collect(0)
            arrays, valid = kept(rollout), rollout.valid
            log_probs, actions = (arrays[f"columns/{name}"][valid] for name in ("log_probs", "actions"))
            found.append([arrays["observations/"], arrays["rewards"], valid.copy(), log_probs, actions])
    for one, two in zip(*found, strict=True):
        assert one.tobytes() == two.tobytes()


def test_a_death_at_the_start_of_a_piece_loses_the_step_before_it(tmp_path: Path) -> None:
    """The memory before the lost step is gone, so the value that the step before would bootstrap from is unknown."""
    env = partial(Counter, fault=Fault("kill", SEED + STRUCK, PIECE, str(tmp_path / "struck")))
    with collecting(env, acting="worker", memory="gru", **PROCESSES) as rig:
        rollout = rig.collect(0)
        ended = rollout.ended[PIECE - 1, :GROUP]
        assert ended.any() and not ended.all()
        expected = np.ones((STEPS, ENVS), bool)
        expected[PIECE, :GROUP] = False
        expected[PIECE - 1, :GROUP] = ended  # nothing is bootstrapped at the end of an episode
        assert np.array_equal(rollout.valid, expected)
        assert not rollout.rewards[~expected].any() and rollout.rewards[PIECE - 1, :GROUP][ended].all()
        assert not rollout.memory[1, :GROUP].any()
        assert rig.collect(1).valid.all()


def test_a_group_that_was_finished_keeps_its_rollout(tmp_path: Path) -> None:
    """One worker hosts both groups and dies in the second, when the first has finished."""
    env = partial(Counter, fault=Fault("kill", SEED + GROUP, STEP, str(tmp_path / "struck")))
    with collecting(env, acting="worker", **{**PROCESSES, "workers": 1}) as rig:
        rollout = rig.collect(0)
        assert not rollout.valid[STEP, GROUP:].any()
        for i in range(GROUP):
            assert_untouched(rollout, i)


def test_a_death_after_the_last_step_does_not_bootstrap_from_the_next_episode() -> None:
    with collecting(Counter, acting="worker") as rig:
        rollout = rig.collect(0)
        edge = rollout.observations[""][-1, :GROUP].copy()
        (worker,) = rig.fleet._supervisor.backend._workers.values()  # type: ignore[attr-defined]  # simulates a death here
        group = worker.groups[0]
        rig.collector.arrays["progress"][0] = STEPS
        group.begin_fresh(1 - group.newest_slot, seeds=[100, 101, 102, 103], tasks=[None] * GROUP)
        group.routine(RolloutRequest(0, 0, STEPS, SEED))
        same_edge = np.array_equal(rollout.observations[""][-1, :GROUP], edge)
        assert same_edge or not rollout.valid[-1, :GROUP].any()


def replay_of_counters() -> Replay:
    return Replay(ReplaySpec(Counter.observation_space, ((), np.int64), capacity=4 * STEPS * ENVS, n_envs=ENVS))


def assert_transitions_happened(replay: Replay) -> None:
    """Every transition, n-step return and sequence in the replay is one that a counter made."""
    entries = np.arange(replay.rows * ENVS)
    entries = entries[replay.happened(entries)]
    for steps in (1, 3):
        taken = transitions_at(replay, entries, steps=steps, gamma=1.0)
        seen, led_to = (part[""].astype(int).tolist() for part in (taken.observations, taken.following))
        for here, there, total, discount in zip(seen, led_to, taken.returns, taken.discounts, strict=True):
            seed, episode, first = here
            last = there[2] if discount else length_of(seed, episode)
            assert not discount or there[:2] == here[:2]
            assert first < last <= first + steps
            assert total == sum(1000 * seed + 10 * episode + step + 1 for step in range(first, last))
    sampler = SequenceSampler(replay, SequenceSpec(64, WHOLE, 1.0))
    for batch in sampler.batches(np.random.default_rng(1), 4):
        for column in range(batch.size):
            steps = int(batch.mask[:, column].sum())
            seed, episode, _ = batch.observations[""][0, column].astype(int).tolist()
            ends = batch.discounts[steps - 1, column] == 0.0
            seen = batch.observations[""][: steps + (not ends), column].astype(int).tolist()
            assert seen == [[seed, episode, step] for step in range(len(seen))]


@pytest.mark.parametrize("buffers", [1, 2])
@BOTH_WAYS
def test_a_worker_that_dies_between_rollouts_puts_nothing_wrong_into_the_replay(acting: str, buffers: int) -> None:
    replay = replay_of_counters()
    with collecting(Counter, acting=acting, buffers=buffers, **PROCESSES) as rig:
        for number in range(4):
            replay.add(rig.collect(number))
            if number == 1:
                kill(rig, 1)
    assert_transitions_happened(replay)


def test_a_death_after_a_group_was_finished_puts_nothing_wrong_into_the_replay(tmp_path: Path) -> None:
    """The finished group begins its next rollout with new episodes."""
    env = partial(Counter, fault=Fault("kill", SEED + GROUP, STEP, str(tmp_path / "struck")))
    replay = replay_of_counters()
    with collecting(env, acting="worker", **{**PROCESSES, "workers": 1}) as rig:
        for number in range(3):
            replay.add(rig.collect(number))
    assert_transitions_happened(replay)
