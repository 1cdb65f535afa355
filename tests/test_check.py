"""Every problem that `check` can name, each shown by a small environment that has it and no other."""

from __future__ import annotations

import copy
import functools
import random
import subprocess
import sys
import threading
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.conformance import CheckReport, examination
from envfleet.conformance import check as check_in_full
from envfleet.conformance.values import fingerprint, mismatch
from envfleet.errors import EnvError, SettingsError

check = functools.partial(check_in_full, steps=40)
Result = tuple[Any, Any, Any, Any, Any]


@pytest.fixture(autouse=True)
def no_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring a state takes two processes each time; test_exactness.py has the tests of it."""
    monkeypatch.setattr(examination, "why_inexact", lambda *_, **__: None)


class Walk(gymnasium.Env):
    """A random walk that keeps all the rules; the broken ones below change one thing each."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}
    episode_length = 10

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-1000, 1000, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.render_mode = render_mode

    def observe(self) -> Any:
        return np.array([self.position, self.taken], np.float32)

    def start(self) -> float:
        return self.np_random.uniform(-1, 1)

    def noise(self) -> float:
        return self.np_random.normal()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.taken, self.position = 0, self.start()
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.taken += 1
        self.position = float(np.clip(self.position + float(np.sum(action)) - 1 + self.noise(), -100, 100))
        return self.observe(), -abs(self.position), self.taken >= self.episode_length, False, {}

    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)


class ContinuousWalk(Walk):
    def __init__(self, low: float = -1, high: float = 1) -> None:
        super().__init__()
        self.action_space = spaces.Box(low, high, (1,), np.float32)


def returning(**changes: Any) -> type[Walk]:
    """A Walk whose steps return other values under these names (functions of the environment)."""
    names = ("observation", "reward", "terminated", "truncated", "info")

    class Changed(Walk):
        def step(self, action: Any) -> Result:
            result = dict(zip(names, super().step(action), strict=True))
            result.update({name: change(self) for name, change in changes.items()})
            return tuple(result.values())  # type: ignore[return-value]

    return Changed


def only_problem(report: CheckReport) -> tuple[str, str, str]:
    assert len(report.problems) == 1, str(report)
    problem = report.problems[0]
    return problem.severity, problem.what, problem.fix


def assert_problem(report: CheckReport, severity: str, what: str, fix: str) -> None:
    """The report has one problem alone, and says this about it."""
    found_severity, found_what, found_fix = only_problem(report)
    assert found_severity == severity
    assert what in found_what
    assert fix in found_fix


def test_an_environment_that_keeps_the_rules_has_no_problems() -> None:
    report = check(Walk)
    assert report.ok
    assert report.problems == ()
    assert str(report).startswith("Walk: ok, nothing to mend")


@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"])
def test_environments_of_gymnasium_have_no_problems(env: str) -> None:
    report = check(env)
    assert report.problems == ()
    assert report.steps == 40
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
    class Sampler(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = self.action_space = copy.deepcopy(space)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            gymnasium.Env.reset(self, seed=seed)
            self.taken = 0
            if seed is not None:
                self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Result:
            assert action in self.action_space
            self.taken += 1
            return self.observation_space.sample(), 0.0, self.taken >= 10, False, {}

    assert not check(Sampler).errors


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


# ----------------------------------------------------------------------------------------------------- step


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (lambda result: None, "step returned None, expected a tuple of 5"),
        (lambda result: result[:3], "step returned a tuple of 3, expected a tuple of 5"),
        (lambda result: (*result[:3], result[4]), "step returned a tuple of 4 (the API of old gym)"),
    ],
)
def test_step_returns_no_five_values(returned: Any, what: str) -> None:
    class Short(Walk):
        def step(self, action: Any) -> Any:
            return returned(super().step(action))

    assert_problem(check(Short), "error", what, "(observation, reward, terminated, truncated, info)")


