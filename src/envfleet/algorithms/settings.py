"""The settings of every algorithm: what a run is given, by whatever way. Importing this loads no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envfleet.errors import SettingsError
from envfleet.policies.settings import PolicySettings
from envfleet.settings import Settings, setting

__all__ = ["ALGORITHMS", "DEFAULT_STEPS", "HARMLESS", "PPO", "TrainingSettings"]

DEFAULT_STEPS = 100_000  # where neither the user nor the preset gives a budget

# Settings that a resumed run may change: all others would make another run of it.
HARMLESS = frozenset(
    {
        "backend",
        "checkpoint_every",
        "checkpoint_minutes",
        "duration",
        "eval_episodes",
        "eval_every",
        "keep_checkpoints",
        "num_episodes",
        "quiet",
        "start_method",
        "steps",
        "timeout",
        "track",
        "verbose",
        "workers",
    }
)
# As the fleet has them (a test compares), spellings of other systems included; the fleet's module loads Gymnasium.
BACKENDS = (
    "auto", "sequential", "threads", "processes", "sync", "serial", "threading", "multiprocessing", "async", "subproc"
)  # fmt: skip
# What environments per worker come to; messages quote it as the key that sets the number of environments.
WORKERS_TIMES_ENVS = "num_workers × num_envs_per_worker"

_POLICY_FIELDS = {field.name: field for field in dataclasses.fields(PolicySettings)}


def _of_policy(name: str) -> Any:
    """A setting that goes to the policy as it is: default and help are the policy's own."""
    field = _POLICY_FIELDS[name]
    return setting(field.default, field.metadata["help"])


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """What every algorithm has in common: the environment, the fleet, the budget, the policy, the run."""

    algorithm: ClassVar[str]
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": ("environment", "What is learned, and where its environments run."),
        "steps": ("budget", "How long to train: whichever comes first."),
        "schedule": ("schedule", "How collecting and learning take turns, and on what."),
        "network": ("policy", "The networks that act."),
        "output_dir": ("run", "What is kept, said and started from."),
    }

    # --- the environment and the fleet
    env: str | Callable[..., Any] = setting("CartPole-v1", "Environment: a Gymnasium id or module:callable.")
    env_kwargs: dict[str, Any] = setting({}, "Arguments of the environment, as name=value.")
    wrappers: tuple[str | Callable[..., Any], ...] = setting(
        (), "Functions that wrap each environment, as module:function, innermost first."
    )
    n_envs: int = setting(8, "Environments that are stepped in parallel.", minimum=1)
    group_size: int | None = setting(
        None, "Environments that are stepped and acted for together; by default a function of n_envs.", minimum=1
    )
    backend: str = setting(
        "auto",
        "Where environments run: auto, sequential, threads or processes. It never changes a result.",
        choices=BACKENDS,
    )
    workers: int | None = setting(
        None, "Worker processes or threads; by default the usable cores. It never changes a result.", minimum=1
    )
    start_method: Literal["spawn", "fork", "forkserver"] | None = setting(
        None, "How worker processes are started; spawn by default."
    )
    timeout: float = setting(60.0, "Seconds after which a step counts as hung and its worker is restarted.", above=0)
    on_error: Literal["raise", "restart"] = setting(
        "raise", "What happens when an environment raises: the run stops, or the environment is restarted."
    )

    # --- the budget: whichever comes first
    steps: int | None = setting(
        None,
        "Environment steps to train for. Where no budget is given: those of the preset, else 100,000. "
        "With another budget and without this one, steps do not limit.",
        minimum=1,
    )
    num_episodes: int | None = setting(None, "Episodes to train for.", minimum=1)
    duration: float | None = setting(
        None,
        "Hours to train for (0.017 is a minute). As the only budget it makes linear schedules follow the clock.",
        above=0,
    )
    seed: int | None = setting(None, "Seed of the run; drawn and recorded where not given.", minimum=0)

    # --- how collecting and learning take turns
    schedule: Literal["sync", "overlap"] = setting(
        "sync",
        "sync: collect, learn, repeat. overlap: collect the next rollout while learning from this one "
        "(faster; the policy lags by exactly one rollout, which is corrected for).",
    )
    acting: Literal["worker", "central"] = setting(
        "worker", "Who acts: each worker with its own copy of the policy, or the learner for all."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "Where the learner computes; auto takes cuda or mps where there is one."
    )
    learner_threads: int | None = setting(
        None,
        "Threads of the learner on a CPU; by default a function of the batch and the network. It shapes the "
        "mathematics, so it is part of the run's settings.",
        minimum=1,
    )

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

    # --- the run
    output_dir: str | None = setting(None, "The run's folder; runs/<env>__<algorithm>__<seed>__<time> by default.")
    overwrite: bool = setting(False, "Replace an output_dir that exists.")
    checkpoint_dir: str | None = setting(None, "Folder of the checkpoints in place of checkpoints/ in the run.")
    checkpoint_every: int | None = setting(
        None, "Environment steps between checkpoints; a tenth of the budget by default.", minimum=1
    )
    checkpoint_minutes: float = setting(5.0, "Minutes after which a checkpoint is written in any case.", above=0)
    keep_checkpoints: int = setting(3, "How many periodic checkpoints are kept.", minimum=1)
    eval_every: int | None = setting(
        None, "Environment steps between evaluations; a fifth of the budget by default, 0 for none.", minimum=0
    )
    eval_episodes: int = setting(10, "Episodes of each evaluation.", minimum=1)
    init_from: str | None = setting(None, "A run whose weights and normalisers this one starts from.")
    track: bool = setting(False, "Send the metrics to Weights & Biases as well.")
    quiet: bool = setting(False, "Say nothing but errors.")
    verbose: bool = setting(False, "Show every metric.")

    def problems(self) -> list[str]:
        found = super().problems()
        if self.quiet and self.verbose:
            found.append("quiet and verbose were both asked for; expected at most one")
        try:
            self.policy_settings()
        except SettingsError as error:
            found.append(str(error).replace("\nhint: ", "; "))
        return found

    def policy_settings(self) -> PolicySettings:
        """The part that describes the policy."""
        return PolicySettings(**{name: getattr(self, name) for name in _POLICY_FIELDS})


