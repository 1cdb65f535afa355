"""An environment that hangs in the caller's process: the first time-out ends the run with its stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import EnvHungError
from tests.hanging import hang
from tests.rollout.envs import Counter
from tests.training.running import run


class Hanging(Counter):
    """Sleeps forever in its fortieth step."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = Path(mark)
        self._steps_so_far = 0

    def step(self, action: Any) -> Any:
        self._steps_so_far += 1
        if self._steps_so_far == 40:
            hang(self._mark)
        return super().step(action)


def test_a_hang_in_the_main_thread_is_not_taken_for_a_ctrl_c(tmp_path: Path, limits_hold: Path) -> None:
    with pytest.raises(EnvHungError, match="did not return within 1 s"):
        run(tmp_path / "run", env=Hanging, env_kwargs={"mark": str(limits_hold)}, timeout=1.0)
