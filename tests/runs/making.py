"""Runs for tests of comparisons, written as training writes them but without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envfleet.runs import metrics
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.metrics import MetricsWriter

CODE = "0123456789abcdef"  # digest of the files of Envfleet
SETTINGS = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "env_kwargs": {},
    "backend": "sequential",
    "workers": None,
    "steps": 1000,
    "duration": None,
    "learning_rate": 0.001,
}


def make_run(
    path: Path,
    *,
    seed: int = 1,
    speed: float = 100.0,
    returns: Sequence[float] = (10.0, 20.0, 30.0, 40.0),
    more: Mapping[str, float] | None = None,
    finished: bool = True,
    weights: float | None = None,
    began: float = 1_000_000.0,
    manifest: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Write a run with one update per entry of `returns`: 250 steps, 100 episodes and 5 gradient steps each."""
    recorded = {**SETTINGS, "seed": seed, "output_dir": str(path), **settings}
    folder = RunFolder.create(path, env=recorded["env"], algorithm=recorded["algorithm"], seed=seed, settings=recorded)
    folder.write_config(recorded)
    workers = recorded["workers"] or 1
    placement = {"backend": recorded["backend"], "workers": workers, "acting": "worker"}
    folder.update_manifest(**{"placement": placement, "code": CODE, "git": None, **(manifest or {})})
    now = began
    with pytest.MonkeyPatch.context() as patch, closing(MetricsWriter(folder.metrics)) as writer:
        patch.setattr(metrics, "time", SimpleNamespace(time=lambda: now))
        for number, value in enumerate(returns, start=1):
            now += 250 / speed
            row = {
                "rollout/ep_rew_mean": value,
                "rollout/episodes": 100.0 * number,
                "time/fps": speed,
                "time/learning": 0.25,
                "train/n_updates": 5.0 * number,
            }
            writer.write(250 * number, {**row, **(more or {})})
    if weights is not None:
        import torch

        checkpoints = Checkpoints(folder.checkpoints)
        checkpoints.save(250 * len(returns), {"weight": torch.full((3,), weights)}, {})
        if finished:
            checkpoints.mark("final", 250 * len(returns))
    return path
