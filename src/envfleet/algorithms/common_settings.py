"""Settings that all algorithms share. Importing this does not load torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from envfleet.algorithms.contract import AlgorithmContract
from envfleet.algorithms.schedule_rules import schedule_notices, schedule_problems
from envfleet.algorithms.stopping_rules import stopping_notices, stopping_problems
from envfleet.paths import expanded
from envfleet.seeding import LARGEST_SEED
from envfleet.settings import setting
from envfleet.settings.values import lost_in_files
from envfleet.wording import NOT_AN_OBJECT

__all__ = ["BACKENDS", "DEFAULT_STEPS", "HARMLESS", "WORKERS_TIMES_ENVS", "TrainingSettings"]

DEFAULT_STEPS = 100_000  # if neither the user nor the preset sets a budget

# Settings that may change when a run is resumed; any other change would make it a different run.
HARMLESS = frozenset(
    {
        "acting",
        "address",
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
        "numerics",
        "overcommit",
        "patience",
        "pin_cores",
        "quiet",
        "restarts",
        "runtime_env",
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
# Settings that a run folder does not record: those that describe your cluster, because run folders are passed on, and
# `overwrite`, because `train --config RUN/config.yaml` must not replace that run.
NOT_RECORDED = frozenset({"address", "overwrite", "runtime_env"})
# The fleet's list, including spellings of other systems. It is repeated here because importing the fleet loads
# Gymnasium; a test compares the two.
BACKENDS = (
    "auto", "sequential", "threads", "processes", "sync", "serial", "threading", "multiprocessing", "async", "subproc",
    "ray",
)  # fmt: skip
# Stands for n_envs if a file gives environments per worker; messages quote it as the key.
WORKERS_TIMES_ENVS = "num_workers × num_envs_per_worker"


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(AlgorithmContract):
    """Settings that all algorithms share: environment, fleet, budget, run."""

    groups: ClassVar[Mapping[str, tuple[str, str]]] = {
        "env": ("environment", "The environment, and the backend and workers that run it."),
        "steps": ("budget", "How long to train; the first limit reached ends the run."),
        "schedule": ("schedule", "How collecting and learning alternate, and on which hardware."),
        "output_dir": ("run", "Output, checkpoints, evaluation, logging."),
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "env_id": "env",
        "num_threads": "learner_threads",
        "num_workers": "workers",
        "parallel_start_method": "start_method",
        "total_timesteps": "steps",
    }

    # --- the environment and the fleet
    env: str | Callable[..., Any] = setting(
        "CartPole-v1", "Environment: a Gymnasium id or module:callable.", advice=NOT_AN_OBJECT
    )
    env_kwargs: dict[str, Any] = setting(
        {}, "Keyword arguments of the environment, as name=value. Lists arrive as tuples."
    )
    wrappers: tuple[str | dict[str, Any] | Callable[..., Any], ...] = setting(
        (),
        "Wrappers of each environment, innermost first: frame-stack, atari, history (adds the previous action and "
        "reward to the observation), a class of gymnasium.wrappers, or your own as module:function. Arguments follow "
        "the name as name=value; in files as {name: {argument: value}}.",
    )
    n_envs: int = setting(8, "Number of environments that run in parallel.", minimum=1)
    group_size: int | None = setting(
        None, "Environments per batch of the acting policy; by default derived from n_envs.", minimum=1
    )
    backend: str = setting(
        "auto",
        "Where environments run: auto, sequential, threads, processes or ray (a cluster). It never changes results.",
        choices=BACKENDS,
    )
    address: str | None = setting(
        None,
        "Ray cluster for backend ray: auto on one of its nodes, or HOST:PORT. Without it, a cluster is started on this "
        "machine. Not recorded in the run.",
    )
    runtime_env: str | None = setting(
        None, "A YAML or JSON file with a runtime environment for the nodes of the cluster. Not recorded in the run."
    )
    numerics: Literal["warn", "strict", "portable"] = setting(
        "warn",
        "What to do if nodes of the cluster compute differently from this machine. warn: say so; strict: refuse; "
        "portable: use the same kernels on all nodes.",
    )
    overcommit: bool = setting(
        False,
        "Start more workers than the cluster has CPUs. They share CPUs until nodes join; it never changes results.",
    )
    workers: int | None = setting(
        None,
        "Number of worker processes or threads; by default one per usable core. With backend auto there are more if "
        "steps mostly wait or take 5 ms and more. It never changes results.",
        minimum=1,
    )
    start_method: Literal["spawn", "fork", "forkserver"] | None = setting(
        None, "How worker processes are started (multiprocessing); by default forkserver on Linux, spawn elsewhere."
    )
    pin_cores: bool = setting(
        False, "Pin each worker process to one core, in turn (Linux). Usually the operating system does better."
    )
    timeout: float = setting(60.0, "Seconds after which a step counts as hung and its worker is restarted.", above=0)
    on_error: Literal["raise", "restart"] = setting(
        "raise", "What to do if an environment raises an error: stop the run, or restart the environment."
    )

    validate: Literal["strict", "warn", "off"] = setting(
        "warn",
        "Checks of observations and rewards. warn: accept rounding errors at bounds, other dtypes of the same kind and "
        "lists, with one warning each; strict: reject them; off: do not check bounds and NaN.",
    )
    restarts: int = setting(
        10,
        "Maximum number of restarts within five minutes, per worker and, with on_error restart, per environment.",
        minimum=0,
    )
    recycle_every: int | None = setting(
        None,
        "Rebuild an environment after this many episodes, if its simulator leaks memory or becomes slower; by default, "
        "environments are kept.",
        minimum=1,
    )

    # --- the budget: whichever comes first
    steps: int | None = setting(
        None,
        "Environment steps to train for (total timesteps). If no budget is given: the steps of the preset, else "
        "100,000. If only another budget is given, steps are unlimited.",
        minimum=1,
    )
    num_episodes: int | None = setting(None, "Episodes to train for.", minimum=1)
    duration: float | None = setting(
        None,
        "Hours to train for (0.017 is a minute). If it is the only budget, schedules such as that of the learning rate "
        "follow the clock.",
        above=0,
    )
    stop_score: float | None = setting(
        None, "Stop training once the mean return of an evaluation reaches this score (see eval_every)."
    )
    patience: int | None = setting(
        None,
        "Early stopping: stop after this many evaluations in a row without a better mean return. By default there are "
        "only 5 evaluations (see eval_every).",
        minimum=1,
    )
    round_steps: int | None = setting(
        None,
        "Steps of each environment per round. If given, num_episodes, checkpoint_frequency and DQN's "
        "target_update_frequency count rounds.",
        minimum=1,
    )
    seed: int | None = setting(
        None, "Random seed of the run; if not given, drawn and recorded.", minimum=0, maximum=LARGEST_SEED
    )

    # --- how collecting and learning alternate
    schedule: Literal["sync", "overlap", "async"] = setting(
        "sync",
        "sync: collect, learn, repeat. overlap: collect the next rollout while learning from this one (faster unless "
        "learning dominates, because only one thread learns; the policy lags by exactly one rollout, which is "
        "corrected for). async: no worker waits for another or for the learner (fastest if workers differ in speed; "
        "results depend on timing).",
    )
    max_lag: int = setting(
        8,
        "With async: drop rollouts whose weights are older than this many updates.",
        minimum=1,
    )
    record_order: bool = setting(
        False, "With async: write to order.jsonl in the run which rollout entered which update, for replay_order."
    )
    replay_order: str | Path | None = setting(
        None,
        "With async: the order.jsonl of a recorded run. With the other settings of that run, the result has the same "
        "weights.",
    )
    acting: Literal["auto", "worker", "central"] = setting(
        "auto",
        "Where the policy runs while collecting. worker: each worker has its own copy. central: the learner acts for "
        "all, so that slow environments can be spread over any number of workers. auto chooses by measurement. It "
        "never changes results.",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "Device of the learner (CPU or GPU); auto uses cuda or mps if available."
    )
    learner_threads: int | None = setting(
        None,
        "CPU threads of the learner; by default derived from batch size and schedule. It changes numerical results, so "
        "it is recorded with the run's settings.",
        minimum=1,
    )

    # --- the run
    output_dir: str | Path | None = setting(
        None, "Folder of the run; runs/<env>__<algorithm>__<seed>__<time> by default."
    )
    overwrite: bool = setting(False, "Replace an existing output_dir, once the first checkpoint is saved.")
    checkpoint_dir: str | Path | None = setting(None, "Folder of the checkpoints, instead of checkpoints/ in the run.")
    checkpoint_every: int | None = setting(
        None, "Environment steps between checkpoints; a tenth of the budget by default.", minimum=1
    )
    checkpoint_frequency: int | None = setting(None, "Rounds between checkpoints (see round_steps).", minimum=1)
    checkpoint_minutes: float = setting(5.0, "Maximum minutes between checkpoints.", above=0)
    keep_checkpoints: int = setting(3, "Number of periodic checkpoints to keep.", minimum=1)
    eval_every: int | None = setting(
        None, "Environment steps between evaluations; a fifth of the budget by default, 0 for none.", minimum=0
    )
    eval_episodes: int = setting(10, "Episodes per evaluation.", minimum=1)
    eval_max_steps: int = setting(
        30_000,
        "Maximum steps per evaluation episode, for environments whose episodes may never end.",
        minimum=1,
    )
    eval_sampled: bool = setting(
        False,
        "Evaluate with sampled actions, as in training, instead of the best ones (stochastic, not deterministic); "
        "the command `evaluate` follows this setting.",
    )
    video_every: int = setting(
        0,
        "Environment steps between videos of an episode, saved in videos/ of the run (needs the extra `video`); 0 for "
        "none.",
        minimum=0,
    )
    random_steps: int = setting(
        0, "Steps of random play before training, whose score the summary uses as a baseline; 0 for none.", minimum=0
    )
    log_info: tuple[str, ...] = setting(
        (),
        "Keys of `info` to log as info/KEY. Each episode contributes the mean over its steps (KEY), its last value "
        "(KEY:last) or its sum (KEY:sum); the metric is the mean of the last 100 episodes. is_success and success are "
        "logged as the success rate.",
    )
    preset: (
        Literal[
            "auto-scale",
            "low-memory",
            "max-throughput",
            "sample-efficient",
            "faster",
            "debug",
            "procgen",
            "procgen-nature",
        ]
        | None
    ) = setting(
        None,
        "Named preset. It overrides the preset of the environment's family; settings given explicitly override both.",
    )
    init_from: str | Path | None = setting(None, "Start from the weights and normalisers of another run.")
    track: bool = setting(False, "Also send the metrics to Weights & Biases.")
    quiet: bool = setting(False, "Print errors only.")
    verbose: bool = setting(False, "Also print the metrics of learning (train/*) and every episode.")

    def problems(self) -> list[str]:
        found = super().problems()
        if self.quiet and self.verbose:
            found.append("quiet and verbose were both asked for; expected at most one")
        if self.checkpoint_frequency is not None and self.round_steps is None:
            found.append("checkpoint_frequency counts rounds and needs round_steps, the steps of a round")
        if len(set(self.log_info)) < len(self.log_info) or "" in self.log_info:
            found.append(f"log_info: got {' '.join(map(repr, self.log_info))}, expected keys of info, each once")
        found += lost_in_files("env_kwargs", self.env_kwargs)
        for place, wrapper in enumerate(self.wrappers):
            found += lost_in_files(f"wrappers[{place}]", wrapper) if isinstance(wrapper, dict) else []
        return [*found, *stopping_problems(self), *schedule_problems(self)]

    def notices(self) -> list[str]:
        """Return notices about these settings for the user, one line each."""
        given = [
            f"--{name.replace('_', '-')}" for name in ("address", "runtime_env", "overcommit") if getattr(self, name)
        ]
        others = [*stopping_notices(self), *schedule_notices(self)]
        if not given or self.backend == "ray":
            return others
        return [f"the backend is {self.backend!r}; only 'ray' uses {' and '.join(given)} (add --backend ray)", *others]

    def with_absolute_inputs(self, folder: Path) -> Self:
        """Return a copy with absolute paths of input files; relative ones start from `folder`, `~` from home."""
        inputs = {name: getattr(self, name) for name in ("init_from", "replay_order")}
        files = {name: str(folder / expanded(path)) for name, path in inputs.items() if path is not None}
        return self.but(**files) if files else self

    def in_steps(self) -> Self:
        """Return a copy in which everything that counts rounds counts steps or updates instead."""
        if self.round_steps is None:
            return self
        return self.but(**self.rounds_in_steps(self.round_steps * self.n_envs))

    def rounds_in_steps(self, steps: int) -> dict[str, Any]:
        """Return the changed settings, if a round has `steps` steps of all environments together."""
        changes: dict[str, Any] = {"round_steps": None, "checkpoint_frequency": None, "num_episodes": None}
        if self.num_episodes is not None:
            changes["steps"] = min(self.num_episodes * steps, self.steps or self.num_episodes * steps)
        if self.checkpoint_frequency is not None:
            changes["checkpoint_every"] = self.checkpoint_frequency * steps
        return changes

    # --- contract between training and an algorithm; `envfleet.algorithms.contract` has the rest

    @property
    def rollouts_waiting(self) -> int:
        """With async: finished rollouts of a worker that may wait for the learner."""
        return self.max_lag if self.off_policy else 1

    @property
    def threads(self) -> int:
        """Threads of the learner on a CPU."""
        return self.learner_threads or 1

    def recorded(self) -> dict[str, Any]:
        """Return the algorithm and all settings as plain data, for a run folder, without those in NOT_RECORDED."""
        plain = {name: value for name, value in self.to_json().items() if name not in NOT_RECORDED}
        return {"algorithm": self.recorded_name(), **plain}