@dataclass(frozen=True, kw_only=True)
class PPO(TrainingSettings):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    algorithm: ClassVar[str] = "ppo"
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": TrainingSettings.groups["env"],
        "steps": TrainingSettings.groups["steps"],
        "rollout_steps": ("rollout", "What each update learns from."),
        "epochs": ("update", "How PPO learns from a rollout."),
        **TrainingSettings.groups,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "training.n_steps": "rollout_steps",
        "n_steps": "rollout_steps",
        "training.batch_size": "minibatch_size",
        "batch_size": "minibatch_size",
        "training.n_epochs": "epochs",
        "n_epochs": "epochs",
        "training.total_timesteps": "steps",
        "total_timesteps": "steps",
        "gae_lambda": "lam",
        "training.gae_lambda": "lam",
        "ent_coef": "entropy_coefficient",
        "training.ent_coef": "entropy_coefficient",
        "vf_coef": "value_coefficient",
        "training.vf_coef": "value_coefficient",
        "max_grad_norm": "max_gradient_norm",
        "training.max_grad_norm": "max_gradient_norm",
        "env_id": "env",
        "parallel.num_workers": "workers",
        "num_workers": "workers",
        "parallel.start_method": "start_method",
        "parallel_start_method": "start_method",
        WORKERS_TIMES_ENVS: "n_envs",
    }

    # --- the rollout
    rollout_steps: int = setting(128, "Steps of each environment per rollout.", minimum=1)
    gamma: float = setting(0.99, "Discount of future rewards.", above=0, maximum=1)
    lam: float = setting(0.95, "Lambda of generalized advantage estimation.", minimum=0, maximum=1)
    normalise_rewards: bool = setting(
        False, "Divide rewards by the running standard deviation of the discounted return."
    )

    # --- the update
    epochs: int = setting(4, "Passes over each rollout.", minimum=1)
    minibatch_size: int = setting(
        256, "Steps per gradient step; one minibatch where it exceeds the rollout.", minimum=1
    )
    sequence_length: int = setting(32, "With memory: steps of the pieces that gradients flow through.", minimum=1)
    learning_rate: float = setting(3e-4, "Step size of Adam.", above=0)
    learning_rate_schedule: Literal["constant", "linear"] = setting(
        "constant", "linear falls to zero at the end of the budget."
    )
    clip_range: float = setting(0.2, "How far the probability ratio may move before it stops counting.", above=0)
    clip_range_schedule: Literal["constant", "linear"] = setting(
        "constant", "linear falls to zero at the end of the budget."
    )
    clip_range_values: float | None = setting(None, "The same for the value function; none by default.", above=0)
    entropy_coefficient: float = setting(0.0, "Weight of the entropy bonus.", minimum=0)
    value_coefficient: float = setting(0.5, "Weight of the value loss.", minimum=0)
    max_gradient_norm: float = setting(0.5, "Gradients are scaled down to this norm.", above=0)
    target_kl: float | None = setting(None, "Stop the update where the policy moved further than this.", above=0)
    normalise_advantages: bool = setting(True, "Centre and scale the advantages of each minibatch.")

    def problems(self) -> list[str]:
        found = super().problems()
        if self.memory != "none" and self.rollout_steps % min(self.sequence_length, self.rollout_steps):
            found.append(
                f"rollout_steps is {self.rollout_steps}, expected a multiple of sequence_length "
                f"({self.sequence_length}) where the policy has memory"
            )
        return found

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Keys of other systems that need a word: environments per worker make up the number of environments."""
        per_worker = [key for key in values if _spelling(key) == "num_envs_per_worker"]
        if not per_worker:
            return values
        counts = [value for key, value in values.items() if _spelling(key) == "num_workers"]
        counts = counts or [value for key, value in values.items() if _spelling(key) == "workers"] or [1]
        product: int | str
        try:
            product = int(counts[0]) * int(values[per_worker[0]])
        except (TypeError, ValueError):
            product = f"{counts[0]} × {values[per_worker[0]]}"  # refused as a number of environments
        return {**{key: value for key, value in values.items() if key not in per_worker}, WORKERS_TIMES_ENVS: product}

    @property
    def rollout_size(self) -> int:
        """Steps of all environments per rollout."""
        return self.rollout_steps * self.n_envs

    @property
    def piece_length(self) -> int:
        """Steps between two stored memories."""
        return min(self.sequence_length, self.rollout_steps)

    @property
    def minibatches(self) -> int:
        """Gradient steps per epoch."""
        return max(1, math.ceil(self.rollout_size / self.minibatch_size))

    @property
    def threads(self) -> int:
        """Threads of the learner: more than one pays only for large batches, and never beside busy workers."""
        if self.learner_threads is not None:
            return self.learner_threads
        large = min(self.minibatch_size, self.rollout_size) >= 1024
        return 2 if large and self.schedule == "sync" else 1


def _spelling(key: str) -> str:
    """The last word of a key or flag, as Python writes it."""
    return key.rpartition(".")[2].removeprefix("--").replace("-", "_")


ALGORITHMS: dict[str, type[TrainingSettings]] = {"ppo": PPO}
