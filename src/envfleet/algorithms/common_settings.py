"""What the settings of every algorithm have in common. Importing this loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from envfleet.seeding import LARGEST_SEED
from envfleet.settings import Settings, setting

__all__ = ["BACKENDS", "DEFAULT_STEPS", "HARMLESS", "WORKERS_TIMES_ENVS", "TrainingSettings"]

DEFAULT_STEPS = 100_000  # where neither the user nor the preset gives a budget

# Settings that a resumed run may change: all others would make another run of it.
HARMLESS = frozenset(
    {
        "acting",
        "backend",
        "checkpoint_every",
        "checkpoint_minutes",
        "duration",
        "eval_episodes",
        "eval_every",
        "eval_max_steps",
        "eval_sampled",
        "keep_checkpoints",
        "log_info",
        "num_episodes",
        "patience",
        "pin_cores",
        "quiet",
        "random_steps",
        "restarts",
        "start_method",
        "steps",
        "stop_score",
        "timeout",
        "track",
        "validate",
        "verbose",
        "video_every",
        "workers",
    }
)
# As the fleet has them (a test compares), spellings of other systems included; the fleet's module loads Gymnasium.
BACKENDS = (
    "auto", "sequential", "threads", "processes", "sync", "serial", "threading", "multiprocessing", "async", "subproc"
)  # fmt: skip
# What environments per worker come to; messages quote it as the key that sets the number of environments.
WORKERS_TIMES_ENVS = "num_workers × num_envs_per_worker"


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """What every algorithm has in common: the environment, the fleet, the budget, the run."""

    algorithm: ClassVar[str]
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": ("environment", "What is learned, and where its environments run."),
        "steps": ("budget", "How long to train: whichever comes first."),
        "schedule": ("schedule", "How collecting and learning take turns, and on what."),
        "output_dir": ("run", "What is kept, said and started from."),
    }

    # --- the environment and the fleet
    env: str | Callable[..., Any] = setting("CartPole-v1", "Environment: a Gymnasium id or module:callable.")
    env_kwargs: dict[str, Any] = setting({}, "Arguments of the environment, as name=value.")
    wrappers: tuple[str | dict[str, Any] | Callable[..., Any], ...] = setting(
        (),
        "Wrappers of each environment, innermost first: frame-stack, atari, a class of gymnasium.wrappers, or your own "
        "as module:function. Arguments come after the name, as name=value; in files as {name: {argument: value}}.",
    )
    n_envs: int = setting(8, "Environments that are stepped in parallel.", minimum=1)
    group_size: int | None = setting(
        None, "Environments that are acted for together; by default a function of n_envs.", minimum=1
    )
    backend: str = setting(
        "auto",
        "Where environments run: auto, sequential, threads or processes. It never changes a result.",
        choices=BACKENDS,
    )
    workers: int | None = setting(
        None,
        "Worker processes or threads; by default the usable cores, or more where steps only wait. It never changes a "
        "result.",
        minimum=1,
    )
    start_method: Literal["spawn", "fork", "forkserver"] | None = setting(
        None, "How worker processes are started; spawn by default."
    )
    pin_cores: bool = setting(
        False, "Bind every worker process to one core, in turn (Linux). The system usually does better by itself."
    )
    timeout: float = setting(60.0, "Seconds after which a step counts as hung and its worker is restarted.", above=0)
    on_error: Literal["raise", "restart"] = setting(
        "raise", "What happens when an environment raises: the run stops, or the environment is restarted."
    )

    validate: Literal["strict", "warn", "off"] = setting(
        "warn",
        "Checks of observations and rewards. warn: accept rounding errors at bounds, other dtypes of the same kind and "
        "lists, with one warning each; strict: refuse them; off: leave out bounds and NaN.",
    )
    restarts: int = setting(
        10,
        "How often within five minutes a worker, or an environment with on_error restart, may be restarted.",
        minimum=0,
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
        "Hours to train for (0.017 is a minute). As the only budget it makes schedules of rates follow the clock.",
        above=0,
    )
    stop_score: float | None = setting(
        None, "End the training once the mean return of an evaluation reaches this (see eval_every)."
    )
    patience: int | None = setting(
        None, "End the training once so many evaluations in a row brought no better mean return.", minimum=1
    )
    round_steps: int | None = setting(
        None,
        "Steps of every environment in a round. Where it is given, num_episodes and frequencies count rounds.",
        minimum=1,
    )
    seed: int | None = setting(
        None, "Seed of the run; drawn and recorded where not given.", minimum=0, maximum=LARGEST_SEED
    )

    # --- how collecting and learning take turns
    schedule: Literal["sync", "overlap"] = setting(
        "sync",
        "sync: collect, learn, repeat. overlap: collect the next rollout while learning from this one "
        "(faster; the policy lags by exactly one rollout, which is corrected for).",
    )
    acting: Literal["auto", "worker", "central"] = setting(
        "auto",
        "Who acts: each worker with its own copy of the policy, or the learner for all, which lets slow environments "
        "be stepped one by one on any number of workers. auto measures. It never changes a result.",
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

    # --- the run
    output_dir: str | Path | None = setting(
        None, "The run's folder; runs/<env>__<algorithm>__<seed>__<time> by default."
    )
    overwrite: bool = setting(False, "Replace an output_dir that exists, once the first checkpoint is saved.")
    checkpoint_dir: str | Path | None = setting(None, "Folder of the checkpoints in place of checkpoints/ in the run.")
    checkpoint_every: int | None = setting(
        None, "Environment steps between checkpoints; a tenth of the budget by default.", minimum=1
    )
    checkpoint_frequency: int | None = setting(None, "The same in rounds (see round_steps).", minimum=1)
    checkpoint_minutes: float = setting(5.0, "Minutes after which a checkpoint is written in any case.", above=0)
    keep_checkpoints: int = setting(3, "How many periodic checkpoints are kept.", minimum=1)
    eval_every: int | None = setting(
        None, "Environment steps between evaluations; a fifth of the budget by default, 0 for none.", minimum=0
    )
    eval_episodes: int = setting(10, "Episodes of each evaluation.", minimum=1)
    eval_max_steps: int = setting(
        30_000,
        "Steps after which an episode of an evaluation is cut, for environments whose episodes may never end.",
        minimum=1,
    )
    eval_sampled: bool = setting(
        False,
        "Whether evaluations draw actions as training does, instead of taking the best; `evaluate` does the same.",
    )
    video_every: int = setting(
        0,
        "Environment steps between videos of an episode, in videos/ of the run (the extra `video`); 0 for none.",
        minimum=0,
    )
    random_steps: int = setting(
        0, "Steps of random play before training begins; the summary compares with its score. 0 for none.", minimum=0
    )
    log_info: tuple[str, ...] = setting(
        (),
        "Keys of `info` whose numbers are logged as info/KEY: of each episode the mean over its steps, or KEY:last, "
        "KEY:sum; then the mean of the last 100 episodes. is_success and success are logged as the success rate.",
    )
    preset: (
        Literal["auto-scale", "low-memory", "max-throughput", "faster", "debug", "procgen", "procgen-nature"] | None
    ) = setting(None, "Settings by name, over those of the environment's family and under what is given here.")
    init_from: str | Path | None = setting(None, "A run whose weights and normalisers this one starts from.")
    track: bool = setting(False, "Send the metrics to Weights & Biases as well.")
    quiet: bool = setting(False, "Say nothing but errors.")
    verbose: bool = setting(False, "Show every metric.")

    def problems(self) -> list[str]:
        found = super().problems()
        if self.quiet and self.verbose:
            found.append("quiet and verbose were both asked for; expected at most one")
        if self.checkpoint_frequency is not None and self.round_steps is None:
            found.append("checkpoint_frequency counts rounds and needs round_steps, the steps of a round")
        if len(set(self.log_info)) < len(self.log_info) or "" in self.log_info:
            found.append(f"log_info: got {' '.join(map(repr, self.log_info))}, expected keys of info, each once")
        if self.eval_every == 0 and (self.stop_score is not None or self.patience is not None):
            name = "patience" if self.stop_score is None else "stop_score"
            found.append(f"{name} looks at evaluations, but eval_every is 0: there are none; expected at least 1")
        return found

    def notices(self) -> list[str]:
        """What the user should know about these settings, one line each."""
        return []

    def with_absolute_inputs(self, folder: Path) -> Self:
        """The same with absolute paths of the files it reads later on; relative ones are meant from `folder`."""
        files = {} if self.init_from is None else {"init_from": str(folder / self.init_from)}
        return self.but(**files) if files else self

    def in_steps(self) -> Self:
        """The same with everything that counts rounds in steps and updates."""
        if self.round_steps is None:
            return self
        return self.but(**self.rounds_in_steps(self.round_steps * self.n_envs))

    def rounds_in_steps(self, steps: int) -> dict[str, Any]:
        """What changes where a round has so many steps, of all environments together."""
        changes: dict[str, Any] = {"round_steps": None, "checkpoint_frequency": None, "num_episodes": None}
        if self.num_episodes is not None:
            changes["steps"] = min(self.num_episodes * steps, self.steps or self.num_episodes * steps)
        if self.checkpoint_frequency is not None:
            changes["checkpoint_every"] = self.checkpoint_frequency * steps
        return changes

    # --- what the training core asks of an algorithm

    @property
    def rollout_length(self) -> int:
        """Steps of each environment per rollout."""
        raise NotImplementedError

    @property
    def piece_length(self) -> int:
        """Steps between two stored memories."""
        return self.rollout_length

    @property
    def threads(self) -> int:
        """Threads of the learner on a CPU."""
        return self.learner_threads or 1

    def actor_maker(self, lag: int) -> Any:
        """Builds the policy wherever it acts (an `ActorMaker`); rollouts come from weights `lag` updates old."""
        raise NotImplementedError

    def build_learner(self, observation_space: Any, action_space: Any, *, n_envs: int, seed: int, device: Any) -> Any:
        """The learner with a fresh policy; imports torch."""
        raise NotImplementedError

    def build_policy(self, observation_space: Any, action_space: Any, *, seed: int) -> Any:
        """A fresh policy; a SettingsError says which space the algorithm cannot learn on. Imports torch."""
        raise NotImplementedError

    def describe_policy(self) -> dict[str, Any]:
        """The policy as plain data, for `envfleet.policies.described`."""
        raise NotImplementedError
