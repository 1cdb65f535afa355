"""A run that was trained: its settings, its metrics, and its policy, ready to act."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envfleet.runs.folder import RunFolder, RunSummary, summary_of
from envfleet.runs.metrics import read_metrics

if TYPE_CHECKING:
    from envfleet.runs.checkpoints import Checkpoint
    from envfleet.runs.trained_policy import TrainedPolicy

__all__ = ["Run"]


class Run:
    """What training leaves behind. Loading one runs no code of it."""

    def __init__(self, folder: RunFolder, *, checkpoint: str | None = None, policy: Any = None, trust: bool = False):
        self._folder, self._checkpoint, self._policy_class, self._trust = folder, checkpoint, policy, trust

    @classmethod
    def load(cls, path: str | Path, *, checkpoint: str | None = None, policy: Any = None, trust: bool = False) -> Run:
        """The run in the folder `path`.

        `checkpoint` is final, best, last or step-N (the final one if there is one, else the last). `policy`
        gives the network class of a run that was trained with the user's own; `trust=True` imports it by the
        name that the run recorded.
        """
        return cls(RunFolder.open(path), checkpoint=checkpoint, policy=policy, trust=trust)

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def folder(self) -> RunFolder:
        """Where each of its files is."""
        return self._folder

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved settings it was trained with, as plain data."""
        return self._folder.read_config()

    @property
    def manifest(self) -> dict[str, Any]:
        """Where it was trained and with what: versions, commit, machine, command."""
        return self._folder.read_manifest()

    @property
    def summary(self) -> RunSummary:
        """How far it is and how good, as `envfleet runs` lists it."""
        return summary_of(self._folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl."""
        return read_metrics(self._folder.metrics)

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that was asked for."""
        from envfleet.runs.checkpoints import Checkpoints

        stored = Checkpoints(self._folder.checkpoints)
        if self._checkpoint is not None:
            return stored.load(self._checkpoint)
        return stored.load("final" if stored.step_of("final") is not None else "last")

    @cached_property
    def policy(self) -> TrainedPolicy:
        """The trained policy: `run.policy.act(observation)`."""
        from envfleet.runs.trained_policy import TrainedPolicy

        loaded = self.checkpoint()
        description = loaded.state["policy"]
        return TrainedPolicy.load(description, loaded.policy, policy=self._policy_class, trust=self._trust)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
