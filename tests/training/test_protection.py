"""Evaluation, random play and first looks are protected like training, and their failure never ends the training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.errors import EnvError, WorkerError
from envfleet.runs.run import Run
from tests.rollout.envs import Counter
from tests.training.envs import Deadly, OnlyWhenEvaluated
from tests.training.running import run, weights

pytestmark = pytest.mark.usefixtures("start_method")
PROCESSES = {"backend": "processes", "workers": 2}
EVALUATED = {"eval_every": 1, "eval_episodes": 2, "restarts": 1, "quiet": False}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run(folder, env=OnlyWhenEvaluated, env_kwargs={"how": "endless"})
    return weights(folder)


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("crash", PROCESSES),
        ("hang", {**PROCESSES, "timeout": 1.0}),
        ("raise", PROCESSES),
        ("raise", {"on_error": "restart", **PROCESSES}),
        ("raise", {"backend": "threads", "workers": 2}),
        ("raise", {}),
        ("hang", {"timeout": 1.0}),
    ],
)
def test_a_failing_evaluation_costs_nothing(
    how: str,
    options: dict[str, Any],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    undisturbed: bytes,
    limits_hold: Path,
) -> None:
    once = {**EVALUATED, "eval_every": 10**6}  # only at the end
    kwargs = {"how": how, "mark": str(limits_hold)}
    trained = run(tmp_path / "run", env=OnlyWhenEvaluated, env_kwargs=kwargs, **{**once, **options})
    said = capfd.readouterr().err
    assert "failed, and training continues without it" in said
    assert weights(tmp_path / "run") == undisturbed
    assert not any("eval/mean_reward" in row for row in trained.metrics)


def test_an_episode_without_end_is_cut_and_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], undisturbed: bytes
) -> None:
    trained = run(
        tmp_path / "run", env=OnlyWhenEvaluated, env_kwargs={"how": "endless"}, eval_max_steps=20, **EVALUATED
    )
    said = capfd.readouterr().err
    assert "2 episodes cut after 20 steps (eval_max_steps)" in said
    assert weights(tmp_path / "run") == undisturbed
    assert trained.metrics[-1]["eval/mean_ep_length"] == 20
    result = envfleet.evaluate_run(tmp_path / "run", episodes=3, env=OnlyWhenEvaluated, max_steps=7)
    assert (result.cut, result.lengths) == (3, (7, 7, 7))


def test_lost_episodes_do_not_count(tmp_path: Path) -> None:
    class FailsAtFirst(OnlyWhenEvaluated):
        def step(self, action: Any) -> Any:
            flag = tmp_path / "flag"
            if self.evaluated and not flag.exists():
                flag.touch()
                raise ValueError("the engine exploded once")
            return Counter.step(self, action)

    options = {**EVALUATED, "eval_every": 10**6, "on_error": "restart", **PROCESSES}
    trained = run(tmp_path / "run", env=FailsAtFirst, env_kwargs={"how": "once"}, **{**options, "eval_episodes": 3})
    assert "eval/mean_reward" in trained.metrics[-1]
    (tmp_path / "flag").unlink()
    result = envfleet.evaluate_run(tmp_path / "run", episodes=3, env=FailsAtFirst)
    assert (result.lost, result.episodes) == (1, 2)


def test_ctrl_c_ends_an_evaluation_that_would_never_end(tmp_path: Path) -> None:
    options = {"eval_max_steps": 10**12, **EVALUATED}
    with pytest.raises(KeyboardInterrupt, match="saved"):
        run(tmp_path / "run", env=OnlyWhenEvaluated, env_kwargs={"how": "interrupt"}, **options)
    assert Run.load(tmp_path / "run").checkpoint().step == 12 * 32
    resumed = envfleet.resume(tmp_path / "run", env=OnlyWhenEvaluated, eval_max_steps=20, restarts=1, quiet=True)
    evaluated = [row["step"] for row in resumed.metrics if "eval/mean_reward" in row]
    assert evaluated[0] == 12 * 32  # the interrupted evaluation is repeated


@pytest.mark.parametrize("at", ["make", "step"])
def test_a_first_look_does_not_die_with_the_environment(at: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="it exited with code 3"):
        run(tmp_path / "run", env=Deadly, env_kwargs={"at": at}, backend="auto", restarts=0)
    with pytest.raises(WorkerError, match="it exited with code 3"):
        envfleet.make(Deadly, 4, env_kwargs={"at": at}, quiet=True, restarts=0)
    assert not (tmp_path / "run").exists()


def test_random_play_and_evaluation_of_an_environment_that_raises(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], undisturbed: bytes
) -> None:
    options = {"random_steps": 50, "quiet": False}
    run(tmp_path / "run", env=OnlyWhenEvaluated, env_kwargs={"how": "raise"}, **options)
    assert "random play failed, and training continues without it: ValueError" in capfd.readouterr().err
    assert weights(tmp_path / "run") == undisturbed
    with pytest.raises(EnvError, match="the engine exploded"):
        envfleet.evaluate_run(tmp_path / "run", episodes=1, env=OnlyWhenEvaluated)


def test_a_budget_of_one_rollout_plays_one(tmp_path: Path) -> None:
    """With sync, saving does not collect another rollout."""

    here = os.getpid()  # ignores the processes that try the saved state

    class Counting(Counter):
        def step(self, action: Any) -> Any:
            if os.getpid() == here:
                with open(tmp_path / "steps", "ab") as file:
                    file.write(b".")
            return super().step(action)

    run(tmp_path / "run", env=Counting, steps=12 * 32, checkpoint_every=1)
    assert (tmp_path / "steps").stat().st_size == 12 * 32


def test_stage_of_observations_and_actions_of_every_kind() -> None:
    from envfleet.fleet.make import one_env
    from envfleet.fleet.single import SingleEnv
    from tests.fleet.simulators import Nested, Talks

    for kind in (Nested, Talks):
        plain, env = kind(length=3), SingleEnv(one_env(kind, env_kwargs=[{"length": 3}], autoreset="disabled"))
        plain.action_space.seed(1)
        for episode in range(2):
            one, other = plain.reset(seed=episode), env.reset(seed=episode)
            _assert_same(one, other)
            for _ in range(3):
                action = plain.action_space.sample()
                _assert_same(plain.step(action), env.step(action))
        env.end()


def _assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            _assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for part, its in zip(one, other, strict=True):
            _assert_same(part, its)
    else:
        assert np.array_equal(one, other)
