"""`check` reports which algorithms can train on an environment, and the wrappers it suggests work."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.conformance import isolation
from envfleet.conformance.advice import helpful_wrappers, smaller_pictures
from envfleet.training.checking import check, refusals
from tests.conformance.worlds import Walk, sampling
from tests.conformance.worlds import check as examined_here

PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (2,), np.float32)
TEXT, CHOICE = spaces.Text(5), spaces.Discrete(3)


@pytest.fixture(autouse=True)
def no_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "why_inexact", lambda *_, **__: None)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "refusing"),
    [
        (VECTOR, CHOICE, set()),
        (PICTURE, CHOICE, set()),
        (spaces.Dict({"a": PICTURE, "b": VECTOR}), CHOICE, set()),
        (VECTOR, VECTOR, {"DQN"}),
        (VECTOR, spaces.MultiBinary(3), {"DQN", "SAC"}),
        (TEXT, CHOICE, {"DQN", "PPO", "SAC"}),
        (VECTOR, spaces.Dict({"a": CHOICE}), {"DQN", "PPO", "SAC"}),
        (VECTOR, spaces.Discrete(2**50), {"DQN", "PPO", "SAC"}),  # torch reports that there is not enough memory
    ],
)
def test_algorithms_are_asked(observation_space: Any, action_space: Any, refusing: set[str]) -> None:
    assert refusals(observation_space, action_space).keys() == refusing


@pytest.mark.parametrize(
    ("observation_space", "action_space", "algorithm", "wrappers"),
    [
        (spaces.Dict({"see": PICTURE, "hear": TEXT}), CHOICE, "PPO", ["FilterObservation", "FlattenObservation"]),
        (
            spaces.Dict({"see": VECTOR, "links": spaces.Graph(VECTOR, None), "some": spaces.Sequence(VECTOR)}),
            CHOICE,
            "DQN",
            ["FilterObservation"],
        ),
        (spaces.Tuple((VECTOR, TEXT)), CHOICE, "PPO", ["FilterObservation", "FlattenObservation"]),
        (TEXT, CHOICE, "DQN", ["FlattenObservation"]),
        (spaces.Graph(VECTOR, None), CHOICE, "PPO", []),
        (spaces.Sequence(VECTOR), CHOICE, "PPO", []),
        (VECTOR, VECTOR, "DQN", ["DiscretizeAction"]),
        (VECTOR, spaces.Box(-np.inf, np.inf, (1,)), "DQN", []),
        (VECTOR, spaces.Box(0, 9, (2,), np.int64), "DQN", []),
        (VECTOR, spaces.Dict({}), "PPO", []),
        (VECTOR, spaces.MultiDiscrete([2, 3]), "DQN", ["TransformAction"]),
        (VECTOR, spaces.Dict({"go": CHOICE, "turn": spaces.Discrete(2, start=1)}), "PPO", ["TransformAction"]),
        (VECTOR, spaces.Tuple((CHOICE, spaces.Discrete(2))), "PPO", ["TransformAction"]),
        (VECTOR, spaces.Dict({"arm": VECTOR, "hand": spaces.Box(0, 1, (2, 2))}), "PPO", ["TransformAction"]),
        (spaces.Tuple((VECTOR, TEXT)), VECTOR, "DQN", ["FilterObservation", "FlattenObservation"]),
    ],
)
def test_advised_wrappers_work(observation_space: Any, action_space: Any, algorithm: str, wrappers: list[str]) -> None:
    """Each wrapper is built from the text of the suggestion and played."""
    suggestions = helpful_wrappers(observation_space, action_space, refusals)[algorithm]
    assert [text.removeprefix("gymnasium.wrappers.").partition("(")[0] for text in suggestions] == wrappers
    for text in suggestions:
        names = {"env": sampling(observation_space, action_space)(), "gymnasium": gymnasium, "np": np}
        for code in text.split(", then "):
            names["env"] = eval(code.rpartition(" (")[0], names)  # rebinds `env`, as a user would
        wrapped = names["env"]
        assert algorithm not in refusals(wrapped.observation_space, wrapped.action_space)
        assert not examined_here(wrapped, steps=12).errors


def test_a_wrapper_of_ones_own_works_where_no_ready_one_does() -> None:
    class Padded(gymnasium.ObservationWrapper[Any, Any, Any]):
        observation_space = spaces.Box(-1, 1, (8,), np.float32)

        def observation(self, observation: Any) -> Any:
            numbers = np.concatenate([*observation, np.zeros(8)])[:8]
            return numbers.astype(np.float32)

    env = Padded(sampling(spaces.Sequence(VECTOR), CHOICE)())
    assert refusals(env.observation_space, env.action_space) == {}
    assert not examined_here(env, steps=12).errors


def test_minigrid(monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniGrid's mission has a custom space; MiniGrid's own wrappers are suggested first."""
    mission = type("MissionSpace", (spaces.Space,), {"__module__": "minigrid.core.mission"})()

    class ImgObsWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = env.observation_space["image"]

    class FlatObsWrapper(ImgObsWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = spaces.Box(0, 255, (2835,), np.uint8)

    wrappers = types.ModuleType("minigrid.wrappers")
    vars(wrappers).update(ImgObsWrapper=ImgObsWrapper, FlatObsWrapper=FlatObsWrapper)
    monkeypatch.setitem(sys.modules, "minigrid", types.ModuleType("minigrid"))
    monkeypatch.setitem(sys.modules, "minigrid.wrappers", wrappers)
    grid = spaces.Box(0, 255, (7, 7, 3), np.uint8)
    seen = spaces.Dict({"direction": spaces.Discrete(4), "image": grid, "mission": mission})
    assert helpful_wrappers(seen, spaces.Discrete(7), refusals) == dict.fromkeys(
        ("DQN", "PPO", "SAC"),
        (
            "minigrid.wrappers.ImgObsWrapper(env) (the grid without the mission)",
            "minigrid.wrappers.FlatObsWrapper(env) (grid and mission as one vector)",
        ),
    )


@pytest.mark.filterwarnings("ignore:.*precision lowered")  # expected
@pytest.mark.parametrize(("high", "dtype"), [(255, np.uint8), (1, np.float32)])
def test_pictures_of_doubles(high: int, dtype: Any) -> None:
    env = sampling(spaces.Box(0, high, (8, 8, 3), np.float64), CHOICE)()
    advice = smaller_pictures(env.observation_space)
    assert advice is not None
    smaller = eval(advice.partition(" takes ")[0], {"env": env, "gymnasium": gymnasium, "np": np})
    assert smaller.observation_space.dtype == dtype
    assert refusals(smaller.observation_space, smaller.action_space) == {}
    assert not examined_here(smaller, steps=12).errors
    assert smaller_pictures(smaller.observation_space) is None


def test_an_environment_that_every_algorithm_takes() -> None:
    report = envfleet.check(Walk, steps=10)
    assert report.problems == ()
    assert report.algorithms == ("DQN", "PPO", "SAC")
    assert report.notes[-1] == "DQN, PPO and SAC can train on it"


def test_one_that_only_some_take() -> None:
    report = check(sampling(VECTOR, VECTOR)(), steps=10)
    assert report.problems == ()
    assert report.algorithms == ("PPO", "SAC")
    able, unable = report.notes[-2:]
    assert able == "PPO and SAC can train on it"
    assert unable.startswith("DQN cannot train on it: the action space is Box(")
    assert unable.endswith("a wrapper helps: gymnasium.wrappers.DiscretizeAction(env, 5) (25 actions)")


def test_one_that_none_takes_is_a_warning() -> None:
    report = check(sampling(spaces.Dict({"see": VECTOR, "hear": TEXT}), CHOICE)(), steps=10)
    assert report.ok
    assert report.algorithms == ()
    (problem,) = report.problems
    assert problem.what.startswith("DQN, PPO and SAC cannot train on it: the observation at 'hear' is Text(")
    assert problem.fix.startswith("wrap it: gymnasium.wrappers.FilterObservation(env, ['see']) (without 'hear'), or ")


def test_one_that_no_ready_wrapper_helps() -> None:
    report = check(sampling(spaces.Sequence(VECTOR), CHOICE)(), steps=10)
    (problem,) = report.problems
    assert "write a gymnasium.ObservationWrapper" in problem.fix


def test_one_without_spaces_has_no_algorithms() -> None:
    assert check(lambda: None).algorithms is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        with monkeypatch.context() as changed:
            changed.setattr(sys, "stderr", stream)
            check(Walk(), steps=5, progress=True)
        assert ("asking the algorithms" in stream.getvalue()) is shown
        assert bool(stream.getvalue()) is shown
