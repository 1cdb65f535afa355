"""An environment that gets another one's state continues with the same bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from envfleet.errors import StateError
from envfleet.fleet.state import capture, restore
from tests.fleet.continuation import Holder, as_bytes, assert_continues_exactly, play, started, through_files

CLASSIC = ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
TOY_TEXT = ["Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1", "Taxi-v4"]

STACKS: dict[str, Callable[[], gymnasium.Env]] = {
    "clipped and transformed twice": lambda: wrappers.TransformObservation(
        wrappers.ClipReward(
            wrappers.TransformObservation(gymnasium.make("Pendulum-v1"), lambda obs: obs * 2, None), -1, 1
        ),
        lambda obs: obs + 1,
        None,
    ),
    "delayed": lambda: wrappers.DelayObservation(gymnasium.make("CartPole-v1"), delay=3),
    "flattened tuple": lambda: wrappers.FlattenObservation(gymnasium.make("Blackjack-v1")),
    "frames, first one repeated": lambda: wrappers.FrameStackObservation(
        gymnasium.make("CartPole-v1"), 4, padding_type="reset"
    ),
    "frames, zeros before": lambda: wrappers.FrameStackObservation(
        gymnasium.make("MountainCarContinuous-v0"), 3, padding_type="zero"
    ),
    "map drawn at random": lambda: gymnasium.make("FrozenLake-v1", map_name=None),
    "normalised": lambda: wrappers.NormalizeReward(wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1"))),
    "rainy taxi": lambda: gymnasium.make("Taxi-v4", is_rainy=True, fickle_passenger=True),
    "recorded": lambda: wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"), buffer_length=5),
    "rescaled MuJoCo, normalised": lambda: wrappers.NormalizeObservation(
        wrappers.RescaleAction(gymnasium.make("Hopper-v5"), np.full(3, -2, np.float32), np.full(3, 2, np.float32))
    ),
    "skipping": lambda: wrappers.MaxAndSkipObservation(gymnasium.make("CartPole-v1"), skip=3),
    "sticky": lambda: wrappers.StickyAction(gymnasium.make("CartPole-v1"), 0.4),
    "time-aware": lambda: wrappers.TimeAwareObservation(gymnasium.make("CartPole-v1"), flatten=False),
    "without checks": lambda: gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped,
}


# ---- exact continuation ----


@pytest.mark.parametrize("before", [0, 1, 2, 83])
@pytest.mark.parametrize("env_id", CLASSIC + TOY_TEXT)
def test_classic_control_and_toy_text_continue_exactly(env_id: str, before: int) -> None:
    assert_continues_exactly(lambda: gymnasium.make(env_id), before, after=400)


@pytest.mark.parametrize("before", [0, 1, 57])
@pytest.mark.parametrize("stack", STACKS)
def test_wrappers_continue_exactly(stack: str, before: int) -> None:
    assert_continues_exactly(STACKS[stack], before, after=300)


def test_the_comparison_sees_a_state_that_was_not_set() -> None:
    original, fresh = started(gymnasium.make("CartPole-v1"), 10), started(gymnasium.make("CartPole-v1"), 9)
    assert play(original, 5) != play(fresh, 5)


def test_one_state_sets_many_environments_and_the_same_one_again() -> None:
    original = started(STACKS["frames, first one repeated"](), 30)
    state = through_files(capture(original))
    expected = play(original, 200)
    first, second = STACKS["frames, first one repeated"](), STACKS["frames, first one repeated"]()
    restore(first, state)
    assert play(first, 200) == expected
    restore(second, state)
    restore(first, state)
    assert play(second, 200) == play(first, 200) == expected


def test_an_environment_goes_back_to_before_its_first_reset() -> None:
    env = gymnasium.make("Pendulum-v1")
    state = through_files(capture(env))
    started(env, 3)
    restore(env, state)
    assert not hasattr(env.unwrapped, "last_u")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())


def test_capture_changes_nothing() -> None:
    watched, left_alone = started(STACKS["normalised"](), 20), started(STACKS["normalised"](), 20)
    first, second = capture(watched), capture(watched)
    assert as_bytes(first) == as_bytes(second)
    assert play(watched, 100) == play(left_alone, 100)


def test_a_captured_state_does_not_move_with_the_environment() -> None:
    env = started(gymnasium.make("HalfCheetah-v5"), 5)
    state = capture(env)
    digest = as_bytes(state)
    play(env, 5)
    assert as_bytes(state) == digest


CONTINUE_ELSEWHERE = """
import hashlib, json, sys
import gymnasium, numpy as np
from envfleet.fleet.state import restore
env_id, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
arrays = np.load(folder + "/arrays.npz", allow_pickle=False)
def put_back(mapping):
    return arrays[mapping["file"]] if mapping.keys() == {"file"} else mapping
