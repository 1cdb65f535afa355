"""A group over a pool: same results as the loop over environments, its faults, and what it cannot do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import envfleet
from envfleet import PoolMaker
from envfleet.fleet.auto import measure
from envfleet.fleet.make import Hosting, build_fleet
from envfleet.fleet.makers import makers_of
from envfleet.fleet.pool import infos_by_env
from envfleet.fleet.spec import GroupSettings
from tests.fleet.backends import BACKENDS, same, trace
from tests.fleet.pools import BrokenResetPool, CartPolePool, CounterPool, SpoilingPool, cart_pole
from tests.rollout.envs import Fault, diary

SEED, GROUP, STRUCK, STEP = 10, 2, 11, 2  # the pool of environments 0 and 1 fails in its third step
MODES = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])


def make(env: Any, backend: dict[str, Any] | None = None, **settings: Any) -> envfleet.Fleet:
    where = {"backend": "sequential", "group_size": GROUP} if backend is None else {"group_size": GROUP, **backend}
    return envfleet.make(env, 4, seed=SEED, **{**where, **settings})


def faulty(kind: str, marker: Path, pool: Any = CounterPool) -> PoolMaker:
    return PoolMaker(pool, {"fault": Fault(kind, STRUCK, STEP, str(marker))})


def act(fleet: envfleet.Fleet) -> Any:
    return fleet.step(np.ones(4, np.int64))


# --- results


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("group_size", [3, 8])
def test_a_batched_cart_pole_gives_what_gymnasium_gives(mode: AutoresetMode, group_size: int) -> None:
    makers = [partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)] * 8
    expected = trace(SyncVectorEnv(makers, autoreset_mode=mode), 200, seed=3)
    with envfleet.make(cart_pole, 8, backend="sequential", group_size=group_size, autoreset=mode) as fleet:
        assert same(trace(fleet, 200, seed=3), expected)
        assert fleet.single_observation_space == gymnasium.spec("CartPole-v1").make().observation_space


@MODES
def test_each_mode_resets_in_its_own_way(mode: str) -> None:
    """Row by row: observations, rewards, ends, final observations and infos of a pool whose steps are known."""
    with make(PoolMaker(CounterPool), autoreset=mode) as fleet:
        observations, infos = fleet.reset()
        assert observations.tolist() == [[SEED + i, 0, 0] for i in range(4)]
        assert infos["began"].tolist() == [0, 0, 0, 0]
        pages = [iter(diary(SEED + i, 40)) for i in range(4)]
        waiting = np.zeros(4, np.bool_)
        for _ in range(30):
            observations, rewards, terminated, truncated, infos = act(fleet)
            for i in range(4):
                if waiting[i] and mode == "next_step":  # this row only resets
                    assert observations[i, 2] == 0 and rewards[i] == 0.0 and not (terminated[i] or truncated[i])
                    assert infos["_began"][i] and not infos["_time"][i]
                    continue
                page = next(pages[i])
                assert (rewards[i], terminated[i], truncated[i]) == (page.reward, page.terminated, page.truncated)
                ended = page.terminated or page.truncated
                final = infos["final_obs"][i] if ended and mode == "same_step" else observations[i]
                assert tuple(final) == page.final
                if ended and mode == "same_step":
                    assert observations[i].tolist() == [SEED + i, page.final[1] + 1, 0]
                    assert infos["final_info"]["time"][i] == page.final[2] and infos["_began"][i]
                else:
                    assert infos["time"][i] == page.final[2]
                    assert infos["_late"][i] == (page.final[2] > 2) if "_late" in infos else page.final[2] <= 2
            waiting = terminated | truncated
            if mode == "disabled" and waiting.any():
                before = observations.copy()
                observations, _ = fleet.reset(options={"reset_mask": waiting.copy()})
                assert np.array_equal(observations[~waiting], before[~waiting])
                assert (observations[waiting, 2] == 0).all()


def test_episode_statistics_and_numbers_of_infos() -> None:
    settings = GroupSettings(SEED, AutoresetMode.SAME_STEP, log_info=("time", "time:sum", "time:last"))
    with build_fleet(makers_of(PoolMaker(CounterPool), 4), settings, Hosting("sequential", group_size=GROUP)) as fleet:
        fleet.reset()
        returns, lengths, ends = np.zeros(4), np.zeros(4, np.int64), 0
        for _ in range(20):
            _, rewards, terminated, truncated, _ = act(fleet)
            returns += rewards
            lengths += 1
            for i in np.flatnonzero(terminated | truncated):
                last, n = fleet.last_step, lengths[i]
                assert (last.episode_return[i], last.episode_length[i]) == (returns[i], n)
                assert last.episode_numbers[i].tolist() == [(n + 1) / 2, n * (n + 1) / 2, n]
                returns[i], lengths[i], ends = 0.0, 0, ends + 1
        assert ends > 4 and fleet.statistics().episodes == ends


def test_seeds_of_a_reset_and_options_reach_the_pool() -> None:
    class Open(CounterPool):
        def reset(self, *, seed: Any, options: dict[str, Any]) -> Any:
            observations, infos = super().reset(seed=seed, options=options)
            return observations, {**infos, "shift": np.full(len(observations), options.get("shift", 0))}

    with make(PoolMaker(Open)) as fleet:
        fleet.reset(seed=[5, 6, 7, 8])
        act(fleet)
        observations, infos = fleet.reset(seed=[None, 9, None, None], options={"shift": 4})
        assert observations.tolist() == [[5, 1, 0], [9, 0, 0], [7, 1, 0], [8, 1, 0]]
        assert infos["shift"].tolist() == [4, 4, 4, 4]


def test_nested_spaces_and_a_kept_action() -> None:
    class Nested(CounterPool):
        single_observation_space = spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2000)]), "b": spaces.Box(0, 99, ())})
        single_action_space = spaces.Dict({"go": spaces.Discrete(3), "by": spaces.Box(-1, 1, (2,), np.float32)})

        def observe(self) -> Any:
            return {"a": (self.seeds.copy(),), "b": self.times.astype(np.float32)}

        def reset(self, *, seed: Any, options: dict[str, Any]) -> Any:
            self.seeds[:] = SEED if seed is None else seed
            return self.observe(), {}

        def step(self, actions: Any) -> Any:
            self.times += 1
            self.kept = [*getattr(self, "kept", []), actions]
            no = np.zeros(len(self.times), np.bool_)
            return self.observe(), self.kept[0]["go"] + actions["by"].sum(axis=1), no, no, {}

    with make(PoolMaker(Nested)) as fleet:
        fleet.reset()
        fleet.step({"go": np.array([0, 1, 2, 0]), "by": np.zeros((4, 2), np.float32)})
        observations, rewards, *_ = fleet.step({"go": np.zeros(4, np.int64), "by": np.ones((4, 2), np.float32)})
        assert observations["a"][0].tolist() == [SEED + i for i in range(4)] and observations["b"].tolist() == [2.0] * 4
        assert rewards.tolist() == [2.0, 3.0, 4.0, 2.0]  # with the actions of the first step, which the pool has kept


def test_one_environment_of_a_pool_is_an_ordinary_one() -> None:
    alone, expected = cart_pole(limit=20), gymnasium.make("CartPole-v1", max_episode_steps=20)
    for seed in (4, None):
        assert same(alone.reset(seed=seed)[0], expected.reset(seed=seed)[0])
        for step in range(20):
            one, other = alone.step(step % 2), expected.step(step % 2)
            assert same(one[0], other[0]) and one[1:4] == other[1:4]
            if one[2] or one[3]:
                break


def test_a_pool_is_measured_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environments share one step, here of 6 ms."""
    clock = [0.0]

    class Timed(CounterPool):
        def step(self, actions: Any) -> Any:
            clock[0] += 0.006
            return super().step(actions)

    own_time = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: clock[0])
    for module in ("auto", "timing"):
        monkeypatch.setattr(f"envfleet.fleet.{module}.time", own_time)
    monkeypatch.setattr("envfleet.fleet.timing.queued_seconds", lambda: 0.0)  # of the real clock
    assert measure(PoolMaker(Timed)(), seed=SEED, n_envs=6).seconds == pytest.approx(0.001)


