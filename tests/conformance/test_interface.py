"""Problems in an environment's type, spaces and signatures."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.conformance.worlds import ContinuousWalk, Walk, assert_problem, check, sampling


def test_an_environment_that_keeps_the_rules_has_no_problems() -> None:
    report = check(Walk)
    assert report.ok
    assert report.problems == ()
    assert str(report).startswith("Walk: ok, nothing to fix")


@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"])
def test_environments_of_gymnasium_have_no_problems(env: str) -> None:
    report = check(env)
    assert report.problems == ()
    assert report.steps == 24
    assert report.seconds_per_step is not None
    assert report.seconds_per_step > 0


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3, start=2)}),
        spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3], start=[1, -1]))),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Box(0, 1, ()),
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
        spaces.OneOf((spaces.Discrete(2), spaces.Box(0, 1, (1,)))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_all_spaces_are_understood_as_observations_and_actions(space: spaces.Space[Any]) -> None:
    assert not check(sampling(space, space)).errors


# ------------------------------------------------------------------------------------------ type and spaces


def test_a_class_that_is_no_gymnasium_environment() -> None:
    class Duck:
        metadata = Walk.metadata
        observation_space, action_space = Walk().observation_space, Walk().action_space

        def __init__(self) -> None:
            self._walk = Walk()

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self._walk.reset(seed=seed)

        def step(self, action: Any) -> Any:
            return self._walk.step(action)

        def close(self) -> None:
            self._walk.close()

    assert_problem(check(Duck), "error", "Duck is not a gymnasium.Env", "class Duck(gymnasium.Env)")


def test_something_that_is_no_environment_at_all() -> None:
    assert_problem(check(lambda: 3), "error", "int is not a gymnasium.Env", "derive it")


def test_an_environment_of_old_gym_is_told_everything_at_once() -> None:
    old_base = type("Env", (), {"__module__": "gym.core"})
    old_discrete = type(
        "Discrete",
        (),
        {
            "__module__": "gym.spaces.discrete",
            "sample": lambda self: 1,
            "contains": lambda self, value: True,
            "seed": lambda self, seed: None,
        },
    )

    class OldWalk(old_base):  # type: ignore[misc, valid-type]
        observation_space, action_space = old_discrete(), old_discrete()

        def reset(self) -> Any:
            return 1

        def step(self, action: Any) -> Any:
            return 1, 0.0, False, {}

        def close(self) -> None: ...

    report = check(OldWalk, steps=5)
    text = str(report)
    for expected in (
        "OldWalk is an environment of the old gym package",
        "import gymnasium as gym",
        "observation_space is",
        "action_space is",
        "gym.spaces.discrete.Discrete",
        "reset takes nothing, expected seed and options",
        "reset returned an int, expected the pair",
        "step returned a tuple of 4 (the API of old gym)",
    ):
        assert expected in " ".join(text.split()), text


def test_a_vector_environment() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    report = check(vector)  # type: ignore[arg-type]
    vector.close()
    assert_problem(report, "error", "is a vector environment", "the fleet makes many")


def test_a_factory_that_forgets_to_return() -> None:
    assert_problem(check(lambda: None), "error", "the factory returned None", "return it")


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_missing_space(name: str) -> None:
    class Forgetful(Walk):
        def __init__(self) -> None:
            super().__init__()
            delattr(self, name)

    assert_problem(check(Forgetful), "error", f"{name} is missing", f"set self.{name}")


def test_a_space_that_is_none() -> None:
    class Nonsense(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = 4  # type: ignore[assignment]

    assert_problem(check(Nonsense), "error", "action_space is 4", "gymnasium.spaces")


def test_a_space_whose_property_raises() -> None:
    class Raising(Walk):
        @property
        def observation_space(self) -> Any:
            raise KeyError("size")

        @observation_space.setter
        def observation_space(self, value: Any) -> None: ...

    report = check(Raising)
    assert_problem(report, "error", "observation_space raised KeyError", "traceback")
    assert "KeyError: 'size'" in report.problems[0].traceback


def test_a_space_that_does_not_hold_its_own_samples() -> None:
    class Empty(spaces.Space[int]):
        def sample(self, mask: Any = None, probability: Any = None) -> int:
            return 1

        def contains(self, x: Any) -> bool:
            return False

    class Strange(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Empty()

    assert_problem(check(Strange), "error", "a sample of action_space is 1", "its own samples are inside it")


def test_a_space_that_cannot_be_sampled() -> None:
    class Unsampled(spaces.Space[int]):
        def sample(self, mask: Any = None, probability: Any = None) -> int:
            raise NotImplementedError("later")

    class Strange(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Unsampled()

    assert_problem(check(Strange), "error", "action_space.sample raised NotImplementedError", "traceback")


@pytest.mark.parametrize(
    ("low", "high", "what", "fix"),
    [(-np.inf, np.inf, "infinite bounds", "finite bounds"), (-2, 2, "from -2 to 2", "RescaleAction")],
)
def test_bounds_of_actions(low: float, high: float, what: str, fix: str) -> None:
    assert_problem(check(ContinuousWalk, env_kwargs={"low": low, "high": high}), "warning", what, fix)


def test_bounds_of_nested_actions_are_named_by_their_place() -> None:
    class Nested(Walk):
        def __init__(self) -> None:
            super().__init__()
            box = spaces.Box(0, 1, (1,))
            self.action_space = spaces.Dict({"gripper": spaces.Tuple((spaces.Discrete(2), box))})

        def step(self, action: Any) -> Any:
            return super().step(action["gripper"][0])

    assert_problem(check(Nested), "warning", "action_space['gripper'][1]", "RescaleAction")


# ---------------------------------------------------------------------------------------------------- reset


def test_reset_without_seed_and_options() -> None:
    class Unseeded(Walk):
        def reset(self) -> Any:
            return super().reset()

    what = "reset takes nothing, expected seed and options: it lacks seed and options"
    assert_problem(check(Unseeded), "error", what, "def reset(self, *, seed=None, options=None)")


def test_reset_without_options_under_a_wrapper() -> None:
    class NoOptions(Walk):
        def reset(self, seed: int | None = None) -> Any:
            return super().reset(seed=seed)

    report = check(lambda: gymnasium.wrappers.TimeLimit(NoOptions(), 5))
    assert_problem(report, "error", "reset takes seed, expected seed and options: it lacks options", "def reset")


def test_reset_with_any_keywords_is_fine() -> None:
    class Keywords(Walk):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)

    assert check(Keywords).problems == ()


def test_reset_with_a_fixed_default_seed() -> None:
    class Fixed(Walk):
        def reset(self, *, seed: int = 0, options: Any = None) -> Any:
            return super().reset(seed=seed)

    what = "the seed of reset is 0 by default, expected None"
    assert_problem(check(Fixed), "warning", what, "seed=None")


@pytest.mark.parametrize(
    ("returned", "what"),
    [(lambda result: result[0], "a ndarray"), (lambda result: (*result, 1), "a tuple of 3")],
)
def test_reset_returns_no_pair(returned: Any, what: str) -> None:
    class Alone(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return returned(super().reset(seed=seed))

    report = check(Alone)
    expected = f"reset returned {what}, expected the pair (observation, info)"
    assert any(expected in problem.what and "return observation, {}" in problem.fix for problem in report.errors)


# ------------------------------------------------------------------------------------- rendering and closing


@pytest.mark.parametrize("metadata", [None, {}, {"render_modes": "human"}])
def test_metadata_without_render_modes(metadata: Any) -> None:
    env = type("Bare", (Walk,), {"metadata": metadata})
    assert_problem(check(env), "warning", "expected a dict with a list under 'render_modes'", "declare metadata")


def test_metadata_without_frames_per_second() -> None:
    env = type("Timeless", (Walk,), {"metadata": {"render_modes": ["rgb_array"]}})
    assert_problem(check(env), "warning", "no 'render_fps'", "add 'render_fps'")


def test_a_render_mode_that_is_not_declared() -> None:
    report = check(Walk, env_kwargs={"render_mode": "ascii"})
    assert_problem(report, "error", "render_mode is 'ascii', expected None or one of", "metadata['render_modes']")


def test_a_window_for_each_environment() -> None:
    report = check(Walk, env_kwargs={"render_mode": "human"})
    assert_problem(report, "warning", "opens a window", "render_mode=None")


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (None, "render returned None"),
        (np.zeros((4, 6)), "render returned an array of shape (4, 6) and dtype float64"),
        (np.zeros((4, 6, 3)), "dtype float64"),
    ],
)
def test_frames_that_are_no_pictures(frame: Any, what: str) -> None:
    env = type("Blind", (Walk,), {"render": lambda self: frame})
    assert check(Walk, env_kwargs={"render_mode": "rgb_array"}).problems == ()
    assert_problem(check(env, env_kwargs={"render_mode": "rgb_array"}), "error", what, "RGB bytes")


def test_a_second_close_that_raises() -> None:
    class Once(Walk):
        closed = False

        def close(self) -> None:
            if self.closed:
                raise RuntimeError("no window")
            self.closed = True

    assert_problem(check(Once), "warning", "a second close raised RuntimeError: no window", "do nothing")