with open(folder + "/state.json") as file:
    state = json.load(file, object_hook=put_back)
env = gymnasium.make(env_id)
restore(env, state)
digest = hashlib.sha256()
for _ in range(steps):
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    digest.update(np.asarray(observation).tobytes() + np.float64(reward).tobytes())
    if terminated or truncated:
        digest.update(np.asarray(env.reset()[0]).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("env_id", ["Ant-v5", "CartPole-v1"])
def test_another_process_continues_exactly(env_id: str, tmp_path: Path) -> None:
    env = started(gymnasium.make(env_id), 25)
    arrays: dict[str, np.ndarray] = {}

    def put_aside(array: np.ndarray) -> dict[str, str]:
        arrays[f"array{len(arrays)}"] = array
        return {"file": f"array{len(arrays) - 1}"}

    (tmp_path / "state.json").write_text(json.dumps(capture(env), default=put_aside, allow_nan=False))
    np.savez(tmp_path / "arrays.npz", **arrays)
    command = [sys.executable, "-c", CONTINUE_ELSEWHERE, env_id, str(tmp_path), "120"]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    digest = hashlib.sha256()
    for _ in range(120):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        digest.update(np.asarray(observation).tobytes() + np.float64(reward).tobytes())
        if terminated or truncated:
            digest.update(np.asarray(env.reset()[0]).tobytes())
    assert elsewhere == digest.hexdigest()


def test_generators_of_nested_spaces_draw_the_same() -> None:
    def build() -> Holder:
        parts = {"a": spaces.Box(0, 1), "b": spaces.Tuple([spaces.Discrete(9), spaces.MultiBinary(4)])}
        return Holder(observation_space=spaces.Dict(parts), graph=spaces.Sequence(spaces.Discrete(50)))

    original, fresh = build(), build()
    original.observation_space.seed(1)
    original.graph.seed(2)
    original.observation_space.sample()
    restore(fresh, through_files(capture(original)))
    assert [as_bytes(fresh.observation_space.sample()) for _ in range(9)] == [
        as_bytes(original.observation_space.sample()) for _ in range(9)
    ]
    assert [as_bytes(fresh.graph.sample()) for _ in range(9)] == [as_bytes(original.graph.sample()) for _ in range(9)]


def test_the_generator_of_a_space_that_belongs_to_the_class_is_set() -> None:
    class WithSpaces(Holder):
        action_space: ClassVar[spaces.Space] = spaces.Discrete(1000)

    WithSpaces.action_space.seed(1)
    state = capture(WithSpaces())
    drawn = [WithSpaces.action_space.sample() for _ in range(5)]
    fresh = WithSpaces()
    restore(fresh, state)
    assert [fresh.action_space.sample() for _ in range(5)] == drawn
    assert "action_space" not in vars(fresh)


# ---- kept as built ----


def test_what_renderers_made_stays() -> None:
    surface = type("Surface", (), {"__module__": "pygame.surface"})
    viewer = type("Viewer", (), {})
    original = Holder(screen=surface(), images=[surface()], viewer=viewer(), clock=1.5, render_mode="human")
    fresh = Holder(screen=None, images=None, viewer=None, clock=0.0, render_mode=None)
    restore(fresh, through_files(capture(original)))
    assert vars(fresh) == {"screen": None, "images": None, "viewer": None, "clock": 1.5, "render_mode": None}
    window = surface()
    shown = Holder(screen=window)
    restore(shown, capture(Holder(screen=None)))
    assert shown.screen is window


def test_the_seconds_of_an_episode_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    original = started(wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1")), 3)
    original.episode_start_time -= 1000  # as if the episode had begun long ago
    state = through_files(capture(original))
    fresh = STACKS["recorded"]()
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)  # another process has another clock origin
    restore(fresh, state)
    assert fresh.episode_start_time == pytest.approx(5 - 1000, abs=60)


def test_an_info_that_the_checker_keeps_may_hold_anything() -> None:
    class Informative(Holder):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return 0, {"handle": object()}

        def step(self, action: Any) -> Any:
            return 1, 0.0, False, False, {}

    original, fresh = wrappers.PassiveEnvChecker(Informative()), wrappers.PassiveEnvChecker(Informative())
    original.reset()
    restore(fresh, through_files(capture(original)))
    assert fresh.step(0) == original.step(0)


def test_attributes_outside_the_dictionary_are_set() -> None:
    class Slotted(Holder):
        __slots__ = ("position",)

    original, fresh = Slotted(), Slotted()
    original.position = np.float32(2.5)
    restore(fresh, through_files(capture(original)))
    assert fresh.position == np.float32(2.5)


# ---- own get_state and set_state ----


class OpaqueSimulator:
    """A simulator that cannot be captured and that shares a generator with its environment."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator, self.position = generator, 0.0


class WithPair(gymnasium.Env):
    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1e9, 1e9, (1,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.simulator = OpaqueSimulator(self.np_random)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.simulator = OpaqueSimulator(self.np_random)
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.simulator.position += float(action) + self.simulator.generator.normal()
        return np.array([self.simulator.position]), self.np_random.random(), False, False, {}

    def get_state(self) -> Any:
        return {"position": (self.simulator.position,)}

    def set_state(self, state: Any) -> None:
        (self.simulator.position,) = state["position"]


def test_an_own_pair_speaks_for_its_layer_and_wrappers_for_theirs() -> None:
    assert_continues_exactly(lambda: wrappers.TimeLimit(WithPair(), 20), before=13, after=100)


def test_the_pair_of_a_wrapper_covers_the_wrapper_alone() -> None:
    class Counting(gymnasium.Wrapper):
        def __init__(self, env: gymnasium.Env) -> None:
            super().__init__(env)
            self.counter = iter(range(1000))  # cannot be captured
            self.count = 0

        def step(self, action: Any) -> Any:
            self.count = next(self.counter)
            observation, *rest = self.env.step(action)
            return (observation + self.count, *rest)

        def get_state(self) -> int:
            return self.count

        def set_state(self, state: int) -> None:
            self.count, self.counter = state, iter(range(state + 1, 1000))

    assert_continues_exactly(lambda: Counting(gymnasium.make("Pendulum-v1")), before=13, after=100)


def test_what_a_pair_gives_must_be_plain() -> None:
    class Wrong(WithPair):
        def get_state(self) -> Any:
            return {"simulator": self.simulator}

    with pytest.raises(StateError, match=r"Wrong\.get_state\(\)\['simulator'\] is of type .*OpaqueSimulator"):
        capture(Wrong())


def test_an_error_in_set_state_stays_itself() -> None:
    class Failing(WithPair):
        def set_state(self, state: Any) -> None:
            raise ValueError("my own mistake")

    with pytest.raises(ValueError, match="my own mistake"):
        restore(Failing(), capture(Failing()))


def test_a_set_state_of_two_arguments_is_no_pair() -> None:
    class Positions(Holder):
        def get_state(self) -> Any:
            raise AssertionError("not to be called")

        def set_state(self, positions: Any, velocities: Any) -> None:
            raise AssertionError("not to be called")

    fresh = Positions(value=0)
    restore(fresh, capture(Positions(value=4)))
    assert fresh.value == 4


# ---- refused states ----


def test_the_state_of_another_class_or_chain_is_refused() -> None:
    state = capture(gymnasium.make("CartPole-v1"))
    with pytest.raises(StateError, match=r"CartPoleEnv, and the environment is .*PendulumEnv"):
        restore(gymnasium.make("Pendulum-v1"), state)
    with pytest.raises(StateError, match="the same wrappers"):
        restore(gymnasium.make("CartPole-v1", disable_env_checker=True), state)


def test_a_pair_on_one_side_only_is_refused() -> None:
    class Paired(Holder):
        def get_state(self) -> int:
            return 1

        def set_state(self, state: int) -> None:
            pass

    state = capture(Paired())
    del state["layers"][0]["own"]
    with pytest.raises(StateError, match=r"without get_state\(\)/set_state\(\); this one is with"):
        restore(Paired(), state)


@pytest.mark.parametrize("damage", [{}, {"format": 1}, {"format": 2}, {"format": 1, "layers": [{}]}])
def test_a_damaged_state_is_a_state_error(damage: dict[str, Any]) -> None:
    with pytest.raises(StateError, match=r"damaged|format 2"):
        restore(Holder(), damage)


def test_what_only_the_constructor_sets_is_refused() -> None:
    state = capture(wrappers.TimeLimit(Holder(), 5))
    state["layers"][0]["attributes"]["env"] = None
    with pytest.raises(StateError, match="holds 'env', which only the constructor"):
        restore(wrappers.TimeLimit(Holder(), 5), state)