@pytest.mark.parametrize(
    ("observation", "what", "fix"),
    [
        (None, "is None, expected an array", "np.asarray"),
        (np.zeros(3, np.float32), "has shape (3,), expected (2,)", "declare the shape"),
        (np.zeros(2, np.complex64), "has dtype complex64, expected float32", ".astype(np.float32)"),
        (np.array([0, np.nan], np.float32), "has 1 NaN in 2 values", "division by zero"),
        (np.array([0, 1001], np.float32), "is 1001.0 at index [1], expected -1000.0 to 1000.0", "clip"),
        (np.array([-np.inf, 0], np.float32), "is -inf at index [0]", "clip"),
    ],
)
def test_observations_outside_their_space(observation: Any, what: str, fix: str) -> None:
    report = check(returning(observation=lambda env: observation))
    assert_problem(report, "error", f"observation {what}", fix)
    assert "returned by step 1)" in report.problems[0].what


@pytest.mark.parametrize(
    ("observation", "what", "fix"),
    [
        ([0.0, 0.0], "is a list, expected an array of shape (2,) and dtype float32", "np.asarray"),
        (np.zeros(2), "has dtype float64, expected float32", ".astype(np.float32)"),
        (np.array([0, np.nextafter(1000, 2000, dtype=np.float32)], np.float32), "is 1000.00006", "clip"),
    ],
)
def test_observations_that_a_fleet_accepts_are_warnings(observation: Any, what: str, fix: str) -> None:
    report = check(returning(observation=lambda env: observation))
    assert report.ok
    assert_problem(report, "warning", f"observation {what}", fix)
    assert "a fleet accepts it with a warning" in report.problems[0].fix


def test_a_reward_in_an_array_of_one_element_is_a_warning() -> None:
    report = check(returning(reward=lambda env: np.array([1.0])))
    assert_problem(report, "warning", "the reward is array([1.]) (a ndarray), expected a number", "float(reward)")


def test_the_step_of_the_first_bad_observation_is_named() -> None:
    late = np.array([0, 1001], np.float32)
    report = check(returning(observation=lambda env: late if env.taken == 7 else env.observe()))
    assert "(returned by step 7)" in only_problem(report)[1]


@pytest.mark.parametrize(
    ("space", "value", "what"),
    [
        (spaces.Discrete(3), 3, "x is 3, expected a member of Discrete(3)"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "x is 3 at index [1], expected 0 to 2"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "x is 2 at index [1], expected 0 to 1"),
        (spaces.Box(0, 1, ()), 2.0, "x is 2.0, expected 0.0 to 1.0"),
        (spaces.Dict({"a": spaces.Discrete(2)}), 1, "x is an int, expected a dict with the keys ['a']"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, "x has the keys ['b'], expected ['a']"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 5}, "x['a'] is 5"),
        (spaces.Tuple([spaces.Discrete(2)]), [1], "x is a list, expected a tuple of 1"),
        (spaces.Tuple([spaces.Discrete(2)]), (1, 1), "x is a tuple of 2, expected a tuple of 1"),
        (spaces.Tuple([spaces.Discrete(2)]), (5,), "x[0] is 5"),
    ],
)
def test_a_mismatch_names_the_place_the_received_and_the_expected(
    space: spaces.Space[Any], value: Any, what: str
) -> None:
    found = mismatch(space, value, "x")
    assert found is not None
    assert what in found.what


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(2), np.float64(0.5)])
def test_numbers_of_all_types_are_rewards(reward: Any) -> None:
    assert check(returning(reward=lambda env: reward)).problems == ()


