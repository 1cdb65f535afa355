"""The settings of DQN. Importing this loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from envfleet.algorithms.acting import QMaker
from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.algorithms.rates import SCHEDULES_HELP, RateSchedule
from envfleet.policies.q_settings import Q_NETWORKS, QSettings
from envfleet.policies.settings import network_problems
from envfleet.settings import setting

if TYPE_CHECKING:
    from envfleet.algorithms.dqn import DQNLearner
    from envfleet.policies.q_policy import QPolicy

__all__ = ["DQN"]

# Settings of other systems that are not needed here, with what is in their place.
_NO_EFFECT = {
    "collection_batch_size": "each environment collects rollout_steps steps, then all of them go into the replay",
    "experience_buffer_size": "steps go straight into the replay (replay_size), there is no buffer before it",
}


@dataclass(frozen=True, kw_only=True)
class DQN(TrainingSettings):
    """Deep Q-learning (Mnih et al. 2015): double, dueling, n-step, with prioritised replay or noisy heads if wanted."""

    algorithm: ClassVar[str] = "dqn"
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": TrainingSettings.groups["env"],
        "steps": TrainingSettings.groups["steps"],
        "rollout_steps": ("replay", "What is collected and kept."),
        "minibatch_size": ("update", "How DQN learns from the replay."),
        "demonstrations": ("demonstrations", "What somebody who knows how has shown."),
        "initial_epsilon": ("exploration", "How often actions are random."),
        "schedule": TrainingSettings.groups["schedule"],
        "network": ("network", "The network that gives actions their values."),
        "output_dir": TrainingSettings.groups["output_dir"],
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "batch_size": "minibatch_size",
        "buffer_size": "replay_size",
        "memory_capacity": "replay_size",
        "tau": "target_rate",
        "train_freq": "train_frequency",
        "target_update_interval": "target_update_frequency",
        "env_id": "env",
        "num_parallel_envs": "n_envs",
        "num_envs": "n_envs",
        "max_workers": "workers",
        "num_workers": "workers",
        "num_threads": "learner_threads",
        "parallel_method": "backend",
        "regenerate_memories": "regenerate_demonstrations",
        "parallel_start_method": "start_method",
        "total_timesteps": "steps",
    }

    # --- the replay
    rollout_steps: int = setting(16, "Steps of each environment between two rounds of learning.", minimum=1)
    replay_size: int = setting(100_000, "Steps that are kept to learn from.", minimum=2)
    frame_stack: int | None = setting(
        None,
        "Observations are stacks of so many of the last frames, and the replay stores each frame once; 1: as they are. "
        "By default what the environment says (Gymnasium's FrameStackObservation, pixels of the Game Boy).",
        minimum=1,
        maximum=250,
    )
    learning_starts: int = setting(1_000, "Steps that are collected before the first update.", minimum=1)
    prioritised: bool = setting(False, "Draw steps in proportion to the error they had (the extra `replay`).")
    priority_exponent: float = setting(0.6, "How strongly priorities count; 0 draws evenly.", minimum=0, maximum=1)
    priority_correction: float = setting(
        0.4, "How far drawing by priority is corrected for in the loss.", minimum=0, maximum=1
    )

    collection_batch_size: int | None = setting(
        None, f"Accepted from files of other systems, without effect: {_NO_EFFECT['collection_batch_size']}."
    )
    experience_buffer_size: int | None = setting(
        None, f"Accepted from files of other systems, without effect: {_NO_EFFECT['experience_buffer_size']}."
    )

    # --- the update
    minibatch_size: int = setting(64, "Steps per gradient step.", minimum=1)
    train_frequency: int = setting(8, "Collected steps, of all environments together, per round of updates.", minimum=1)
    gradient_steps: int = setting(1, "Gradient steps per round.", minimum=1)
    learning_rate: float = setting(1e-3, "Step size of Adam.", above=0)
    learning_rate_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    learning_rate_warmup: float = setting(
        0.0, "Share of the budget over which the learning rate rises to its whole value.", minimum=0, below=1
    )
    gamma: float = setting(0.99, "Discount of future rewards; 0: the next one is all.", minimum=0, maximum=1)
    n_step: int = setting(3, "Steps whose rewards are added up before the value of a state counts.", minimum=1)
    double: bool = setting(True, "Let the online network choose the action that the target network values.")
    loss: Literal["huber", "mse"] = setting("huber", "huber limits what a single large error can do.")
    target_update_frequency: int = setting(
        250, "Updates (with round_steps: rounds) after which the target network is renewed.", minimum=1
    )
    target_rate: float | None = setting(
        None, "Instead of that, the share by which it follows after every update.", above=0, maximum=1
    )
    max_gradient_norm: float = setting(10.0, "Gradients are scaled down to this norm.", above=0)

    # --- demonstrations
    demonstrations: str | Callable[..., Any] | None = setting(
        None,
        "Who shows how: a file of trajectories (.npz, from envfleet.save_demonstrations), module:function, a policy "
        "that takes a batch of observations and returns actions, or environment: the environment itself, if it can.",
    )
    demonstration_steps: int = setting(
        10_000, "Steps that a policy or the environment shows before the training.", minimum=1
    )
    regenerate_demonstrations: bool = setting(
        False, "Make what the environment demonstrates anew, though an earlier run with the same settings kept it."
    )
    demonstration_share: float = setting(
        0.25, "Share of each batch that is drawn from the demonstrations.", minimum=0, maximum=1
    )
    pretrain_steps: int = setting(0, "Updates from the demonstrations alone, before the first rollout.", minimum=0)
    margin: float = setting(
        0.0, "By how much demonstrated actions are to be valued above all others; 0: not at all.", minimum=0
    )

    # --- exploration
    initial_epsilon: float = setting(1.0, "Chance of a random action at the start.", minimum=0, maximum=1)
    epsilon_min: float = setting(0.04, "Chance of a random action in the end.", minimum=0, maximum=1)
    exploration_fraction: float = setting(
        0.2, "Share of the budget over which the chance falls linearly.", above=0, maximum=1
    )
    epsilon_decay: float | None = setting(
        None, "Exponential instead: the factor per round of updates.", above=0, maximum=1
    )

    # --- the network
    network: str | Callable[..., Any] = setting(
        "auto",
        "Encoder of the observations: auto (nature for images, mlp for all else), mlp, nature, impala, cells (one "
        "value per cell of a grid), or your own as module:Class. It is built as Class(observation_space), and its "
        "forward(observation) gives features [batch, n].",
    )
    policy: str | Callable[..., Any] | None = setting(
        None,
        "Your own whole network as module:Class. It is built as Class(observation_space, action_space), and its "
        "forward(observation) gives the values of all actions [batch, n].",
    )
    hidden: tuple[int, ...] = setting(
        (64, 64), "Units of each hidden layer of the mlp; channels of each layer of cells.", minimum=1
    )
    activation: Literal["tanh", "relu"] = setting("relu", "Activation of the mlp.")
    dueling: bool = setting(True, "Value of the state and advantages of actions apart.")
    noisy: bool = setting(False, "Explore by learned noise in the last layer instead of random actions.")
    normalise_observations: bool = setting(
        False, "Whether float vectors are scaled by their running mean and standard deviation."
    )

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
        if self.demonstrations is None and (self.pretrain_steps or self.margin):
            found.append("pretrain_steps and margin need demonstrations, expected a file or a policy")
        if self.threads > 1:
            found.append(f"learner_threads is {self.learner_threads}, expected 1: DQN's batches are too small to share")
        found += network_problems(self.network, self.policy, Q_NETWORKS)
        if self.noisy and self.policy is not None:
            found.append("noisy is set, but a whole policy has its own heads; give an encoder by network= instead")
        if self.noisy and self.network == "cells":
            found.append("noisy is set, but the network 'cells' has no noisy head; expected one of the two")
        return found

    def with_absolute_inputs(self, folder: Path) -> Self:
        settings, shown = super().with_absolute_inputs(folder), self.demonstrations
        is_file = isinstance(shown, str) and Path(shown).suffix == ".npz"
        return settings.but(demonstrations=str(folder / str(shown))) if is_file else settings

    def notices(self) -> list[str]:
        unused = {name: why for name, why in _NO_EFFECT.items() if getattr(self, name) is not None}
        return [*super().notices(), *(f"{name} has no effect: {why}" for name, why in unused.items())]

    def rounds_in_steps(self, steps: int) -> dict[str, Any]:
        changes = super().rounds_in_steps(steps)
        if "target_update_frequency" in self.given:
            updates = self.target_update_frequency * steps * self.gradient_steps / self.train_frequency
            changes["target_update_frequency"] = max(1, round(updates))
        return changes

    @property
    def rollout_length(self) -> int:
        return self.rollout_steps

    @property
    def frames(self) -> int:
        """Frames of a stack, 1 where observations are stored as they are."""
        return self.frame_stack or 1

    def q_settings(self) -> QSettings:
        """The part that describes the network."""
        return QSettings(
            network=self.network,
            policy=self.policy,
            hidden=self.hidden,
            activation=self.activation,
            dueling=self.dueling,
            noisy=self.noisy,
            normalise_observations=self.normalise_observations,
        )

    def actor_maker(self, lag: int) -> QMaker:
        return QMaker(self.q_settings())

    def build_learner(
        self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any
    ) -> DQNLearner:
        from envfleet.algorithms.dqn import DQNLearner

        policy = self.build_policy(observation_space, action_space, seed=seed)
        return DQNLearner(self, policy, observation_space, n_envs=n_envs, seed=seed, device=device)

    def build_policy(self, observation_space: Any, action_space: Any, *, seed: int) -> QPolicy:
        from envfleet.policies.q_policy import build_q_policy

        return build_q_policy(observation_space, action_space, self.q_settings(), seed=seed)

    def describe_policy(self) -> dict[str, Any]:
        return {"kind": "q", "settings": self.q_settings().to_json()}
