"""An environment that hangs in the caller's process: the first time-out ends the run with its stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from envfleet.errors import EnvHungError
from tests.training.envs import Hanging
from tests.training.running import run


def test_a_hang_in_the_main_thread_is_not_taken_for_a_ctrl_c(tmp_path: Path, limits_hold: Path) -> None:
    with pytest.raises(EnvHungError, match="did not return within 1 s"):
        run(tmp_path / "run", env=Hanging, env_kwargs={"mark": str(limits_hold)}, timeout=1.0)
