"""The settings of DQN. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.algorithms.off_policy_settings import OffPolicySettings
from envfleet.algorithms.rates import SCHEDULES_HELP, RateSchedule
from envfleet.policies.q_settings import Q_NETWORKS, QSettings
from envfleet.policies.settings import network_problems
from envfleet.settings import setting
from envfleet.settings.presets import Preset

if TYPE_CHECKING:
    from envfleet.algorithms.dqn import DQNLearner
    from envfleet.algorithms.env_facts import EnvFacts

__all__ = ["DQN"]

# Settings of other systems that are not needed here, and why.
_NO_EFFECT = {
    "collection_batch_size": "each environment collects rollout_steps steps, then all of them go into the replay",
    "experience_buffer_size": "steps go straight into the replay (replay_size), there is no buffer before it",
}


@dataclass(frozen=True, kw_only=True)
class DQN(OffPolicySettings):
    """Deep Q-learning (Mnih et al. 2015): double, dueling, n-step, optional prioritised replay and noisy networks."""

    algorithm: ClassVar[str] = "dqn"
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": TrainingSettings.groups["env"],
        "steps": TrainingSettings.groups["steps"],
        "rollout_steps": ("replay", "The replay buffer: collecting, storing and sampling steps."),
        "minibatch_size": ("update", "The DQN update: batches, learning rate, discount factor, target network."),
        "demonstrations": ("demonstrations", "Learning from demonstrations."),
        "initial_epsilon": ("exploration", "Epsilon-greedy exploration: how often actions are random."),
        "schedule": TrainingSettings.groups["schedule"],
        "network": ("network", "The Q-network, which predicts the value of every action."),
        "output_dir": TrainingSettings.groups["output_dir"],
    }
    absent: ClassVar[Mapping[str, str]] = {
        "memory": "DQN has no recurrent memory; use ppo --memory gru, or stack observations (docs/dqn.md)",
        "memory_size": "DQN has no recurrent memory; replay_size is the size of its replay buffer",
    }
    aliases: ClassVar[Mapping[str, str]] = {
        **OffPolicySettings.aliases,
        "memory_capacity": "replay_size",
        "train_freq": "train_frequency",
        "target_update_interval": "target_update_frequency",
        "num_parallel_envs": "n_envs",
        "max_workers": "workers",
        "parallel_method": "backend",
        "regenerate_memories": "regenerate_demonstrations",
    }

    # --- demonstrations
    margin: float = setting(
        0.0,
        "Large-margin loss (DQfD): how much higher the value of a demonstrated action should be than that of any other "
        "action; 0 disables it.",
        minimum=0,
    )

    # --- the update
    minibatch_size: int = setting(64, "Transitions per minibatch (gradient step).", minimum=1)
    train_frequency: int = setting(
        8, "Collected steps, of all environments together, for every gradient_steps gradient steps.", minimum=1
    )
    gradient_steps: int = setting(1, "Gradient steps for every train_frequency collected steps.", minimum=1)
    learning_rate: float = setting(1e-3, "Learning rate of Adam.", above=0)
    learning_rate_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    learning_rate_warmup: float = setting(
        0.0, "Fraction of the budget over which the learning rate rises linearly to its full value.", minimum=0, below=1
    )
    gamma: float = setting(
        0.99, "Discount factor of future rewards; with 0 only the immediate reward counts.", minimum=0, maximum=1
    )
    n_step: int = setting(3, "n-step returns: rewards to sum before bootstrapping from a value.", minimum=1)
    double: bool = setting(
        True, "Double Q-learning: the online network chooses the action that the target network evaluates."
    )
    loss: Literal["huber", "mse"] = setting("huber", "Loss function; huber limits the influence of large errors.")
    target_update_frequency: int = setting(
        250, "Updates (with round_steps: rounds) between copies of the weights to the target network.", minimum=1
    )
    target_rate: float | None = setting(
        None,
        "Soft updates of the target network (tau): the fraction by which it moves at every update, in place of "
        "target_update_frequency.",
        above=0,
        maximum=1,
    )
    max_gradient_norm: float = setting(
        10.0, "Gradient clipping: gradients with a larger norm are scaled down to it.", above=0
    )

    collection_batch_size: int | None = setting(
        None, f"Accepted in files of other systems, but without effect: {_NO_EFFECT['collection_batch_size']}."
    )
    experience_buffer_size: int | None = setting(
        None, f"Accepted in files of other systems, but without effect: {_NO_EFFECT['experience_buffer_size']}."
    )

    # --- exploration
    initial_epsilon: float = setting(
        1.0, "Epsilon-greedy: probability of a random action at the start.", minimum=0, maximum=1
    )
    epsilon_min: float = setting(
        0.04, "Epsilon-greedy: probability of a random action at the end.", minimum=0, maximum=1
    )
    exploration_fraction: float = setting(
        0.2, "Fraction of the budget over which epsilon decays linearly.", above=0, maximum=1
    )
    epsilon_decay: float | None = setting(
        None, "Exponential decay of epsilon instead: the factor per train_frequency steps.", above=0, maximum=1
    )

    # --- the network
    network: str | Callable[..., Any] = setting(
        "auto",
        "Encoder network of the observations: auto (a CNN for images, an MLP for everything else), mlp, nature (Nature "
        "CNN), impala (IMPALA CNN), cells (one value per cell of a grid), or your own as module:Class. It is built as "
        "Class(observation_space), and its forward(observation) returns features [batch, n].",
    )
    policy: str | Callable[..., Any] | None = setting(
        None,
        "Your own Q-network as module:Class. It is built as Class(observation_space, action_space), and its "
        "forward(observation) returns the values of all actions [batch, n].",
    )
    hidden: tuple[int, ...] = setting(
        (64, 64), "Units of each hidden layer of the MLP; channels of each layer of cells.", minimum=1
    )
    activation: Literal["tanh", "relu"] = setting("relu", "Activation function of the MLP.")
    dueling: bool = setting(True, "Dueling network: separate heads for the state value and the advantages.")
    noisy: bool = setting(
        False, "Noisy networks: explore by learned noise in the last layer instead of epsilon-greedy."
    )
    normalise_observations: bool = setting(
        False, "Normalise float vector observations by their running mean and standard deviation."
    )

    def problems(self) -> list[str]:
        found = super().problems()
        if self.demonstrations is None and self.margin:
            found.append("margin needs demonstrations, expected a file or a policy")
        if self.threads > 1:
            found.append(f"learner_threads is {self.learner_threads}, expected 1: DQN's batches are too small to share")
        found += network_problems(self.network, self.policy, Q_NETWORKS)
        if self.noisy and self.policy is not None:
            found.append("noisy is set, but a whole policy has its own heads; give an encoder by network= instead")
        if self.noisy and self.network == "cells":
            found.append("noisy is set, but the network 'cells' has no noisy head; expected one of the two")
        return found

    def notices(self) -> list[str]:
        unused = {name: why for name, why in _NO_EFFECT.items() if getattr(self, name) is not None}
        return [*super().notices(), *(f"{name} has no effect: {why}" for name, why in unused.items())]

    def rounds_in_steps(self, steps: int) -> dict[str, Any]:
        changes = super().rounds_in_steps(steps)
        if "target_update_frequency" in self.given:
            updates = self.target_update_frequency * steps * self.gradient_steps / self.train_frequency
            changes["target_update_frequency"] = max(1, round(updates))
        return changes

    def policy_settings(self) -> QSettings:
        return QSettings(
            network=self.network,
            policy=self.policy,
            hidden=self.hidden,
            activation=self.activation,
            dueling=self.dueling,
            noisy=self.noisy,
            normalise_observations=self.normalise_observations,
        )

    def family_preset(self, env: EnvFacts) -> Preset:
        from envfleet.algorithms.dqn_presets import family_preset

        preset = family_preset(env)
        return preset if self.policy is None else preset.without("network")

    def build_learner(
        self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any
    ) -> DQNLearner:
        from envfleet.algorithms.dqn import DQNLearner

        policy = self.policy_settings().build(observation_space, action_space, seed=seed)
        return DQNLearner(self, policy, observation_space, n_envs=n_envs, seed=seed, device=device)
