"""Settings files of pomdp-baselines (Ni et al. 2022) and of systems made from it, as settings of SAC.

Such a file has the sections `env`, `train`, `eval` and `policy`. It counts in iterations: so many whole trials, then so
many updates. Here a rollout has a fixed number of steps, so an iteration is one rollout in which every environment
plays its share of the trials, if none of them ends early. Every key has an effect or a notice.
"""

from __future__ import annotations

from typing import Any

from envfleet.errors import SettingsError

__all__ = ["is_foreign", "translated"]

_SECTIONS = ("env", "train", "eval", "policy")
_STEPS_OF_EPISODE = {"PointRobot-v0": 60, "PointRobotSparse-v0": 60, "Wind-v0": 75}
_OTHER_STEPS = 200  # of all walking robots
_FIRST_ENVS = 8  # environments, if the file does not say how many

# Keys with the same meaning: section and name there -> name here.
_SAME = {
    "seed": "seed",
    "train.buffer_size": "replay_size",
    "train.batch_size": "minibatch_size",
    "train.sampled_seq_len": "sampled_seq_len",
    "train.sample_weight_baseline": "episode_weight",
    "eval.eval_stochastic": "eval_sampled",
    "policy.action_embedding_size": "action_embedding",
    "policy.observ_embedding_size": "observation_embedding",
    "policy.reward_embedding_size": "reward_embedding",
    "policy.rnn_hidden_size": "memory_size",
    "policy.lr": "learning_rate",
    "policy.gamma": "gamma",
    "policy.tau": "target_rate",
    "policy.sac.alpha_lr": "temperature_learning_rate",
}
_OF_ENV = {
    "env.max_rollouts_per_task": "episodes_per_task",
    "env.num_train_tasks": "num_train_tasks",
    "env.num_eval_tasks": "num_eval_tasks",
    "env.oracle": "oracle",
}
_NO_EFFECT = {
    "cuda": "the learner takes the device of --device",
    "env.env_type": "the environment is named by env_name",
    "env.num_tasks": "training and held-out tasks are drawn separately, by num_train_tasks and num_eval_tasks",
    "train.buffer_type": "one replay buffer serves transitions and sequences",
    "eval.log_tensorboard": "a run always writes TensorBoard files",
    "eval.num_episodes_per_task": "evaluations play whole trials, and evaluate --tasks one of each held-out task",
    "policy.td3": "the algorithm is SAC",
    "policy.dqn": "the algorithm is SAC",
    "policy.sacd": "the algorithm is SAC with its own target_entropy",
}


def is_foreign(values: dict[str, Any]) -> bool:
    """Whether a file has the sections of pomdp-baselines."""
    return any(isinstance(values.get(section), dict) for section in _SECTIONS)