@pytest.mark.slow
def test_check_examines_one_environment_of_a_pool() -> None:
    report = envfleet.check(cart_pole, seconds=5)
    assert report.ok, str(report)


def test_infos_are_split_by_environment() -> None:
    infos = {"a": np.array([1, 2]), "b": {"c": np.array([3, 4])}, "_b": np.array([False, True]), "_own": [5, 6]}
    assert infos_by_env(infos, 2) == [{"a": 1, "_own": 5}, {"a": 2, "b": {"c": 4}, "_own": 6}]


def test_a_space_for_all_still_checks_the_bounds_of_the_pool(tmp_path: Path) -> None:
    space = spaces.Box(-9, 1e6, (3,), np.float32)
    with make(faulty("bounds", tmp_path / "struck", SpoilingPool), observation_mode=space) as fleet:
        assert fleet.single_observation_space == space
        fleet.reset()
        with pytest.raises(envfleet.ObservationError, match=r"-5\.0 at index"):
            for _ in range(STEP + 1):
                act(fleet)


# --- faults


def test_a_pool_that_raises_names_its_environments(backend: dict[str, Any], tmp_path: Path) -> None:
    with make(faulty("raise", tmp_path / "struck"), backend) as fleet:
        fleet.reset()
        with pytest.raises(RuntimeError, match="the simulator has failed") as caught:
            for _ in range(STEP + 1):
                act(fleet)
        assert isinstance(caught.value, envfleet.EnvError)
        assert "one of environments 0 to 1, during step, seed 10" in str(caught.value)
        assert "envfleet/fleet" not in caught.value.original
        observations, _ = fleet.reset()  # the fleet is still usable
        assert (observations[:, 2] == 0).all()
        assert act(fleet)[0].shape == (4, 3)


