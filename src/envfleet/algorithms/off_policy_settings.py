"""Settings that the algorithms with a replay buffer share. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.paths import expanded
from envfleet.settings import setting

if TYPE_CHECKING:
    from envfleet.algorithms.env_facts import EnvFacts

__all__ = ["OffPolicySettings"]


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings(TrainingSettings):
    """Settings of a replay buffer and of demonstrations."""

    schedules: ClassVar[tuple[str, ...]] = ("sync", "overlap", "async")
    off_policy: ClassVar[bool] = True
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        **TrainingSettings.groups,
        "rollout_steps": ("replay", "The replay buffer: collecting, storing and sampling steps."),
        "demonstrations": ("demonstrations", "Learning from demonstrations."),
    }
    aliases: ClassVar[Mapping[str, str]] = {
        **TrainingSettings.aliases,
        "batch_size": "minibatch_size",
        "buffer_size": "replay_size",
        "num_envs": "n_envs",
        "tau": "target_rate",
    }

    # --- the schedule
    max_lag: int = setting(
        1,
        "With async: how many finished rollouts of a worker may wait for the learner before the worker waits too. None "
        "are dropped. More keep unequal workers busy, but the learner then sees the effect of its updates later.",
        minimum=1,
    )

    # --- the replay
    rollout_steps: int = setting(16, "Steps of each environment per rollout, before the learner updates.", minimum=1)
    replay_size: int = setting(100_000, "Size of the replay buffer, in steps of all environments.", minimum=2)
    frame_stack: int | None = setting(
        None,
        "Number of frames stacked in an observation; the replay buffer stores each frame once. 1 stores observations "
        "as they are. By default reported by the environment (Gymnasium's FrameStackObservation, Game Boy pixels).",
        minimum=1,
        maximum=250,
    )
    learning_starts: int = setting(1_000, "Steps to collect before the first update.", minimum=1)
    prioritised: bool = setting(False, "Prioritised experience replay (PER): sample steps by their TD error.")
    priority_exponent: float = setting(
        0.6, "Prioritised replay: exponent of the priorities (alpha); 0 samples uniformly.", minimum=0, maximum=1
    )
    priority_correction: float = setting(
        0.4, "Prioritised replay: exponent of the importance-sampling correction (beta).", minimum=0, maximum=1
    )

    # --- demonstrations
    demonstrations: str | Callable[..., Any] | None = setting(
        None,
        "Source of demonstrations: a .npz file of trajectories (from envfleet.save_demonstrations), module:function (a "
        "policy that takes a batch of observations and returns actions), or environment (if it can demonstrate).",
    )
    demonstration_steps: int = setting(
        10_000, "Steps of demonstrations to collect from a policy or the environment, before training.", minimum=1
    )
    regenerate_demonstrations: bool = setting(
        False, "Generate the environment's demonstrations again, even if a run with the same settings has stored them."
    )
    demonstration_share: float = setting(
        0.25, "Fraction of each batch that is sampled from the demonstrations.", minimum=0, maximum=1
    )
    pretrain_steps: int = setting(0, "Updates on demonstrations alone, before the first rollout.", minimum=0)

    def problems(self) -> list[str]:
        found = super().problems()
        if self.replay_size < self.rollout_steps * self.n_envs:
            found.append(
                f"replay_size is {self.replay_size}, expected at least one rollout: "
                f"rollout_steps x n_envs = {self.rollout_steps * self.n_envs}"
            )
        if self.learning_starts > self.replay_size:
            found.append(
                f"learning_starts is {self.learning_starts}, expected at most replay_size ({self.replay_size})"
            )
        if self.demonstrations is None and self.pretrain_steps:
            found.append("pretrain_steps needs demonstrations, expected a file, a policy or environment")
        return found

    def notices(self) -> list[str]:
        found = super().notices()
        if self.steps is not None and self.learning_starts >= self.steps and not self.pretrain_steps:
            starts = f"learning_starts is {self.learning_starts:,}, but the budget is {self.steps:,} steps"
            found.append(f"{starts}: nothing will be learned. Set a lower learning_starts or more steps")
        return found

    def filled(self, preset: Mapping[str, Any]) -> Self:
        """Like `TrainingSettings.filled`. A preset's learning_starts is lowered to the size of the replay buffer."""
        size = self.replay_size if "replay_size" in self.given else preset.get("replay_size", self.replay_size)
        if preset.get("learning_starts", 0) > size:
            preset = {**preset, "learning_starts": size}
        return super().filled(preset)

    def with_absolute_inputs(self, folder: Path) -> Self:
        settings, shown = super().with_absolute_inputs(folder), self.demonstrations
        is_file = isinstance(shown, str) and Path(shown).suffix == ".npz"
        return settings.but(demonstrations=str(folder / expanded(str(shown)))) if is_file else settings

    @property
    def rollout_length(self) -> int:
        return self.rollout_steps

    @property
    def frames(self) -> int:
        """Frames per stack; 1 if observations are stored as they are."""
        return self.frame_stack or 1

    def adapted(self, env: EnvFacts) -> Self:
        return self.filled({"frame_stack": env.frames})
