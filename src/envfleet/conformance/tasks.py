"""Checks the task protocol of an environment: plain tasks, drawn from the given generator, and begun by `reset`."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from envfleet.capabilities import HasTasks
from envfleet.conformance.budget import Budget
from envfleet.conformance.episodes import Calls
from envfleet.conformance.probe import Probe
from envfleet.conformance.report import RAISED
from envfleet.conformance.values import fingerprint
from envfleet.fleet.random_actions import RandomAgent
from envfleet.wording import counted, shown

__all__ = ["check_tasks"]

_STEPS = 50  # of an episode of a task
_COUNT = 2  # tasks to play


def check_tasks(probe: Probe, seed: int, budget: Budget) -> Calls[None]:
    """Draw two tasks and play the first, the second, and the first again."""
    yield "sample_tasks"
    tasks = _drawn(probe, seed)
    if tasks is None:
        return
    plays = []
    for task in (*tasks, tasks[0]):
        played = yield from _play(probe, seed, task, budget)
        if played is None:
            return
        plays.append(played)
    if budget.refused:
        return
    if plays[0] != plays[-1]:
        probe.findings.error(
            "the same task and seed give another episode when they are played again, after another task",
            "set in reset everything that depends on the task, and draw from self.np_random",
        )
        return
    probe.findings.note("it has tasks: the same task and seed give the same episode")
    if tasks[0] != tasks[1] and plays[0] == plays[1]:
        steps = counted(len(plays[0]) - 1, "random step")
        probe.findings.note(f"two different tasks gave the same episode ({steps}): make sure that it uses its task")


def _drawn(probe: Probe, seed: int) -> list[Any] | None:
    """Two tasks; None if there are problems."""
    base, findings = probe.base, probe.findings
    assert isinstance(base, HasTasks)
    try:
        drawn, again = ([*base.sample_tasks(_COUNT, np.random.default_rng(seed))] for _ in range(2))
    except RAISED as error:
        findings.raised("sample_tasks", error)
        return None
    if len(drawn) != _COUNT:
        findings.error(f"sample_tasks({_COUNT}, generator) returned {len(drawn)} tasks", "return as many as asked for")
        return None
    try:
        texts = [json.dumps(tasks, sort_keys=True) for tasks in (drawn, again)]
    except TypeError:
        findings.error(
            f"a task is {type(drawn[0]).__name__}, expected plain values: numbers, text, lists, dictionaries",
            "tasks travel between processes and into checkpoints; for an array: array.tolist()",
        )
        return None
    if texts[0] != texts[1]:
        findings.error(
            "sample_tasks draws other tasks with a generator in the same state", "draw from the given generator alone"
        )
        return None
    return drawn


def _play(probe: Probe, seed: int, task: Any, budget: Budget) -> Calls[list[bytes] | None]:
    """Play random actions with a task; return digests of what was seen, or None if it cannot be played."""
    yield "the reset with a task"
    try:
        observation, info = probe.env.reset(seed=seed, options={"task": task})
        if "task" not in info:
            probe.findings.warning("the info of reset has no task", 'return {"task": self.task} from reset')
        elif not _same(task, info["task"]):
            probe.findings.error(
                f"info['task'] of reset is {shown(info['task'])}, expected the given task {shown(task)}",
                'begin the task in options["task"] and return it in the info; draw one only if none is given',
            )
            return None
        seen = [fingerprint(observation)]
        agent = RandomAgent(probe.env.action_space, seed)
        for number in range(1, _STEPS + 1):
            if not budget.allows_more():
                break
            yield f"step {number} with a task"
            observation, reward, terminated, truncated, info = probe.env.step(agent(observation, info))
            seen.append(fingerprint((observation, reward, terminated, truncated)))
            if terminated or truncated:
                break
    except RAISED as error:
        probe.findings.raised("an episode with a task", error)
        return None
    return seen


def _same(given: Any, received: Any) -> bool:
    """Whether an info names the given task. There it may consist of arrays, and be rounded to float32."""
    if hasattr(received, "tolist"):
        received = received.tolist()
    if isinstance(given, dict):
        if not isinstance(received, dict) or given.keys() != received.keys():
            return False
        return all(_same(given[key], received[key]) for key in given)
    if isinstance(given, list | tuple):
        if not isinstance(received, list | tuple) or len(given) != len(received):
            return False
        return all(map(_same, given, received))
    if isinstance(given, float) and isinstance(received, int | float):
        return math.isclose(given, received, rel_tol=1e-6)
    return bool(given == received)
