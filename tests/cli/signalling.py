"""An environment that sends a signal to its whole process group, as a terminal or a batch scheduler does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

AT = 100  # step of the signal, in the middle of the second rollout


class SignalsItsGroup(gymnasium.Env[Any, Any]):
    """Sends `number` once, while being built or during training, unless the file `sent` exists."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, number: int, sent: str, when: str = "step") -> None:
        self.number, self.sent, self.when = number, sent, when
        self.steps = 0
        # Only workers send. The caller, which leads the process group, also builds an environment to inspect it.
        if when == "make" and os.getpid() != os.getpgrp():
            self.send()

    def send(self) -> None:
        try:
            Path(self.sent).touch(exist_ok=False)
        except FileExistsError:
            return
        os.killpg(os.getpgrp(), self.number)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.when == "step" and self.steps >= AT:
            self.send()
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return observation, float(observation[action]), self.np_random.random() < 0.1, False, {}
