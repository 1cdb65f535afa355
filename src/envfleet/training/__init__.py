"""Training: connects environments, fleet, rollouts, an algorithm and a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from envfleet.algorithms.settings import TrainingSettings
    from envfleet.runs.run import Run
    from envfleet.training.callbacks import Callback

__all__ = ["resume", "train"]


def train(settings: TrainingSettings, *, callbacks: Sequence[Callback] = (), folder: Path | None = None) -> Run:
    """Train from settings, e.g. `train(PPO(env="CartPole-v1", n_envs=64, steps=200_000))`. Returns the run.

    Relative paths in the settings start from `folder`, by default the current one.
    """
    from envfleet.fleet.backends.output import printed_by_caller
    from envfleet.training.interruption import ended_cleanly
    from envfleet.training.loop import start

    with ended_cleanly(), printed_by_caller():
        return start(settings, callbacks=callbacks, folder=folder)


def resume(path: str | Path, *, callbacks: Sequence[Callback] = (), trust: bool = False, **changes: Any) -> Run:
    """Resume a stopped or killed run as if it had never been interrupted.

    `changes` are settings that do not affect what was learned so far: steps, backend, workers, quiet, ... If the run
    was trained with your own `env`, `network` or `policy`, pass those as objects, or set `trust=True` to import them by
    the names that the run recorded.
    """
    from envfleet.fleet.backends.output import printed_by_caller
    from envfleet.training.interruption import ended_cleanly
    from envfleet.training.resuming import resume as go_on

    with ended_cleanly(), printed_by_caller():
        return go_on(path, callbacks=callbacks, trust=trust, **changes)
