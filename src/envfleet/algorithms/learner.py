"""The contract between training and an algorithm. Importing this does not load torch.

An algorithm is a settings class and a learner. Training sees nothing else of it:

- The settings class (a subclass of `TrainingSettings`) builds the policy and the learner, and says how rollouts are
  collected.
- The learner takes rollouts and returns metrics. Between two rollouts, training publishes its weights to the workers.
- A checkpoint holds the policy's weights, the learner's state, and its pieces.

`docs/own-algorithm.md` shows a complete algorithm that lives outside the package.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # heavy: settings are read without them, e.g. for --help
    import numpy as np
    import torch

    from envfleet.policies.protocol import ActingPolicy
    from envfleet.rollout.arrays import Rollout

    Array = np.ndarray[Any, Any]

__all__ = ["Learner", "LearnsFromDemonstrations", "TakesDemonstrations"]


class Learner(Protocol):
    """Learns from rollouts. Subclass it: the methods with a body suit an algorithm that needs nothing special."""

    policy: ActingPolicy  # a torch module on `device`; it is saved with the run and plays in evaluations
    device: torch.device

    # --- learning

    @abstractmethod
    def learn(
        self, rollout: Rollout, begun: float, reached: float | None = None, until: float = math.inf
    ) -> dict[str, float]:
        """Learn from a rollout and return metrics, e.g. {"train/loss": 0.1}.

        `begun` and `reached` are the fractions of the budget used before and after the rollout (`reached` is `begun` if
        not given); rates follow them. Rows that are not `rollout.valid` never happened and must not count. Call
        `check_time(until)` between minibatches, so that a timed run ends in time.
        """

    @abstractmethod
    def weights(self) -> Array:
        """Return what the workers need to act, as one flat float32 array. It is copied before `learn` runs again."""

    def notices(self) -> list[str]:
        """Return notices for the user before training begins, one line each."""
        return []

    def close(self) -> None:
        """Stop threads and free resources."""
        return

    # --- checkpoints

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything but the policy's weights that learning depends on, as plain data and arrays."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        """Restore the results of `state` and `pieces`. The policy's weights are already loaded."""

    def pieces(self) -> dict[str, dict[str, Array] | None]:
        """Return large data in named pieces, oldest first. Each is written once: later calls return None for it."""
        return {}

    def begin_fresh_episodes(self) -> None:
        """Adapt the restored state: the environments of the resumed run begin new episodes."""
        return

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take what a new run inherits from the `state` of another one (`init_from`) beside its weights."""
        return


@runtime_checkable
class LearnsFromDemonstrations(Protocol):
    """A learner that can be shown demonstrations before its first rollout."""

    def show(self, rollout: Rollout, until: float = math.inf) -> None:
        """Learn from demonstrations, one environment's steps as a rollout.

        Call `check_time(until)` between minibatches, as in `learn`.
        """


@runtime_checkable
class TakesDemonstrations(Protocol):
    """Settings of an algorithm whose learner is a `LearnsFromDemonstrations`."""

    demonstrations: str | Callable[..., Any] | None
    demonstration_steps: int
    regenerate_demonstrations: bool
