"""Run by the Python that has Meta-World: its environments in a fleet, with tasks as plain values."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import metaworld
import numpy as np

import envfleet
from envfleet.errors import SettingsError

REACH = "metaworld/ML1-reach-v3"


def is_meta_worlds_own_episode() -> None:
    """Every value of an episode equals that of Meta-World with the same task."""
    benchmark = metaworld.ML1("reach-v3", seed=3)
    theirs = benchmark.train_classes["reach-v3"]()
    task = benchmark.train_tasks[0]
    theirs.set_task(task)
    vector = theirs._last_rand_vec.tolist()
    ours = gymnasium.make(REACH, episodes_per_task=1, disable_env_checker=True)
    ours.reset(seed=1)  # an episode of another task first
    ours.step(np.ones(4, np.float32))
    first, info = ours.reset(options={"task": {"env_name": "reach-v3", "rand_vec": vector}})
    expected, _ = theirs.reset()
    assert np.array_equal(first[:39], np.float32(expected)) and info["task"]["rand_vec"] == vector
    rng, best = np.random.default_rng(0), 0.0
    for step in range(500):
        action = rng.uniform(-1.0, 1.0, 4).astype(np.float32)
        seen, reward, terminated, truncated, info = ours.step(action)
        own = theirs.step(np.float64(action))
        best = max(best, own[4]["success"])
        assert np.array_equal(seen[:39], np.float32(own[0])) and reward == own[1]
        assert (terminated, truncated) == (False, step == 499) and info["is_success"] == bool(best)


def tasks_are_plain_and_held_out() -> None:
    env: Any = gymnasium.make("metaworld/ML10", disable_env_checker=True).unwrapped
    tasks = env.sample_tasks(30, np.random.default_rng(1))
    assert json.loads(json.dumps(tasks)) == tasks == env.sample_tasks(30, np.random.default_rng(1))
    names = {task["env_name"] for task in tasks}
    held_out: Any = gymnasium.make("metaworld/ML10", task_set="eval", disable_env_checker=True).unwrapped
    others = {task["env_name"] for task in held_out.sample_tasks(20, np.random.default_rng(1))}
    ml10 = metaworld.ML10(seed=1)
    assert names <= set(ml10.train_classes) and len(names) >= 6
    assert others <= set(ml10.test_classes) and len(others) >= 3 and not names & others
    assert env.generalisation().env_kwargs == {"task_set": "eval"}
    for bad in ({"env_name": "fly-v3", "rand_vec": [0.0]}, {"env_name": "reach-v3", "rand_vec": [1.0]}, 3):
        assert "expected {'env_name'" in refusal(env, bad)


def refusal(env: Any, task: Any) -> str:
    try:
        env.reset(options={"task": task})
    except SettingsError as error:
        return str(error)
    return "accepted"


def fleets_give_the_same_bytes_and_continue_from_a_state() -> None:
    settings: dict[str, Any] = {"seed": 2, "group_size": 1, "env_kwargs": {"num_train_tasks": 3, "oracle": True}}
    traces = []
    for backend in ("sequential", "processes"):
        with envfleet.make(REACH, 2, backend=backend, **settings) as fleet:
            fleet.reset()
            fleet.action_space.seed(1)
            actions = [fleet.action_space.sample() for _ in range(60)]
            for batch in actions[:40]:
                fleet.step(batch)
            saved = fleet.state()
            traces.append([fleet.step(batch)[:2] for batch in actions[40:]])
    with envfleet.make(REACH, 2, backend="sequential", **settings) as fleet:
        fleet.restore(saved)
        traces.append([fleet.step(batch)[:2] for batch in actions[40:]])
    for other in traces[1:]:
        for (seen, reward), (also, same) in zip(traces[0], other, strict=True):
            assert np.array_equal(seen, also) and np.array_equal(reward, same)
    assert traces[0][0][0].shape == (2, 39 + 1 + 9 + 4 + 2)


def a_picture() -> None:
    env: Any = gymnasium.make("metaworld/ML1-drawer-open-v3", disable_env_checker=True).unwrapped
    env.reset(seed=1)
    assert env.describe().startswith("drawer-open-v3 ")


if __name__ == "__main__":
    is_meta_worlds_own_episode()
    tasks_are_plain_and_held_out()
    fleets_give_the_same_bytes_and_continue_from_a_state()
    a_picture()