SPOILT = [
    (
        "nan",
        r"bad observation: .*NaN at index \(1,\) \(environment 1, .*seed 11, step 2 of its episode, action np",
    ),
    ("bounds", r"bad observation: .*-5.0 at index \(1,\), which is outside .*\(environment 1,"),
    ("shape", r"bad observation: .*shape \(2,\) \(shape \(3,\) was declared\)"),
    ("rows", r"bad observation: .*shape \(1, 3\) \(one row for each of 2 environments was expected\)"),
    ("nan reward", r"bad reward: expected a number, received NaN \(environment 1,"),
    ("rewards", r"bad rewards of the pool: expected float64 of shape \(2,\), received float64 of shape \(1,\)"),
    ("flags", r"bad terminated of the pool: expected bool of shape \(2,\), received float64"),
    ("result", r"bad result of the pool's step: expected observations, rewards"),
]


@pytest.mark.parametrize(("kind", "message"), SPOILT)
def test_wrong_results_are_named_errors(kind: str, message: str, tmp_path: Path) -> None:
    with make(faulty(kind, tmp_path / "struck", SpoilingPool)) as fleet:
        fleet.reset()
        with pytest.raises(envfleet.ObservationError, match=message):
            for _ in range(STEP + 1):
                act(fleet)


def test_checks_of_values_can_be_switched_off(tmp_path: Path) -> None:
    with make(faulty("nan", tmp_path / "struck", SpoilingPool), validate="off") as fleet:
        fleet.reset()
        observations = [act(fleet)[0] for _ in range(STEP + 1)]
        assert np.isnan(observations[STEP]).sum() == 1