def translated(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings by our names, and messages for the user, one line each."""
    return _Translation(values).result()


class _Translation:
    """Takes one key after the other out of the file."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._left = {key: value for key, value in _dotted(values) if value is not None}
        self._found: dict[str, Any] = {}
        self._env_kwargs: dict[str, Any] = {}
        self._notices: list[str] = []

    def result(self) -> tuple[dict[str, Any], list[str]]:
        for names, found in ((_SAME, self._found), (_OF_ENV, self._env_kwargs)):
            found.update({here: self._left.pop(there) for there, here in names.items() if there in self._left})
        self._policy()
        self._temperature()
        self._iterations()
        for key in [key for key in self._left if _no_effect(key) is not None]:
            self._notices.append(f"{key} has no effect: {_no_effect(key)}")
            del self._left[key]
        if self._env_kwargs:
            self._found["env_kwargs"] = self._env_kwargs
        # What is left is refused as an unknown setting, with the nearest name, unless it is one of ours.
        return {**self._found, **{key.rpartition(".")[2]: value for key, value in self._left.items()}}, self._notices

    def _policy(self) -> None:
        left, found = self._left, self._found
        if "env.env_name" in left:
            found["env"] = left.pop("env.env_name")
        algorithm = left.pop("policy.algo_name", "sac")
        if algorithm not in ("sac", "sacd"):
            raise SettingsError(
                f"policy.algo_name is {algorithm!r}, expected 'sac' or 'sacd'", hint="TD3 is not part of Envfleet"
            )
        model = left.pop("policy.seq_model", None)
        if model is not None:
            memory, _, markov = str(model).partition("-")
            found["memory"] = "none" if memory == "mlp" else memory
            if markov:  # a Markov actor with recurrent critics
                found["architecture"] = "memory-markov"
        if left.pop("policy.separate", True) is False:
            self._notices.append("policy.separate has no effect: actor and critics always have a memory each")
        if (layers := left.pop("policy.rnn_num_layers", 1)) != 1:
            raise SettingsError(f"policy.rnn_num_layers is {layers}, expected 1", hint="raise rnn_hidden_size instead")
        heads = [left.pop(f"policy.{name}_layers", None) for name in ("policy", "dqn")]
        given = [head for head in heads if head is not None]
        for head in given:
            if not isinstance(head, list | tuple):
                raise SettingsError(f"policy_layers or dqn_layers is {head!r}, expected a list, e.g. [128, 128]")
        if given:
            found["hidden"] = tuple(given[0])
        if len(given) == 2 and list(given[0]) != list(given[1]):
            self._notices.append(f"policy.dqn_layers has no effect: the critics' layers are the actor's, {given[0]}")

    def _temperature(self) -> None:
        tunes = self._left.pop("policy.sac.automatic_entropy_tuning", True)
        alpha = self._left.pop("policy.sac.entropy_alpha", None)
        target = self._left.pop("policy.sac.target_entropy", None)
        self._found["tune_temperature"] = tunes
        if alpha is not None and tunes:
            self._notices.append("policy.sac.entropy_alpha has no effect: the temperature is tuned and starts at 1")
        elif alpha is not None:
            self._found["temperature"] = alpha
        if target is not None:
            self._found["target_entropy"] = target

    def _iterations(self) -> None:
        """Turn iterations of whole trials into steps."""
        left, found = self._left, self._found
        episodes = _whole("env.max_rollouts_per_task", self._env_kwargs.get("episodes_per_task", 1), minimum=1)
        trial = episodes * _STEPS_OF_EPISODE.get(str(found.get("env", "")).rpartition("/")[2], _OTHER_STEPS)
        trials = self._taken("train.num_rollouts_per_iter", minimum=1)
        envs = self._taken("env.num_parallel_workers", minimum=1)
        if envs is None and trials is not None:
            envs = min(trials, _FIRST_ENVS)
        if envs is not None:
            found["n_envs"] = envs
        pool = self._taken("train.num_init_rollouts_pool") or 0
        iterations = self._taken("train.num_iters")
        if pool:
            found["learning_starts"] = pool * trial
        updates = left.pop("train.num_updates_per_iter", None)
        updates = None if updates is None else _number("train.num_updates_per_iter", updates)
        if updates is not None and (isinstance(updates, float) or trials is None):
            found["updates_per_step" if isinstance(updates, float) else "num_updates_per_iter"] = updates
            updates = None
        if trials is None or envs is None:
            if iterations is not None:
                why = "the steps of an iteration follow from train.num_rollouts_per_iter, which is missing"
                self._notices.append(f"train.num_iters has no effect: {why}; see steps")
            return
        each = max(1, round(trials / envs))  # trials of one environment in an iteration
        found["rollout_steps"] = each * trial
        iteration = each * trial * envs
        if updates is not None:
            found["updates_per_step"] = updates / iteration
        if iterations is not None:
            found["steps"] = pool * trial + iterations * iteration
        if self._env_kwargs.get("num_eval_tasks"):
            found["eval_episodes"] = self._env_kwargs["num_eval_tasks"]
        self._intervals(iteration)

    def _intervals(self, iteration: int) -> None:
        """Turn intervals in iterations into steps."""
        for name, here in (("log_interval", "eval_every"), ("save_interval", "checkpoint_every")):
            every = self._taken(f"eval.{name}", minimum=None)
            if every is not None and every > 0:
                self._found[here] = every * iteration
            elif every is not None:
                self._notices.append(f"eval.{name} has no effect: {every} iterations are none; see {here}")

    def _taken(self, key: str, *, minimum: int | None = 0) -> int | None:
        """Take a whole number out of the file; None if there is none."""
        value = self._left.pop(key, None)
        return None if value is None else _whole(key, value, minimum=minimum)


def _number(key: str, value: Any) -> float | int:
    """Return a number of the file; YAML reads 1e3 as a text."""
    if isinstance(value, int | float):
        return value
    try:
        return int(value) if str(value).strip().isdecimal() else float(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{key} is {value!r}, expected a number") from None


def _whole(key: str, value: Any, *, minimum: int | None) -> int:
    found = _number(key, value)
    if found != found // 1 or (minimum is not None and found < minimum):
        least = "" if minimum is None else f" of at least {minimum}"
        raise SettingsError(f"{key} is {value!r}, expected a whole number{least}")
    return int(found)


def _no_effect(key: str) -> str | None:
    return next((why for name, why in _NO_EFFECT.items() if key == name or key.startswith(f"{name}.")), None)


def _dotted(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found