@pytest.mark.parametrize(
    ("reward", "what", "fix"),
    [
        (np.nan, "the reward is nan (step 1), expected a finite number", "division"),
        (np.inf, "the reward is inf", "division"),
        (np.array([1.0, 2.0]), "the reward is array([1., 2.]) (a ndarray), expected a number", "float(reward)"),
        (None, "the reward is None", "float(reward)"),
    ],
)
def test_rewards_that_are_no_finite_numbers(reward: Any, what: str, fix: str) -> None:
    assert_problem(check(returning(reward=lambda env: reward)), "error", what, fix)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_that_are_no_bools(name: str) -> None:
    report = check(returning(**{name: lambda env: int(env.taken >= 10)}))
    assert_problem(report, "error", f"{name} is 0 (an int), expected a bool", f"bool({name})")


def test_flags_that_cannot_be_bools() -> None:
    report = check(returning(terminated=lambda env: np.zeros(2, bool)))
    assert_problem(report, "error", "terminated is array([False, False])", "bool(terminated)")


def test_numpy_bools_are_bools() -> None:
    assert check(returning(terminated=lambda env: np.bool_(env.taken >= 10))).problems == ()


def test_an_action_that_is_changed() -> None:
    class Clipping(ContinuousWalk):
        def step(self, action: Any) -> Any:
            action *= 0.5
            return super().step(action)

    assert_problem(check(Clipping), "error", "step changed its action from array(", "action.copy()")


def test_an_observation_that_changes_afterwards() -> None:
    class Reusing(Walk):
        def __init__(self) -> None:
            super().__init__()
            self._buffer = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self._buffer[:] = super().observe()
            return self._buffer

    assert_problem(check(Reusing), "warning", "both are the same array", ".copy()")


def test_an_observation_that_changes_inside_a_dict() -> None:
    class Reusing(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"walk": self.observation_space})
            self._buffer = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self._buffer[:] = super().observe()
            return {"walk": self._buffer}

    assert_problem(check(Reusing), "warning", "both are the same array", ".copy()")


# ----------------------------------------------------------------------------------------------------- info


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_info_that_is_no_dict(call: str) -> None:
    class Listing(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            observation, info = super().reset(seed=seed)
            return observation, [] if call == "reset" else info

    env = Listing if call == "reset" else returning(info=lambda env: [])
    assert_problem(check(env), "error", f"the info of {call} is a list, expected a dict", "a dict as the last")


def test_an_info_that_is_used_again() -> None:
    shared = {"key": 1}
    report = check(returning(info=lambda env: shared))
    assert_problem(report, "warning", "step returned the same info dict", "build a new info dict")


def test_an_info_that_cannot_be_pickled() -> None:
    report = check(returning(info=lambda env: {"lock": threading.Lock()}))
    assert_problem(report, "error", "info['lock'] of step cannot be pickled", "only numbers, strings")


def test_an_info_at_the_end_of_an_episode_that_cannot_be_pickled() -> None:
    class Late(Walk):
        episode_length = 30

        def step(self, action: Any) -> Any:
            *result, ended, truncated, _ = super().step(action)
            return (*result, ended, truncated, {"lock": threading.Lock()} if ended else {})

    assert_problem(check(Late), "error", "info['lock'] of step cannot be pickled", "only numbers, strings")


def masked(mask: Any, space: spaces.Space[Any] | None = None) -> type[Walk]:
    class Masked(returning(info=lambda env: {"action_mask": mask})):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space or self.action_space

    return Masked


@pytest.mark.parametrize(
    ("mask", "space"),
    [
        (np.array([1, 0, 1], np.int8), spaces.Discrete(3)),
        (np.array([True, False, True]), spaces.Discrete(3, start=5)),
        (np.array([1, 0, 1, 1, 0]), spaces.MultiDiscrete([2, 3])),
        ((np.array([1, 0]), np.array([0, 0, 1])), spaces.MultiDiscrete([2, 3])),
    ],
)
def test_action_masks_that_fit(mask: Any, space: spaces.Space[Any]) -> None:
    assert check(masked(mask, space)).problems == ()


def test_random_actions_keep_to_the_mask() -> None:
    taken = set()

    class Only(masked(np.array([0, 1, 0], np.int8))):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            if self.taken:  # the info of reset has no mask
                taken.add(int(action))
            return super().step(action)

    assert check(Only).ok
    assert taken == {1}


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (np.ones(4), "expected shape (3,) of 0 and 1"),
        (np.array([0, 2, 1]), "expected shape (3,) of 0 and 1"),
        (None, "action_mask'] of step is None"),
    ],
)
def test_action_masks_that_do_not_fit(mask: Any, what: str) -> None:
    assert_problem(check(masked(mask)), "error", what, "one entry per action")


