"""Wrappers by name, with arguments, from the command line, files and Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet import cli
from envfleet.algorithms.settings import DQN, PPO
from envfleet.cli.train import Train
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.fleet.wrapping import build_one
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.assembly import resolve
from envfleet.training.evaluating import evaluate_run
from envfleet.training.wrappers import environment_of
from tests.fleet.continuation import assert_continues_exactly
from tests.training.running import SMALL, run, weights
from tests.training.test_rates import StopsAfter

HERE = "tests.training.test_wrappers"


class Film(gymnasium.Env[Any, Any]):
    """Random images [height, width, channels], all different."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (14, 13, 3), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._picture(), float(action), bool(self.np_random.random() < 0.1), False, {}

    def _picture(self) -> Any:
        return self.np_random.integers(0, 256, (14, 13, 3), np.uint8)


class Scaled(gymnasium.RewardWrapper[Any, Any]):
    """A user's own wrapper."""

    def __init__(self, env: Any, factor: float, note: str = "") -> None:
        super().__init__(env)
        self.factor, self.note = factor, note

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


def limited(env: Any) -> Any:
    return gymnasium.wrappers.TimeLimit(env, 9)


def built(*wrappers: Any, env: Any = "CartPole-v1", **kwargs: Any) -> Any:
    return build_one(environment_of(env, PPO(wrappers=wrappers).wrappers), kwargs)


def refusal(*wrappers: Any, env: Any = "CartPole-v1") -> str:
    with pytest.raises(SettingsError) as error:
        resolve(PPO(env=env, wrappers=wrappers, backend="sequential"))
    return str(error.value)


# ---- ways to specify them


def test_on_the_command_line_arguments_follow_the_name() -> None:
    flags = ["atari", "frame-stack", "stack_size=3", "a.b:c", "x=1", "y=hello", "z=(1, 2)", "d:e"]
    given = Train.parse(["ppo", "--wrappers", *flags, "--seed", "1"]).settings
    arguments = {"x": 1, "y": "hello", "z": (1, 2)}
    assert given.wrappers == ("atari", {"frame-stack": {"stack_size": 3}}, {"a.b:c": arguments}, "d:e")
    with pytest.raises(SettingsError, match="--wrappers begins with 'stack_size=3', expected a name before"):
        Train.parse(["ppo", "--wrappers", "stack_size=3"])


def test_in_a_file_they_are_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "algorithm: dqn\nwrappers:\n- atari\n- frame-stack: {stack_size: 3}\n- TimeLimit: {max_episode_steps: 9}\n"
    )
    given = Train.parse(["--config", str(tmp_path / "run.yaml")]).settings
    assert given.wrappers == ("atari", {"frame-stack": {"stack_size": 3}}, {"TimeLimit": {"max_episode_steps": 9}})


def test_all_three_ways_give_the_same_environment() -> None:
    objects = built(limited, lambda env: Scaled(env, 2.0))
    names = built({"TimeLimit": {"max_episode_steps": 9}}, {f"{HERE}:Scaled": {"factor": 2.0}})
    for env in (objects, names):
        env.reset(seed=0)
        assert env.step(0)[1] == 2.0
        assert env.get_wrapper_attr("_max_episode_steps") == 9


def test_lists_of_a_file_arrive_as_tuples() -> None:
    """A resumed run reads its settings from a file and must be wrapped as before."""
    for note in (["a", ["b"]], ("a", ("b",))):
        assert built({f"{HERE}:Scaled": {"factor": 1, "note": note}}).note == ("a", ("b",))


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("FrameStack", "there is no wrapper 'FrameStack', expected atari, frame-stack, history, a class of"),
        ("FrameStack", "hint: nearest: frame-stack, FrameStackObservation"),
        ("vector", "there is no wrapper 'vector'"),
        ({"frame-stack": {"size": 4}}, "the wrapper frame-stack has no argument 'size'; it takes stack_size, padding"),
        ({"atari": {"frameskip": 4}}, "hint: did you mean 'frame_skip'?"),
        ("TimeLimit", "the wrapper TimeLimit needs max_episode_steps; it takes max_episode_steps"),
        ({f"{HERE}:Scaled": {}}, "hint: --wrappers tests.training.test_wrappers:Scaled factor=..."),
        ({f"{HERE}:limited": {"x": 1}}, "has no argument 'x'; it takes no arguments"),
        (f"{HERE}:limitd", "hint: nearest: limited"),
        ({"a": {}, "b": {}}, "received the wrapper {'a': {}, 'b': {}}, expected a name, or a name with its arguments"),
        ({"frame-stack": 4}, "received the wrapper {'frame-stack': 4}, expected a name"),
        ({"frame-stack": {"stack_size": 0}}, "the wrapper frame-stack cannot wrap CartPole-v1: The stack_size needs"),
        ("GrayscaleObservation", "the wrapper GrayscaleObservation cannot wrap CartPole-v1"),
        ("atari", "the wrapper atari is for games of the Arcade Learning Environment, and CartPole-v1 is none"),
    ],
)
def test_what_cannot_be_gets_a_sentence(wrapper: Any, message: str) -> None:
    found = refusal(wrapper)
    assert message in found and "Traceback" not in found


# ---- in a run