@pytest.mark.parametrize(("validate", "strict"), [("warn", False), ("strict", True)])
def test_float64_for_float32_is_accepted_unless_strict(validate: str, strict: bool, caplog: Any) -> None:
    class Wide(CounterPool):
        def observe(self) -> Any:
            return super().observe().astype(np.float64)

    with make(PoolMaker(Wide), validate=validate) as fleet:
        if strict:
            with pytest.raises(envfleet.ObservationError, match="dtype float64"):
                fleet.reset()
            return
        fleet.reset()
        assert act(fleet)[0].dtype == np.float32
    assert caplog.text.count("received dtype float64 (dtype float32 was declared)") == 1


CUTS = [(kind, mode) for kind in ("raise", "nan", "reset") for mode in ("next_step", "same_step", "disabled")]


@pytest.mark.parametrize(("kind", "mode"), CUTS[:-1])  # without autoreset there is none that could fail
def test_a_fault_costs_the_episodes_of_one_pool(kind: str, mode: str, tmp_path: Path) -> None:
    """They are truncated at their last observations and begin again; the other pool is untouched."""
    kinds = {"raise": CounterPool, "nan": SpoilingPool, "reset": BrokenResetPool}
    with make(faulty(kind, tmp_path / "struck", kinds[kind]), autoreset=mode, on_error="restart") as fleet:
        before, _ = fleet.reset()
        for _ in range(12):
            observations, rewards, terminated, truncated, infos = act(fleet)
            if "restarted" in infos:
                break
            before, ended = observations, terminated | truncated
            if mode == "disabled" and ended.any():
                before, _ = fleet.reset(options={"reset_mask": ended})
        assert infos["_restarted"].tolist() == fleet.last_step.lost.tolist() == [True, True, False, False]
        again = observations[:2]
        if kind == "reset" and mode == "next_step":  # the step that was lost would have reset environment 1
            assert truncated[:2].tolist() == [True, False] and observations[0].tolist() == before[0].tolist()
            again = observations[1:2]
        elif mode == "same_step":
            assert truncated[:2].all()
            assert np.array_equal(np.stack(infos["final_obs"][:2]), before[:2])
        else:
            assert truncated[:2].all() and np.array_equal(observations[:2], before[:2])
            again, _ = fleet.reset(options={"reset_mask": truncated}) if mode == "disabled" else act(fleet)[::4]
            again = again[:2]
        assert (rewards[:2] == 0.0).all() and not terminated[:2].any()
        assert (again[:, 2] == 0).all() and not set(again[:, 0]) & {10, 11}  # first observations, of new seeds
        if mode != "disabled":
            assert all("restarted" not in act(fleet)[4] for _ in range(2))


def test_a_hang_can_be_in_any_environment_of_the_pool(limits_hold: Path) -> None:
    with make(faulty("hang", Path(f"{limits_hold}-once")), timeout=envfleet.Timeouts(step=0.3)) as fleet:
        fleet.reset()
        with pytest.raises(envfleet.EnvHungError) as caught:
            for step in range(STEP + 1):
                fleet.step(np.array([step + 1, 2, 3, 4]))
    assert caught.value.context.together == GROUP
    assert "(one of environments 0 to 1, during step, seed 10, action [" in str(caught.value)
    assert [int(action) for action in caught.value.context.action] == [STEP + 1, 2]


def test_the_log_of_a_killed_hang_names_the_whole_pool(limits_hold: Path, caplog: Any) -> None:
    hosting = {**BACKENDS["fork"], "timeout": envfleet.Timeouts(step=0.3)}
    with make(faulty("hang", Path(f"{limits_hold}-once")), hosting) as fleet:
        fleet.reset()
        for _ in range(STEP + 1):
            infos = act(fleet)[4]
    assert infos["_restarted"].tolist() == [True, True, False, False]
    assert "one of environments 0 to 1 did not return from its step within 0.3 s" in caplog.text


