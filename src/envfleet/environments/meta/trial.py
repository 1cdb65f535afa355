"""A trial: k episodes of one task, as one episode of the agent.

The agent does not see the task. It has to infer it from its experience, with a memory that it keeps through the trial.
So its observations include the previous action, the previous reward, and whether an episode begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from envfleet.capabilities import HasTasks
from envfleet.environments.meta.settings import TaskSettings
from envfleet.environments.meta.tasks import TaskSource
from envfleet.errors import ProtocolError, SettingsError
from envfleet.seeding import stream

__all__ = ["Trial", "hold_out_tasks", "trial_of"]

Seen = NDArray[np.float32]


class Trial(gymnasium.Wrapper[Seen, Any, Any, Any], RecordConstructorArgs):
    """Joins several episodes of a task to one trial. The environment follows `envfleet.capabilities.HasTasks`.

    Observation: a vector of `parts`: the state, the task (for an oracle only), the previous action (one-hot if
    discrete), the previous reward, and 1 at the first step of an episode. The last three are empty without
    `show_previous`. A trial begins with a zero action and a zero reward. The last step of an episode returns the first
    observation of the next episode, together with its own action and reward.

    The end of an episode within a trial is neither terminated nor truncated. The trial ends in the same way as its last
    episode.

    `reset` draws the next task from the environment's seed, or takes `options["task"]`. `info` has the `task` at the
    start of a trial, and `episode_returns`, one per episode, at its end. Each episode begins with the same `options`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], settings: TaskSettings | None = None) -> None:
        """Wrap `env`; `settings` are by default those of the environment."""
        RecordConstructorArgs.__init__(self, settings=settings)
        super().__init__(env)
        chosen = getattr(env.unwrapped, "settings", None) if settings is None else settings
        if not isinstance(chosen, TaskSettings):
            raise SettingsError(
                f"a trial of {type(env.unwrapped).__name__} has no settings, expected TaskSettings",
                hint="Trial(env, TaskSettings(episodes_per_task=2))",
            )
        unwrapped = env.unwrapped
        if not isinstance(unwrapped, HasTasks):
            raise SettingsError(
                f"{type(unwrapped).__name__} has no tasks, expected a method sample_tasks(n, generator)",
                hint="docs/meta-rl.md shows an environment with tasks",
            )
        self.settings, self._source = chosen, TaskSource(unwrapped, chosen)
        space = env.action_space
        self._arms, self._first_arm = (int(space.n), int(space.start)) if isinstance(space, spaces.Discrete) else (0, 0)
        self.parts, self.observation_space = self._layout()
        self._size = sum(part.stop - part.start for part in self.parts.values())
        self._generator: np.random.Generator | None = None  # of the tasks
        self._task: Any = None
        self._options: dict[str, Any] = {}  # of the trial, for the resets of its episodes
        self._task_seen = np.empty(0, np.float32)
        self._returns: list[float] = []  # of the episodes so far
        self._steps = 0  # of this episode
        self._over = True

    def _layout(self) -> tuple[dict[str, slice], spaces.Space[Any]]:
        """The place of each part in the observation, and the space of all of them."""
        state, action = self.env.observation_space, self.env.action_space
        if not isinstance(state, spaces.Box) or len(state.shape) != 1:
            raise SettingsError(
                f"a trial needs observations that are vectors, got {state}", hint="wrap it in FlattenObservation first"
            )
        if not self._arms and (not isinstance(action, spaces.Box) or len(action.shape) != 1):
            raise SettingsError(f"a trial needs actions of a Discrete space or vectors, got {action}")
        task_size = len(self._numbers(self._source.draw(stream(0)))) if self.settings.oracle else 0
        bounds = {
            "state": (state.low, state.high),
            "task": (np.full(task_size, -np.inf), np.full(task_size, np.inf)),
            "action": (np.zeros(self._arms), np.ones(self._arms)) if self._arms else (action.low, action.high),  # type: ignore[attr-defined]  # a Box
            "reward": (np.full(1, -np.inf), np.full(1, np.inf)),
            "first": (np.zeros(1), np.ones(1)),
        }
        if not self.settings.show_previous:
            bounds |= dict.fromkeys(("action", "reward", "first"), (np.zeros(0), np.zeros(0)))
        parts, place = {}, 0
        for name, (low, _) in bounds.items():
            parts[name] = slice(place, place + len(low))
            place += len(low)
        low, high = (np.concatenate([np.float32(both[end]) for both in bounds.values()]) for end in (0, 1))
        if not self._arms and self.settings.show_previous:  # zero before the first action, whatever the bounds
            low[parts["action"]] = np.minimum(low[parts["action"]], 0)
            high[parts["action"]] = np.maximum(high[parts["action"]], 0)
        return parts, spaces.Box(low, high, dtype=np.float32)

    def history_parts(self) -> dict[str, tuple[str, int, int]]:
        """Where the observation has the previous action and reward; empty without `show_previous`."""
        if not self.settings.show_previous:
            return {}
        return {name: ("", self.parts[name].start, self.parts[name].stop) for name in ("action", "reward")}

    def hold_out(self) -> bool:
        """Draw held-out tasks from the next trial on. If there are none, return False and change nothing."""
        if self._source.all_are_used:
            return False
        self.settings = replace(self.settings, task_set="eval")
        unwrapped: Any = self.env.unwrapped
        self._source, self._generator = TaskSource(unwrapped, self.settings), None
        return True

    def held_out(self) -> list[Any]:
        """The fixed set of held-out tasks that this trial draws from; empty if it draws others."""
        return self._source.held_out

    # ---- Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin a trial of `options["task"]`, or of the next task."""
        if seed is not None or self._generator is None:
            drawn = int(self.env.unwrapped.np_random.integers(2**31)) if seed is None else seed
            self._generator = self._source.stream(drawn)
        asked = (options or {}).get("task")
        self._begin_task(self._source.draw(self._generator) if asked is None else asked)
        self._options = {**(options or {}), "task": self._task}
        self._returns, self._steps, self._over = [0.0], 0, False
        state, info = self.env.reset(seed=seed, options=dict(self._options))
        return self._see(state, None, 0.0, first=True), info

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise ProtocolError("step() was called before reset(), or after the end of a trial")
        state, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        self._returns[-1] += reward
        self._steps += 1
        ended = terminated or truncated
        if not ended:
            return self._see(state, action, reward, first=False), reward, False, False, info
        if len(self._returns) == self.settings.episodes_per_task:
            self._over = True
            info = {**info, "episode_returns": np.array(self._returns)}
            return self._see(state, action, reward, first=False), reward, terminated, truncated, info
        self._returns.append(0.0)
        self._steps = 0
        state, begun = self.env.reset(options=dict(self._options))
        # The mask is for the next action, so it has to be that of the new episode.
        info = {name: value for name, value in info.items() if name != "action_mask"}
        if "action_mask" in begun:
            info["action_mask"] = begun["action_mask"]
        return self._see(state, action, reward, first=True), reward, False, False, info

    def render(self) -> Any:
        """The image of the environment, with the episode, its return and the task below."""
        image: Any = self.env.render()
        if image is None or not self._returns:
            return image
        from envfleet.environments.meta.pictures import with_caption

        number, of = len(self._returns), self.settings.episodes_per_task
        describe = getattr(self.env.unwrapped, "describe", lambda: f"task {self._task}")
        line = f"episode {number} of {of}, step {self._steps}, return {self._returns[-1]:.1f}"
        return with_caption(image, line, describe())

    def _begin_task(self, task: Any) -> None:
        self._task = task
        self._task_seen = self._numbers(task) if self.settings.oracle else np.empty(0, np.float32)

    def _numbers(self, task: Any) -> Seen:
        """The task as the vector that an oracle sees; the environment can compute it in `oracle_view`."""
        view = getattr(self.env.unwrapped, "oracle_view", None)
        return _numbers(task if view is None else view(task))

    def _see(self, state: Any, action: Any, reward: float, *, first: bool) -> Seen:
        parts = self.parts
        seen = np.zeros(self._size, np.float32)
        seen[parts["state"]] = state
        seen[parts["task"]] = self._task_seen
        if not self.settings.show_previous:
            return seen
        if action is not None:
            if self._arms:
                seen[parts["action"].start + int(action) - self._first_arm] = 1.0
            else:
                seen[parts["action"]] = action
        seen[parts["reward"].start] = reward
        seen[parts["first"].start] = first
        return seen

    # ---- state

    def get_state(self) -> dict[str, Any]:
        """The state of the trial, without that of the environment, as plain data."""
        generator = self._generator
        return {
            "task": self._task,
            "options": {name: value for name, value in self._options.items() if name != "task"},
            "returns": list(self._returns),
            "steps": self._steps,
            "over": self._over,
            "generator": None if generator is None else generator.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state of a trial with the same settings."""
        self._generator = None
        if state["generator"] is not None:
            self._generator = self._source.stream(0)
            self._generator.bit_generator.state = state["generator"]
        self._returns, self._steps, self._over = list(state["returns"]), state["steps"], state["over"]
        self._options = {**state.get("options", {}), "task": state["task"]}  # older states have no options
        if state["task"] is not None:
            self._begin_task(state["task"])


def trial_of(env: Any) -> Trial | None:
    """The trial among the wrappers of an environment; None if there is none."""
    while isinstance(env, gymnasium.Wrapper) and not isinstance(env, Trial):
        env = env.env
    return env if isinstance(env, Trial) else None


def hold_out_tasks(env: Any) -> Any:
    """Let the trial of an environment draw held-out tasks; to be used like a wrapper."""
    trial = trial_of(env)
    if trial is not None:
        trial.hold_out()
    return env


def _numbers(task: Any) -> NDArray[np.float32]:
    """The task as a vector that an oracle sees."""
    try:
        return np.asarray(task, np.float32).ravel()
    except (TypeError, ValueError):
        raise SettingsError(
            f"received the task {str(task)[:80]}, expected a number or a list of numbers, which an oracle can see",
            hint="define oracle_view(task) in the environment, or train without oracle",
        ) from None