def test_a_run_keeps_its_wrappers(tmp_path: Path) -> None:
    wrappers = [{f"{HERE}:Scaled": {"factor": 0.5}}, {"TimeLimit": {"max_episode_steps": 7}}]
    run(tmp_path / "whole", wrappers=wrappers)
    run(tmp_path / "run", [StopsAfter(1)], wrappers=wrappers)
    assert Run.load(tmp_path / "run").settings["wrappers"] == wrappers
    with pytest.raises(SettingsError, match=f"not part of Envfleet: {HERE}:Scaled\n"):
        resume(tmp_path / "run")
    resume(tmp_path / "run", trust=True, quiet=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    result = evaluate_run(tmp_path / "run", episodes=2, trust=True)
    assert max(result.lengths) <= 7 and result.returns == tuple(length / 2 for length in result.lengths)


def test_named_wrappers_need_no_trust_and_objects_are_given_again(tmp_path: Path) -> None:
    run(tmp_path / "named", [StopsAfter(1)], wrappers=["frame-stack"])
    assert resume(tmp_path / "named", quiet=True).metrics[-1]["step"] == SMALL["steps"]
    wrappers = [lambda env: limited(env), "frame-stack"]
    run(tmp_path / "objects", [StopsAfter(1)], wrappers=wrappers)
    with pytest.raises(SettingsError, match="cannot be imported by that name"):
        resume(tmp_path / "objects", trust=True)
    assert resume(tmp_path / "objects", wrappers=wrappers, quiet=True).metrics[-1]["step"] == SMALL["steps"]


# ---- frame-stack


def test_pictures_are_stacked_along_their_channels_and_all_else_along_a_new_axis() -> None:
    for env, wrapped in ((Film(), built("frame-stack", env=Film)), (Film(), built("frame_stack", env=Film))):
        assert wrapped.observation_space == spaces.Box(0, 255, (14, 13, 12), np.uint8)
        first, _ = env.reset(seed=3)
        stack, _ = wrapped.reset(seed=3)
        np.testing.assert_array_equal(stack, np.concatenate([first] * 4, 2))
        second = env.step(0)[0]
        stack = wrapped.step(0)[0]
        np.testing.assert_array_equal(stack, np.concatenate([first] * 3 + [second], 2))
        assert wrapped.observation_space.contains(stack)
    assert built({"frame-stack": {"stack_size": 2}}).observation_space.shape == (2, 4)
    # With 15 channels, the channels could not be told from the sides.
    assert built({"frame-stack": {"stack_size": 5}}, env=Film).observation_space.shape == (5, 14, 13, 3)
    first_axis = gymnasium.wrappers.TransformObservation(
        Film(), lambda picture: picture.transpose(2, 0, 1), spaces.Box(0, 255, (3, 14, 13), np.uint8)
    )
    assert built("frame-stack", env=lambda: first_axis).observation_space.shape == (12, 14, 13)


def test_stacks_continue_exactly_from_a_saved_state() -> None:
    assert_continues_exactly(lambda: built("frame-stack", env=Film), before=3, after=30)


def test_the_replay_stores_each_frame_once_and_learns_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small: dict[str, Any] = {
        "env": Film,
        "wrappers": ["frame-stack"],
        "n_envs": 4,
        "rollout_steps": 8,
        "steps": 128,
        "learning_starts": 32,
        "replay_size": 96,
        "network": "mlp",
        "hidden": (8,),
        "seed": 5,
        "backend": "sequential",
        "eval_every": 0,
    }
    train(DQN(**small, output_dir=str(tmp_path / "once")))
    assert "stacks of 4 as single frames" in capsys.readouterr().err
    train(DQN(**small, frame_stack=1, quiet=True, output_dir=str(tmp_path / "whole")))
    assert weights(tmp_path / "once") == weights(tmp_path / "whole")


# ---- atari


@pytest.fixture
def pong() -> str:
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    return "ALE/Pong-v5"


def test_atari_preprocessing(pong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = SimpleNamespace(resize=lambda picture, size, interpolation: picture[: size[1], : size[0]], INTER_AREA=3)
    monkeypatch.setitem(sys.modules, "cv2", cut)
    env = built("atari", "frame-stack", env=pong, frameskip=1)
    assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert env.observation_space.contains(env.reset(seed=1)[0])
    small = built({"atari": {"screen_size": [42, 36], "noop_max": 0}}, env=pong, frameskip=1)
    assert small.observation_space.shape == (36, 42)


def test_frames_that_are_skipped_twice_are_refused(pong: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal("atari", env=pong)
    assert "the wrapper atari skips frames, but ALE/Pong-v5 skips 4 as well; expected frameskip=1" in message
    assert "hint: add --env-kwargs frameskip=1" in message


def test_without_opencv(pong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"needs OpenCV, which is not installed\nhint: pip .*envfleet\[atari\]"):
        resolve(PPO(env=pong, env_kwargs={"frameskip": 1}, wrappers=["atari"], backend="sequential"))


def test_a_wrong_wrapper_leaves_no_run_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--backend", "sequential", "--output-dir", str(tmp_path / "run")]
    assert cli.main(["train", "ppo", "--wrappers", "frame-stak", *flags]) == 2
    assert "hint: nearest: frame-stack" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