def test_a_pool_that_always_fails_gets_other_seeds_each_time_and_ends_in_an_error() -> None:
    class Always(CounterPool):
        def step(self, actions: Any) -> Any:
            raise ValueError("never works")

    seeds: list[float] = []
    with make(PoolMaker(Always), autoreset="same_step", on_error="restart", restarts=2) as fleet:
        fleet.reset()
        with pytest.raises(envfleet.EnvError, match="never works") as caught:
            for _ in range(9):
                seeds += act(fleet)[0][:, 0].tolist()
        assert "restarted 2 times" in str(caught.value.hint)
    assert len(set(seeds)) == len(seeds) == 8


@MODES
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_worker_is_restarted(mode: str, tmp_path: Path) -> None:
    with make(faulty("kill", tmp_path / "struck"), BACKENDS["fork"], autoreset=mode) as fleet:
        before, _ = fleet.reset()
        for step in range(STEP + 1):
            observations, rewards, terminated, truncated, infos = act(fleet)
            if step < STEP:
                before = observations
        assert infos["_restarted"].tolist() == [True, True, False, False]
        assert truncated[:2].all()
        assert (rewards[:2] == 0.0).all() and not terminated[:2].any()
        seen = np.stack(infos["final_obs"][:2]) if mode == "same_step" else observations[:2]
        assert np.array_equal(seen, before[:2])


# --- what a pool cannot do


CANNOT: list[tuple[dict[str, Any], str]] = [
    ({"tasks": [1, 2, 3, 4]}, "a pool cannot give its environments tasks"),
    ({"tasks": lambda generator: 1}, "a pool cannot give its environments tasks"),
    ({"recycle_every": 5}, "a pool cannot rebuild single environments"),
    ({"wrappers": [TimeLimit]}, "received 1 wrappers for a pool"),
    ({"env_kwargs": [{}, {}, {}, {"fault": None}]}, "different env_kwargs for the environments of a pool"),
]


@pytest.mark.parametrize(("settings", "message"), CANNOT)
def test_settings_that_a_pool_cannot_meet_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(envfleet.UnsupportedError, match=message):
        make(PoolMaker(CounterPool), **settings)


@pytest.mark.parametrize("name", ["sequential", "fork"])
def test_calls_that_a_pool_cannot_answer_are_refused(name: str) -> None:
    with make(PoolMaker(CounterPool), BACKENDS[name]) as fleet:
        fleet.reset()
        for call in (
            lambda: fleet.call("observe"),
            lambda: fleet.get_attr("seeds"),
            lambda: fleet.set_attr("seeds", 3),
            lambda: fleet.apply(len),
            fleet.render,
            *([lambda: fleet.envs] if name == "sequential" else []),
        ):
            with pytest.raises(envfleet.UnsupportedError, match="a pool cannot call single environments"):
                call()
        with pytest.raises(envfleet.StateError, match="a pool cannot save and restore the state"):
            fleet.state()
        with pytest.raises(envfleet.UnsupportedError, match="tasks"):
            fleet.reset(tasks=[1, 2, 3, 4])
        assert act(fleet)[0].shape == (4, 3)  # the fleet is still usable


class NextStep(CounterPool):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}


class Talking(CounterPool):
    single_observation_space = spaces.Dict({"say": spaces.Text(5)})


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (NextStep, "autoreset_mode'] of the pool NextStep is <AutoresetMode.NEXT_STEP"),
        (Talking, "has the space Text"),
        (lambda n_envs: gymnasium.make("CartPole-v1"), "returned .* without single_observation_space, single_action"),
    ],
)
def test_pools_that_do_not_fit_are_refused(pool: Any, message: str) -> None:
    with pytest.raises(envfleet.SettingsError, match=message):
        make(PoolMaker(pool))


def test_env_kwargs_reach_the_pool() -> None:
    with make(PoolMaker(CartPolePool, {"limit": 1}), env_kwargs={"limit": 3}) as fleet:
        fleet.reset()
        assert [act(fleet)[3].all() for _ in range(3)] == [False, False, True]


def test_a_pool_that_cannot_be_built_names_its_environments() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'engine'") as caught:
        make(PoolMaker(CounterPool, {"engine": 3}), BACKENDS["spawn"])
    assert "one of environments 0 to 1, during make" in str(caught.value)
