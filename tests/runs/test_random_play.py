"""Random play, the baseline of a summary, and episodes that report whether they succeeded."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envfleet.runs.evaluation import evaluate, random_play


class Three(gymnasium.Env[Any, Any]):
    """Episodes of four steps whose reward is the action; a success if 3 was never taken."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, mask: list[int] | None = None, tells: bool = True) -> None:
        self.info = {} if mask is None else {"action_mask": np.array(mask)}
        self.tells, self.seeds, self.taken, self.closed = tells, [], [], False  # type: ignore[var-annotated]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.seeds.append(seed)
        self.taken = []
        return 0, self.info

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.taken.append(int(action))
        reported = {"is_success": 3 not in self.taken} if self.tells else {}
        return len(self.taken), float(action), len(self.taken) == 4, False, {**self.info, **reported}

    def close(self) -> None:
        self.closed = True


class Always:
    def __init__(self, *actions: int) -> None:
        self.actions, self.episode = actions, -1

    def reset(self) -> None:
        self.episode += 1

    def __call__(self, observation: int, info: dict[str, Any]) -> int:
        return self.actions[self.episode]


def test_random_play_spends_its_steps_in_whole_episodes() -> None:
    env = Three()
    returns, steps = random_play(lambda: env, steps=402, seed=1)
    assert steps == 404 and len(returns) == 101 and env.closed
    assert len(set(env.seeds)) == 101 and min(env.seeds) >= 2**30  # no seed that training uses
    assert abs(np.mean(returns) - 4 * 1.5) < 0.6
    assert random_play(Three, steps=402, seed=1)[0] == returns
    assert random_play(Three, steps=402, seed=2)[0] != returns


def test_random_play_takes_allowed_actions_only() -> None:
    returns, _ = random_play(lambda: Three(mask=[0, 0, 1, 0]), steps=8, seed=1)
    assert returns == [8.0, 8.0]


def test_successes_are_counted_where_the_environment_tells_them() -> None:
    result = evaluate(Three, Always(2, 3, 1), episodes=3, seed=1, deterministic=True)
    assert result.successes == (True, False, True)
    untold = evaluate(lambda: Three(tells=False), Always(2), episodes=1, seed=1, deterministic=True)
    assert untold.successes is None