def test_an_action_mask_of_the_wrong_parts() -> None:
    mask = (np.ones(2), np.ones(2))
    report = check(masked(mask, spaces.MultiDiscrete([2, 3])))
    assert_problem(report, "error", "one mask of each size in [2, 3]", "one entry per action")


def test_an_action_mask_that_allows_nothing() -> None:
    assert_problem(check(masked(np.zeros(3))), "error", "allows no action", "does nothing, or end the episode")


def test_an_action_mask_may_allow_nothing_once_the_episode_is_over() -> None:
    env = returning(info=lambda env: {"action_mask": np.full(3, env.taken < 10)})
    assert check(env).problems == ()


def test_an_action_mask_for_continuous_actions() -> None:
    report = check(masked(np.ones(2), spaces.Box(-1, 1, (2,))))
    assert_problem(report, "warning", "masks an action space of type Box", "leave out the mask")


# ------------------------------------------------------------------------------------------------- episodes


class Endless(Walk):
    episode_length = 10**9


def test_episodes_that_never_end() -> None:
    report = check(Endless, steps=20)
    assert_problem(report, "warning", "no episode ended within 200 random steps", "TimeLimit")


def test_episodes_that_end_late_are_found() -> None:
    class Late(Walk):
        episode_length = 150

    assert check(Late, steps=20).problems == ()


def test_a_time_limit_is_trusted() -> None:
    report = check(lambda: gymnasium.wrappers.TimeLimit(Endless(), 10**6), steps=20)
    assert report.problems == ()
    assert check("MountainCar-v0", steps=20).problems == ()  # its limit is in its spec


def test_an_environment_that_resets_itself() -> None:
    class Selfish(Walk):
        def step(self, action: Any) -> Any:
            if self.taken >= self.episode_length:
                observation, info = self.reset()
                return observation, 0.0, False, False, info
            return super().step(action)

    assert_problem(check(Selfish), "warning", "the environment resets itself", "let reset alone begin episodes")


def test_the_wrapper_that_resets() -> None:
    report = check(lambda: gymnasium.wrappers.Autoreset(Walk()))
    assert any("Autoreset wrapper" in problem.fix for problem in report.warnings)


def test_an_environment_may_refuse_steps_after_the_end() -> None:
    class Strict(Walk):
        def step(self, action: Any) -> Any:
            assert self.taken < self.episode_length
            return super().step(action)

    assert check(Strict).problems == ()


# ------------------------------------------------------------------------------------------- seeds and state


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
    torch = types.ModuleType("torch")  # what the check needs of it; the real one takes seconds to import
    torch.get_rng_state = state.copy  # type: ignore[attr-defined]
    torch.set_rng_state = lambda saved: state.__setitem__(slice(None), saved)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)

    class Tensor(Walk):
        def noise(self) -> float:
            state[0] += 0.01
            return float(state[0])

    assert_problem(check(Tensor()), "error", "the same seed gives another episode", "generator of torch")
    assert state[0] == 0  # put back


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


# ------------------------------------------------------------------------------------ the user's own errors


