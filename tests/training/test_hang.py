"""An environment that hangs in this very process: the first time-out ends the run with its stack."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import EnvHungError
from tests.rollout.envs import Counter
from tests.training.running import run


class Hanging(Counter):
    """Sleeps for ever in its fortieth step."""

    def __init__(self) -> None:
        super().__init__()
        self._steps_so_far = 0

    def step(self, action: Any) -> Any:
        self._steps_so_far += 1
        if self._steps_so_far == 40:
            time.sleep(600)
        return super().step(action)


def test_a_hang_in_the_main_thread_is_not_taken_for_a_ctrl_c(tmp_path: Path) -> None:
    with pytest.raises(EnvHungError, match="did not return within 1 s"):
        run(tmp_path / "run", env=Hanging, timeout=1.0)
