"""The settings of PPO. Importing this does not load torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from envfleet.algorithms.acting import PolicyMaker
from envfleet.algorithms.common_settings import WORKERS_TIMES_ENVS, TrainingSettings
from envfleet.algorithms.memory_rules import memory_notices
from envfleet.algorithms.rates import SCHEDULES_HELP, RateSchedule
from envfleet.policies.settings import PolicySettings, policy_problems
from envfleet.settings import setting
from envfleet.settings.presets import Preset
from envfleet.settings.spelling import last_name

if TYPE_CHECKING:
    from envfleet.algorithms.env_facts import EnvFacts
    from envfleet.algorithms.ppo import PPOLearner

__all__ = ["PPO"]

_LARGE, _LARGE_OF_IMAGES = 1024, 128  # rows of a minibatch that are enough work for two threads
# With async: passes over each batch, and the smallest minibatch. Tried with two threads: CartPole reached a return of
# 400 after 49,000 steps (mean of seeds 1 to 3) in four passes with minibatches of 64, and after 69,000 in one pass with
# minibatches of 32 and twice the learning rate. RememberCue with a GRU (seed 1) was learned in four passes only.
# Rollouts are half as long, so that experience is as old as with sync. Acrobot reached -110 after 61,000 steps (sync:
# 60,000) in rollouts of 128 steps, after 90,000 in those of 256; CartPole 400 after 53,000 in 16 and 52,000 in 32.
_MOST_PASSES, _SMALLEST = 4, 32
_POLICY_FIELDS = {field.name: field for field in dataclasses.fields(PolicySettings)}


def _of_policy(name: str) -> Any:
    """A setting that is passed on to the policy, with the default, help and bounds of `PolicySettings`."""
    field = _POLICY_FIELDS[name]
    return setting(field.default, **field.metadata)


@dataclass(frozen=True, kw_only=True)
class PPO(TrainingSettings):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    algorithm: ClassVar[str] = "ppo"
    schedules: ClassVar[tuple[str, ...]] = ("sync", "overlap", "async")
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": TrainingSettings.groups["env"],
        "steps": TrainingSettings.groups["steps"],
        "rollout_steps": ("rollout", "Experience for each update: rollout length, discount factor, GAE."),
        "epochs": ("update", "The PPO update: minibatches, learning rate, clipping, entropy bonus."),
        "schedule": TrainingSettings.groups["schedule"],
        "network": ("policy", "The policy and value networks, and their recurrent memory."),
        "output_dir": TrainingSettings.groups["output_dir"],
    }
    aliases: ClassVar[Mapping[str, str]] = {
        **TrainingSettings.aliases,
        "training.n_steps": "rollout_steps",
        "n_steps": "rollout_steps",
        "training.batch_size": "minibatch_size",
        "batch_size": "minibatch_size",
        "training.n_epochs": "epochs",
        "n_epochs": "epochs",
        "training.total_timesteps": "steps",
        "gae_lambda": "lam",
        "training.gae_lambda": "lam",
        "ent_coef": "entropy_coefficient",
        "training.ent_coef": "entropy_coefficient",
        "vf_coef": "value_coefficient",
        "training.vf_coef": "value_coefficient",
        "max_grad_norm": "max_gradient_norm",
        "training.max_grad_norm": "max_gradient_norm",
        "parallel.num_workers": "workers",
        "parallel.start_method": "start_method",
        "parallel.num_threads": "learner_threads",
        "training.num_threads": "learner_threads",
        WORKERS_TIMES_ENVS: "n_envs",
    }

    # --- the rollout
    rollout_steps: int = setting(128, "Steps of each environment per rollout.", minimum=1)
    gamma: float = setting(0.99, "Discount factor of future rewards.", above=0, maximum=1)
    lam: float = setting(0.95, "Lambda of generalized advantage estimation (GAE).", minimum=0, maximum=1)
    normalise_rewards: bool = setting(
        False, "Normalise rewards: divide them by the running standard deviation of the discounted return."
    )

    # --- the update
    epochs: int = setting(4, "Passes over each rollout.", minimum=1)
    minibatch_size: int = setting(
        256, "Steps per minibatch (gradient step). If it exceeds the rollout, each epoch is one minibatch.", minimum=1
    )
    sequence_length: int = setting(
        32, "With memory: steps per sequence for truncated backpropagation through time.", minimum=1
    )
    learning_rate: float = setting(3e-4, "Learning rate of Adam.", above=0)
    learning_rate_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    learning_rate_warmup: float = setting(
        0.0, "Fraction of the budget over which the learning rate rises linearly to its full value.", minimum=0, below=1
    )
    clip_range: float = setting(0.2, "PPO clipping: how far the probability ratio may move away from 1.", above=0)
    clip_range_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    clip_range_values: float | None = setting(
        None, "Clipping of the value function: how far a value may move; by default values are not clipped.", above=0
    )
    entropy_coefficient: float = setting(0.0, "Weight of the entropy bonus.", minimum=0)
    entropy_coefficient_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    value_coefficient: float = setting(0.5, "Weight of the value loss.", minimum=0)
    max_gradient_norm: float = setting(
        0.5, "Gradient clipping: gradients with a larger norm are scaled down to it.", above=0
    )
    target_kl: float | None = setting(
        None, "Stop an update early once the approximate KL divergence exceeds 1.5 times this.", above=0
    )
    normalise_advantages: bool = setting(True, "Normalise the advantages of each minibatch.")

    # --- the policy
    network: str | Callable[..., Any] = _of_policy("network")  # noqa: RUF009  # it makes a field
    policy: str | Callable[..., Any] | None = _of_policy("policy")  # noqa: RUF009  # it makes a field
    hidden: tuple[int, ...] = _of_policy("hidden")
    activation: Literal["tanh", "relu"] = _of_policy("activation")
    shared: bool | None = _of_policy("shared")
    memory: Literal["none", "gru", "lstm"] = _of_policy("memory")
    memory_size: int = _of_policy("memory_size")
    bounds: Literal["clip", "tanh"] = _of_policy("bounds")
    initial_log_std: float = _of_policy("initial_log_std")
    normalise_observations: bool = _of_policy("normalise_observations")

    def problems(self) -> list[str]:
        found = super().problems()
        found += policy_problems(self.network, self.policy, shared=self.shared, memory=self.memory)
        if self.memory != "none" and self.rollout_steps % min(self.sequence_length, self.rollout_steps):
            found.append(
                f"rollout_steps is {self.rollout_steps}, expected a multiple of sequence_length "
                f"({self.sequence_length}), because the policy has memory"
            )
        return found

    def notices(self) -> list[str]:
        found = [*super().notices(), *memory_notices(self, ("memory_size", "sequence_length"))]
        if "minibatch_size" in self.given and self.minibatch_size > self.rollout_size:
            size = f"minibatch_size (batch_size) is {self.minibatch_size:,}"
            found.append(f"{size}, more than the rollout of {self.rollout_size:,} steps: each epoch is one minibatch")
        return found

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Convert keys of other systems: workers times environments per worker is the number of environments."""
        per_worker = [key for key in values if last_name(key) == "num_envs_per_worker"]
        if not per_worker:
            return values
        counts = [value for key, value in values.items() if last_name(key) == "num_workers"]
        counts = counts or [value for key, value in values.items() if last_name(key) == "workers"] or [1]
        product: int | str
        try:
            product = int(counts[0]) * int(values[per_worker[0]])
        except (TypeError, ValueError):
            product = f"{counts[0]} × {values[per_worker[0]]}"  # refused as a number of environments
        return {**{key: value for key, value in values.items() if key not in per_worker}, WORKERS_TIMES_ENVS: product}

    @property
    def rollout_size(self) -> int:
        """Steps per rollout, of all environments together."""
        return self.rollout_steps * self.n_envs

    @property
    def piece_length(self) -> int:
        """Steps between two stored memories (recurrent states)."""
        return min(self.sequence_length, self.rollout_steps)

    @property
    def threads(self) -> int:
        """Threads of the learner. With vectors, two only pay for large batches, and not beside busy workers."""
        if self.learner_threads is not None:
            return self.learner_threads
        return 2 if self._learned_at_once >= _LARGE and self.schedule == "sync" else 1

    @property
    def _learned_at_once(self) -> int:
        return min(self.minibatch_size, self.rollout_size)

    def policy_settings(self) -> PolicySettings:
        return PolicySettings(**{name: getattr(self, name) for name in _POLICY_FIELDS})

    @property
    def rollout_length(self) -> int:
        return self.rollout_steps

    def family_preset(self, env: EnvFacts) -> Preset:
        from envfleet.algorithms.ppo_presets import family_preset

        return family_preset(env, memory=self.memory != "none")

    def adapted(self, env: EnvFacts) -> Self:
        """With images, learn with two threads. With async, make rollouts shorter, and pass over batches fewer times.

        With images, most of the time goes to learning, in large operations. So two threads pay with fewer rows, and
        also beside busy workers.

        With async, a rollout waits while others are collected, so shorter ones keep experience from getting older than
        with sync. It is off-policy already, and every pass makes it more so: minibatches are smaller instead, for as
        many gradient steps.
        """
        found: dict[str, int] = {}
        if self.schedule != "async":
            if env.has_image and self.learner_threads is None:
                found["learner_threads"] = 2 if self._learned_at_once >= _LARGE_OF_IMAGES else 1
            return self.filled(found)
        if self.memory == "none":
            found["rollout_steps"] = max(1, self.rollout_steps // 2)
        if "epochs" not in self.given and self.epochs > _MOST_PASSES:
            size = self._learned_at_once
            smaller = max(size * _MOST_PASSES // self.epochs, min(size, _SMALLEST))
            found |= {"epochs": _MOST_PASSES, "minibatch_size": smaller}
        return self.filled(found)

    def named_presets(self) -> Mapping[str, Callable[[], Preset]]:
        from envfleet.algorithms.ppo_presets import NAMED

        return NAMED

    def actor_maker(self, lag: int) -> PolicyMaker:
        return PolicyMaker(partial(self.policy_settings().build, record_values=lag == 0))  # stale values are not used

    def build_learner(
        self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any
    ) -> PPOLearner:
        from envfleet.algorithms.ppo import PPOLearner

        policy = self.policy_settings().build(observation_space, action_space, seed=seed)
        return PPOLearner(self, policy, seed=seed, device=device)