def raising(operation: str) -> type[Walk]:
    def fail(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return 1 / len(arguments * 0)  # the line to be seen in the report

    return type("Raising", (Walk,), {operation: fail})


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("__init__", "building the environment"),
        ("reset", "reset"),
        ("step", "step"),
        ("render", "render"),
        ("close", "close"),
    ],
)
def test_an_environment_that_raises_shows_its_own_traceback(operation: str, name: str) -> None:
    kwargs = {"render_mode": "rgb_array"} if operation == "render" else None
    report = check(raising(operation), env_kwargs=kwargs)
    assert_problem(report, "error", f"{name} raised ZeroDivisionError", "mend what the traceback shows")
    traceback = report.problems[0].traceback
    assert "return 1 / len(arguments * 0)" in traceback
    assert "ZeroDivisionError: division by zero" in traceback
    assert traceback.count("File ") == 1  # none of ours


def test_wrappers_are_left_out_of_the_traceback() -> None:
    report = check(lambda: gymnasium.wrappers.TimeLimit(raising("step")(), 10))
    assert report.problems[0].traceback.count("File ") == 1


def test_an_environment_that_raises_is_still_closed() -> None:
    closed = []

    class Raising(raising("step")):  # type: ignore[misc]
        def close(self) -> None:
            closed.append(self)

    check(Raising)
    assert len(closed) == 2  # the second call is part of the check


# --------------------------------------------------------------------------------------- factories and report


def test_a_factory_that_cannot_be_pickled() -> None:
    lock = threading.Lock()

    def build() -> Walk:
        with lock:
            return Walk()

    assert_problem(check(build), "warning", "cannot be sent to worker processes: TypeError", "inside the factory")


def test_a_given_environment_stays_open_and_is_noted() -> None:
    closed = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(self)

    report = check(Closing())
    assert report.problems == ()
    assert closed == []
    assert any("not what builds it" in note for note in report.notes)


def test_a_state_that_is_no_plain_data_is_noted() -> None:
    class Secretive(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.secret = iter(range(10**9))

    report = check(Secretive)
    assert report.resumable is False
    assert any("resume starts fresh episodes: Secretive.secret" in note for note in report.notes)


def test_a_state_that_raises_is_an_error_of_the_environment() -> None:
    class Broken(Walk):
        def get_state(self) -> Any:
            raise ZeroDivisionError("in get_state")

        def set_state(self, state: Any) -> None:
            pass

    assert_problem(check(Broken), "error", "giving its state raised ZeroDivisionError", "mend what the traceback")


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(SettingsError, match="steps is 0"):
        check(Walk, steps=0)
    with pytest.raises(SettingsError, match="already built"):
        check(Walk(), env_kwargs={"render_mode": None})
    with pytest.raises(SettingsError, match="nearest: CartPole-v1"):
        check("CartPol-v1")
    with pytest.raises(SettingsError, match="v99"):
        check("CartPole-v99")


def test_errors_can_be_raised_with_the_whole_report() -> None:
    check(Walk).raise_for_errors()
    check(Endless, steps=20).raise_for_errors()  # a warning only
    report = check(returning(reward=lambda env: np.nan), seed=4)
    with pytest.raises(EnvError, match="the reward is nan") as caught:
        report.raise_for_errors()
    assert caught.value.context.seed == 4


def test_the_report_reads_well() -> None:
    report = check(returning(reward=lambda env: None, terminated=lambda env: 0), steps=20)
    lines = str(report).splitlines()
    assert lines[0] == "returning.<locals>.Changed: not ok, 2 errors and 1 warning"
    assert lines[2] == "error: terminated is 0 (an int), expected a bool"
    assert lines[3] == "  fix: return bool(terminated) from step"
    assert max(map(len, lines)) < 80
    kinds = [line.split(":")[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert kinds == ["error", "error", "warning", *["note"] * len(report.notes)]


@pytest.mark.parametrize("first", ["import envfleet.conformance.report", "envfleet.CheckReport", "envfleet.check"])
def test_the_function_is_found_whatever_was_imported_before(first: str) -> None:
    program = f"import envfleet; {first}; print(envfleet.check('CartPole-v1', steps=5).ok)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
