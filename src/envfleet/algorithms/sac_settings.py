"""The settings of SAC. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.algorithms.memory_rules import memory_notices
from envfleet.algorithms.off_policy_settings import OffPolicySettings
from envfleet.algorithms.rates import SCHEDULES_HELP, RateSchedule
from envfleet.algorithms.sac_files import is_foreign, translated
from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.settings import network_problems
from envfleet.settings import setting
from envfleet.settings.presets import Preset
from envfleet.settings.spelling import last_name

if TYPE_CHECKING:
    from envfleet.algorithms.env_facts import EnvFacts
    from envfleet.algorithms.sac import SACLearner
    from envfleet.rollout.sequences import SequenceSpec

__all__ = ["SAC"]

_ENOUGH_FOR_TWO = 2**23  # multiplications per layer pass of a batch that make a second thread worth its while
_OF_MEMORY = (
    "sampled_seq_len", "burn_in", "episode_weight", "memory_size", "observation_embedding", "action_embedding",
    "reward_embedding", "memory_learning_rate",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SAC(OffPolicySettings):
    """Soft actor-critic (Haarnoja et al. 2018): few environment steps, for Box (continuous) and Discrete actions."""

    algorithm: ClassVar[str] = "sac"
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": TrainingSettings.groups["env"],
        "steps": TrainingSettings.groups["steps"],
        "rollout_steps": ("replay", "The replay buffer: collecting, storing and sampling steps."),
        "minibatch_size": ("update", "The SAC update: batches, learning rates, discount factor, target network."),
        "temperature": ("temperature", "The temperature (entropy coefficient) and its adjustment."),
        "demonstrations": ("demonstrations", "Learning from demonstrations."),
        "schedule": TrainingSettings.groups["schedule"],
        "network": ("network", "The networks of the actor and the critics."),
        "memory": ("memory", "Recurrent memory, and the sequences that it learns from."),
        "output_dir": TrainingSettings.groups["output_dir"],
    }
    aliases: ClassVar[Mapping[str, str]] = {
        **OffPolicySettings.aliases,
        "lr": "learning_rate",
        "max_grad_norm": "max_gradient_norm",
    }

    # --- the replay
    rollout_steps: int = setting(8, "Steps of each environment per rollout, before the learner updates.", minimum=1)
    replay_size: int = setting(1_000_000, "Size of the replay buffer, in steps of all environments.", minimum=2)
    learning_starts: int = setting(
        1_000, "Steps to collect before the first update. Until then, actions are uniformly random.", minimum=1
    )

    # --- the update
    minibatch_size: int = setting(256, "Transitions per minibatch (update).", minimum=1)
    updates_per_step: float = setting(
        1.0, "Updates per environment step (update-to-data ratio); 0.25 is one update per four steps.", above=0
    )
    updates_per_rollout: int | None = setting(
        None, "Updates after each rollout, in place of updates_per_step.", minimum=1
    )
    actor_frequency: int = setting(
        1, "Updates of the critics per update of the actor and the temperature (policy delay).", minimum=1
    )
    learning_rate: float = setting(3e-4, "Learning rate of Adam, for actor and critics.", above=0)
    learning_rate_schedule: RateSchedule = setting("constant", SCHEDULES_HELP)
    learning_rate_warmup: float = setting(
        0.0, "Fraction of the budget over which the learning rate rises linearly to its full value.", minimum=0, below=1
    )
    adam_beta: float = setting(
        0.9, "Adam's decay of the mean gradient (beta1), for actor and critics.", minimum=0, below=1
    )
    gamma: float = setting(0.99, "Discount factor of future rewards.", minimum=0, maximum=1)
    n_step: int = setting(1, "n-step returns: rewards to sum before bootstrapping from a value.", minimum=1)
    target_rate: float = setting(
        0.005, "Soft updates of the target networks (tau): the fraction by which they move at every update.", above=0,
        maximum=1,
    )  # fmt: skip
    max_gradient_norm: float | None = setting(
        None, "Gradient clipping: gradients with a larger norm are scaled down to it. By default there is none.",
        above=0,
    )  # fmt: skip

    # --- the temperature
    temperature: float = setting(
        1.0, "Temperature alpha, the weight of the entropy: at the start, or constant (see tune_temperature).", above=0
    )
    tune_temperature: bool = setting(True, "Adjust the temperature so that the entropy stays near target_entropy.")
    target_entropy: float | None = setting(
        None,
        "Entropy that the temperature aims at. Default for Box: minus the number of action dimensions (actions count "
        "as lying in [-1, 1]); for Discrete: 0.7 of the entropy of choosing evenly among the allowed actions.",
    )
    temperature_learning_rate: float | None = setting(
        None, "Learning rate of the temperature; learning_rate by default.", above=0
    )

    # --- the network
    network: str | Callable[..., Any] = setting(
        "auto",
        "Encoder network of the observations, before the hidden layers: auto (a CNN for images, nothing for vectors), "
        "mlp (no CNN), nature (Nature CNN), impala (IMPALA CNN), or your own as module:Class. It is built as "
        "Class(observation_space), and its forward(observation) returns features [batch, n].",
    )
    hidden: tuple[int, ...] = setting((256, 256), "Units of each hidden layer of actor and critics.", minimum=1)
    layer_norm: bool = setting(False, "Layer normalisation in the critics; keeps many updates per step stable.")
    dropout: float = setting(
        0.0, "Dropout in the critics: the probability that a unit is left out (DroQ: about 0.01).", minimum=0, below=1
    )
    batch_norm: bool = setting(
        False,
        "Batch normalisation in the critics, and no target networks (CrossQ); learns from fewer steps without more "
        "updates.",
    )
    normalise_observations: bool = setting(
        False, "Normalise float vector observations by their running mean and standard deviation."
    )

    # --- the memory
    memory: Literal["none", "gru", "lstm"] = setting(
        "none",
        "Recurrent memory (RNN) of actor and critics, one each, carried through each episode. It reads observations, "
        "previous actions and previous rewards.",
    )
    architecture: Literal["markov", "memory", "memory-markov"] | None = setting(
        None,
        "Which networks are recurrent: none (markov), actor and critics (memory), or the critics only (memory-markov, "
        "an ablation). By default memory if --memory is gru or lstm.",
    )
    sampled_seq_len: int = setting(
        64, "With memory: steps of each sequence in a batch; -1 for whole episodes.", minimum=-1
    )
    burn_in: int = setting(
        0, "With memory: steps before each sequence that only warm up the memory and do not count in the loss.",
        minimum=0,
    )  # fmt: skip
    episode_weight: float = setting(
        0.0,
        "With memory: 0 draws every possible start of a sequence with equal probability. Larger values favour short "
        "episodes: each episode gets the weight of this many additional starts.",
        minimum=0,
    )
    memory_size: int = setting(128, "Units of the recurrent memory; an LSTM stores two numbers per unit.", minimum=1)
    observation_embedding: int = setting(32, "Units of the memory's embedding of the observation.", minimum=0)
    action_embedding: int = setting(16, "Units of its embedding of the previous action; 0 leaves it out.", minimum=0)
    reward_embedding: int = setting(16, "Units of its embedding of the previous reward; 0 leaves it out.", minimum=0)
    memory_learning_rate: float | None = setting(
        None, "Learning rate of the memory and its embeddings; learning_rate by default.", above=0
    )
    history_parts: dict[str, Any] = setting(
        {}, "Set automatically: where an observation has the previous action and reward, {name: [leaf, start, stop]}."
    )

    def problems(self) -> list[str]:
        found = [*super().problems(), *network_problems(self.network, None)]
        if self.architecture is not None and (self.memory == "none") != (self.architecture == "markov"):
            fit = "memory or memory-markov" if self.memory != "none" else "markov, or --memory gru"
            found.append(f"architecture is {self.architecture!r} with memory {self.memory!r}, expected {fit}")
        found += self._batch_norm_problems()
        if self.sampled_seq_len == 0:
            found.append("sampled_seq_len is 0, expected at least 1, or -1 for whole episodes")
        if self.memory == "none":
            return found
        if self.sampled_seq_len < 0 < self.burn_in:
            found.append(f"burn_in is {self.burn_in}, expected 0 with whole episodes (sampled_seq_len -1)")
        if self.schedule == "async":
            found.append(
                "schedule is async, expected sync or overlap with memory: async cuts episodes at every rollout"
            )
        refused = {
            "n_step": self.n_step > 1,
            "prioritised": self.prioritised,
        }
        found += [f"{name} does not work with memory, expected its default" for name, given in refused.items() if given]
        return found

    def _batch_norm_problems(self) -> list[str]:
        refused = {
            "layer_norm": self.layer_norm,
            "dropout": self.dropout > 0,
            "memory": self.memory != "none",
            "target_rate": self.target_rate != SAC.target_rate,  # there are no target networks
        }
        if not self.batch_norm:
            return []
        found = [
            f"{name} does not work with batch_norm, expected its default" for name, given in refused.items() if given
        ]
        if self.schedule != "sync" and (self.learner_threads or 1) > 1:
            found.append(
                f"learner_threads is {self.learner_threads}, expected 1 with batch_norm and schedule {self.schedule}: "
                "a batch cannot be split"
            )
        return found

    @classmethod
    def translated_file(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        return translated(values) if is_foreign(values) else (values, [])

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Convert a key of pomdp-baselines: a whole number of updates is per rollout, a fraction is per step."""
        keys = [key for key in values if last_name(key) == "num_updates_per_iter"]
        if not keys:
            return values
        whole = isinstance(values[keys[0]], int) or str(values[keys[0]]).strip().isdecimal()
        name = "updates_per_rollout" if whole else "updates_per_step"
        return {**{key: value for key, value in values.items() if key not in keys}, name: values[keys[0]]}

    @property
    def threads(self) -> int:
        """Threads of the learner: two if a batch is large enough, but not beside workers that are busy."""
        if self.learner_threads is not None:
            return self.learner_threads
        rows = self.minibatch_size * (1 if self.memory == "none" else self.sampled_seq_len)
        work = rows * sum(n * m for n, m in pairwise(self.hidden))
        large = work >= _ENOUGH_FOR_TWO or rows < 0  # whole episodes are of unknown length, and count as long
        return 2 if large and self.schedule == "sync" else 1

    def policy_settings(self) -> SACPolicySettings:
        return SACPolicySettings(
            network=self.network,
            hidden=self.hidden,
            layer_norm=self.layer_norm,
            dropout=self.dropout,
            batch_norm=self.batch_norm,
            temperature=self.temperature,
            normalise_observations=self.normalise_observations,
            history=self._history(),
            markov_actor=self.architecture == "memory-markov",
        )

    def _history(self) -> HistorySettings | None:
        if self.memory == "none":
            return None
        return HistorySettings(
            memory=self.memory,
            memory_size=self.memory_size,
            action_embedding=self.action_embedding if "action" in self.history_parts else 0,
            reward_embedding=self.reward_embedding if "reward" in self.history_parts else 0,
            observation_embedding=self.observation_embedding,
            parts={name: (str(place[0]), int(place[1]), int(place[2])) for name, place in self.history_parts.items()},
        )

    def sequences(self) -> SequenceSpec | None:
        """Return what a batch of sequences is; None without memory."""
        if self.memory == "none":
            return None
        from envfleet.rollout.sequences import SequenceSpec

        return SequenceSpec(
            self.minibatch_size,
            self.sampled_seq_len,
            self.gamma,
            burn_in=self.burn_in,
            episode_weight=self.episode_weight,
        )

    def notices(self) -> list[str]:
        reads = self.memory != "none" and (self.action_embedding > 0 or self.reward_embedding > 0)
        if not reads or self.history_parts:
            return [*super().notices(), *memory_notices(self, _OF_MEMORY)]
        hidden = "show_previous is off: the memory reads observations only, without previous actions and rewards"
        return [*super().notices(), hidden]

    def needed_wrappers(self, env: EnvFacts) -> Mapping[str, str]:
        reads = self.action_embedding > 0 or self.reward_embedding > 0
        if self.memory == "none" or not reads or env.history or env.hides_history:
            return {}
        return {"history": "the memory reads the previous action and reward as part of the observation"}

    def adapted(self, env: EnvFacts) -> Self:
        settings = super().adapted(env)
        if self.memory == "none":
            return settings
        return settings.filled({"history_parts": dict(env.history)})

    def family_preset(self, env: EnvFacts) -> Preset:
        from envfleet.algorithms.sac_presets import family_preset

        return family_preset(env, memory=self.memory != "none")

    def named_presets(self) -> Mapping[str, Callable[[], Preset]]:
        from envfleet.algorithms.sac_presets import named_presets

        return named_presets(layer_norm=self.memory != "none" or bool({"layer_norm", "dropout"} & self.given))

    def build_learner(
        self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any
    ) -> SACLearner:
        from envfleet.algorithms.sac import SACLearner

        policy = self.policy_settings().build(observation_space, action_space, seed=seed)
        return SACLearner(self, policy, observation_space, n_envs=n_envs, seed=seed, device=device)
