"""A trained run: its settings, its metrics, and its policy, ready to act."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envfleet.runs.folder import RunFolder
from envfleet.runs.listing import RunSummary, summary_of
from envfleet.runs.metrics import read_metrics

if TYPE_CHECKING:
    from envfleet.runs.checkpoints import Checkpoint
    from envfleet.runs.trained_policy import TrainedPolicy

__all__ = ["Run"]


class Run:
    """The result of training. Loading a run executes no code from it."""

    def __init__(self, folder: RunFolder, *, checkpoint: str | None = None, policy: Any = None, trust: bool = False):
        self._folder, self._checkpoint, self._policy_class, self._trust = folder, checkpoint, policy, trust

    @classmethod
    def load(cls, path: str | Path, *, checkpoint: str | None = None, policy: Any = None, trust: bool = False) -> Run:
        """Load the run in the folder `path`.

        `checkpoint` is final, best, last or step-N (default: final if it exists, otherwise last). `policy` is the
        network class, if the run was trained with your own. `trust=True` imports that class, or a kind of policy that
        is not part of Envfleet, by the name that the run recorded.
        """
        return cls(RunFolder.open(path), checkpoint=checkpoint, policy=policy, trust=trust)

    @property
    def path(self) -> Path:
        """Path of the run folder."""
        return self._folder.path

    @property
    def folder(self) -> RunFolder:
        """Paths of the run's files."""
        return self._folder

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The resolved settings it was trained with, as plain data."""
        return self._folder.read_config()

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, commit, machine and command of the training."""
        return self._folder.read_manifest()

    @property
    def summary(self) -> RunSummary:
        """Progress and scores, as `envfleet runs` lists them."""
        return summary_of(self._folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl."""
        return read_metrics(self._folder.metrics)

    def checkpoint(self) -> Checkpoint:
        """Load the selected checkpoint."""
        from envfleet.runs.checkpoints import Checkpoints

        stored = Checkpoints(self._folder.checkpoints)
        return stored.load(self._checkpoint or stored.default)

    @cached_property
    def policy(self) -> TrainedPolicy:
        """The trained policy: `run.policy.act(observation)`."""
        from envfleet.runs.trained_policy import TrainedPolicy

        loaded = self.checkpoint()
        description = loaded.state["policy"]
        return TrainedPolicy.load(description, loaded.policy, policy=self._policy_class, trust=self._trust)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
