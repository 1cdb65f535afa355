"""Training in environments whose observations and rewards are slightly wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.errors import ObservationError
from envfleet.training import resume
from tests.training.running import run, weights

KINDS = ("right", "double", "list")


class Draws(gymnasium.Env[Any, Any]):
    """The same numbers as a float32 array, a float64 array or a list; rewards are arrays unless the kind is "right"."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.kind, self.time = kind, 0

    def observe(self) -> Any:
        drawn = self.np_random.uniform(-1, 1, 2)
        return {"right": drawn.astype(np.float32), "double": drawn, "list": list(drawn)}[self.kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = float(action) if self.kind == "right" else np.array([action], np.float32)
        return self.observe(), reward, self.time >= 9, False, {}


def test_they_learn_the_same_as_if_all_were_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learned = []
    for kind in KINDS:
        run(tmp_path / kind, env=Draws, env_kwargs={"kind": kind}, quiet=False, eval_every=12 * 32, eval_episodes=2)
        learned.append(weights(tmp_path / kind))
    assert learned[0] == learned[1] == learned[2]
    assert caplog.text.count("as the reward") == 2  # one per run that has them, none for evaluations


class Outside(Draws):
    """Observations are far outside their bounds."""

    def observe(self) -> Any:
        return super().observe() + np.float32(2)


def test_off_is_off_in_evaluations_too(tmp_path: Path) -> None:
    changes = {"env": Outside, "env_kwargs": {"kind": "right"}, "eval_every": 12 * 32, "eval_episodes": 2}
    with pytest.raises(ObservationError, match="outside"):
        run(tmp_path / "checked", **changes)
    run(tmp_path / "unchecked", validate="off", **changes)
    assert "eval/mean_reward" in (tmp_path / "unchecked" / "metrics.jsonl").read_text()


def test_strict_ends_the_run_and_a_resumed_run_may_change_it(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="received dtype float64"):
        run(tmp_path / "refused", env=Draws, env_kwargs={"kind": "double"}, validate="strict")
    run(tmp_path / "run", env=Draws, env_kwargs={"kind": "double"})
    with pytest.raises(ObservationError, match="received dtype float64"):
        resume(tmp_path / "run", env=Draws, validate="strict", steps=12 * 32 * 4, quiet=True)
