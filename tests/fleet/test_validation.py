"""Values that Gymnasium accepts but the spaces do not: accepted with a warning, refused, or accepted silently."""

from __future__ import annotations

import logging
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import envfleet
from envfleet.fleet.spaces import leaves_of
from envfleet.fleet.validation import ROUNDING_STEPS, Misfit, fit

Box = spaces.Box
ACTIONS = np.zeros(4, np.int64)
STEPS = 7  # two episodes end


class Returns(gymnasium.Env[Any, Any]):
    """Returns a fixed observation and reward; its episodes have three steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], observation: Any, reward: Any = 1.0) -> None:
        self.observation_space, self._observation, self._reward = space, observation, reward
        self._count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._count = 0
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._count += 1
        return self._observation, self._reward, self._count >= 3, False, {}


def play(env: Any, backend: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    """Return the last step of a fleet of four such environments."""
    fleet = envfleet.make(
        env, 4, group_size=2, seed=1, autoreset="same_step", **{"backend": "sequential", **(backend or {}), **kwargs}
    )
    try:
        fleet.reset()
        for _ in range(STEPS):
            result = fleet.step(ACTIONS)
        return result
    finally:
        fleet.close()


class Sums(Returns):
    """Has every slight mistake in one observation, and its reward in an array."""

    def __init__(self) -> None:
        parts = {
            "rounded": Box(0.0, 1.0, (2,), np.float64),
            "double": Box(-1.0, 1.0, (2,), np.float32),
            "list": Box(-1.0, 1.0, (2,), np.float32),
        }
        observation = {"rounded": np.array([-2e-16, 1.0 + 2e-16]), "double": np.array([0.1, 0.2]), "list": [0.5, 1]}
        super().__init__(spaces.Dict(parts), observation, np.array([2.5]))


HINTS = ("np.clip", ".astype(np.float32)", "np.asarray", "float(reward)")


def test_a_little_wrong_is_accepted_with_one_warning_of_each_kind(
    backend: dict[str, Any], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="envfleet")
    observations, rewards, *_ = play(Sums, backend)
    assert observations["rounded"].tolist() == [[-2e-16, 1.0 + 2e-16]] * 4  # unchanged
    assert observations["double"].dtype == np.float32 and np.allclose(observations["double"], [0.1, 0.2])
    assert observations["list"].tolist() == [[0.5, 1.0]] * 4
    assert rewards.tolist() == [2.5] * 4 and rewards.dtype == np.float64
    # A spawned worker has no log handlers, so its warnings go to its stderr.
    spawned = backend.get("start_method") in ("spawn", "forkserver")
    text = caplog.text + (capfd.readouterr().err if spawned else "")
    reporters = backend["workers"] if spawned else 1
    if backend.get("start_method") == "fork":
        return  # a fork logs to the inherited handlers, here to a list in its own memory
    assert [text.count(hint) for hint in HINTS] == [reporters] * len(HINTS), text
    assert re.search(r"environment \d: expected at 'double' Box\(.*, received dtype float64 \(dtype float32 was", text)


@pytest.mark.parametrize("part", ["rounded", "double", "list", "reward"])
def test_strict_refuses_it(part: str) -> None:
    whole = Sums()
    space = Box(-1.0, 1.0, (2,), np.float32) if part == "reward" else whole.observation_space[part]  # type: ignore[index]
    observation = np.zeros(2, np.float32) if part == "reward" else whole._observation[part]
    reward = np.array([2.5]) if part == "reward" else 1.0
    expected = "bad reward: expected a number" if part == "reward" else "bad observation: expected Box"
    with pytest.raises(envfleet.ObservationError, match=expected):
        play(lambda: Returns(space, observation, reward), validate="strict")


def test_off_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    observations, rewards, *_ = play(Sums, validate="off")
    assert observations["list"].tolist() == [[0.5, 1.0]] * 4 and rewards.tolist() == [2.5] * 4
    assert caplog.text == ""


@pytest.mark.parametrize("mode", ["warn", "strict"])
@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (Box(0, 1, (2,), np.float32), np.array([0.0, np.nan]), "NaN"),
        (Box(0, 1, (2,), np.float32), [0.0, np.nan], "NaN"),
        (Box(0, 1, (2,), np.float32), np.array([0.0, 1.001]), "outside"),
        (Box(0, 1, (2,), np.float32), np.zeros(3), "shape"),
        (Box(0, 1, (2,), np.float32), [0.0, 0.0, 0.0], "shape"),
        (Box(0, 1, (2,), np.float32), [0.0, [0.0, 1.0]], "list"),
        (Box(0, 1, (2,), np.float32), np.array([0, 1], object), "object"),
        (Box(0, 1, (2,), np.float32), ["a", "b"], "<U1"),
        (Box(0, 1, (2,), np.float32), None, "NoneType"),
        (Box(-np.inf, np.inf, (2,), np.float32), np.array([0.0, 1e39]), "float32"),
        (Box(0, 255, (2,), np.uint8), np.array([0.0, 1.0]), "float64"),
        (Box(0, 255, (2,), np.uint8), np.array([0, 256]), "256"),
        (Box(0, 255, (), np.uint8), 300, "300"),
        (spaces.Discrete(3), 1.0, "float64"),
        (spaces.Discrete(3), [1], "shape"),
        (spaces.MultiDiscrete([2, 2]), [0, 2], "2"),
    ],
)
def test_what_is_wrong_stays_an_error(space: spaces.Space[Any], observation: Any, message: str, mode: str) -> None:
    with pytest.raises(envfleet.ObservationError, match="bad observation: expected") as caught:
        play(lambda: Returns(space, observation), validate=mode)
    if mode == "warn":
        assert message in str(caught.value).split("received")[1].split("(environment")[0]


def test_a_value_that_the_dtype_cannot_hold_is_noticed_after_others_were_cast() -> None:
    env = Returns(Box(-np.inf, np.inf, (2,), np.float32), np.zeros(2))

    class Grows(Returns):
        def step(self, action: Any) -> Any:
            self._observation = self._observation * 1e20 + 1.0  # a new array, not the one that was returned
            return super().step(action)

    with pytest.raises(envfleet.ObservationError, match="the largest that float32 holds"):
        play(lambda: Grows(env.observation_space, np.zeros(2)))


def test_an_integer_that_the_dtype_cannot_hold_is_noticed_after_others_were_cast() -> None:
    space = Box(-128, 127, (2,), np.int8)

    class Grows(Returns):
        def step(self, action: Any) -> Any:
            self._observation = self._observation + np.array([0, 100])
            return super().step(action)

    with pytest.raises(envfleet.ObservationError, match="200"):
        play(lambda: Grows(space, np.zeros(2, np.int64)))


@pytest.mark.parametrize("mode", ["warn", "strict", "off"])
@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), None, "1", [], np.array(["1"])])
def test_a_reward_that_is_no_number_is_a_named_error(reward: Any, mode: str) -> None:
    with pytest.raises(envfleet.ObservationError, match="bad reward: expected a number, received") as caught:
        play(lambda: Returns(Box(0, 1, (2,), np.float32), np.zeros(2, np.float32), reward), validate=mode)
    assert "Traceback" not in str(caught.value)


def test_a_bad_reward_on_every_backend(backend: dict[str, Any]) -> None:
    with pytest.raises(envfleet.ObservationError, match=r"received array\(\[1., 2.\]\) \(ndarray of shape \(2,\)\)"):
        play(Pair, backend)


class Pair(Returns):
    def __init__(self) -> None:
        super().__init__(Box(0, 1, (2,), np.float32), np.zeros(2, np.float32), np.array([1.0, 2.0]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high", "size"), [(0.0, 1.0, 1.0), (-8.0, 2.0, 8.0), (0.0, np.inf, 1.0)])
def test_bounds_are_missed_by_a_few_roundings_at_most(dtype: Any, low: float, high: float, size: float) -> None:
    (leaf,) = leaves_of(Box(low, high, (), dtype))
    step = float(np.finfo(dtype).eps) * size
    stored, found = fit(leaf, np.float64(low - ROUNDING_STEPS * step), bounds=True)
    assert stored.dtype == dtype and "bounds" in [deviation.kind for deviation in found]
    with pytest.raises(Misfit, match="out of its bounds"):
        fit(leaf, np.float64(low - 2 * ROUNDING_STEPS * step), bounds=True)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(envfleet.SettingsError, match="validate is 'warm', expected one of strict, warn, off"):
        envfleet.make("CartPole-v1", 2, validate="warm")
