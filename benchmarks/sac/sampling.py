"""Compare drawing sequences and transitions from a replay buffer with a plain gather of as many bytes.

Prints one line of JSON. A plain gather copies the observations, actions and rewards of the same number of steps, at
random positions, from the same memory; of sequences, consecutive steps of an environment.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.interleave import quartiles
from envfleet.machine import keep_freed_memory
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.sequences import SequenceSampler, SequenceSpec

N_ENVS, STEPS, ROLLOUT_STEPS = 8, 500_000, 1_200
BATCHES = 8  # drawn at once: the updates that are due for a rollout
DRAWS_PER_ROUND = 10

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """What is drawn."""

    title: str
    observation: int
    action: int
    batch: int
    length: int = 0  # of a sequence; 0: single transitions
    episode: int = 1_000


SHAPES = (
    Shape("transitions of HalfCheetah, batch 256", 17, 6, 256),
    Shape("sequences of 64 of HalfCheetahVel, batch 32", 25, 6, 32, 64, 400),
    Shape("whole trials of PointRobot, 120 steps, batch 32", 6, 2, 32, 120, 120),
    Shape("whole trials of AntDir, 400 steps, batch 32", 37, 8, 32, 400, 400),
)


def filled_replay(shape: Shape) -> Replay:
    """Return a full replay buffer of random steps, in episodes of a fixed length."""
    space = spaces.Box(-np.inf, np.inf, (shape.observation,), np.float32)
    replay = Replay(ReplaySpec(space, ((shape.action,), np.float32), capacity=STEPS, n_envs=N_ENVS))
    generator = np.random.default_rng(0)
    seen = generator.standard_normal((ROLLOUT_STEPS + 1, N_ENVS, shape.observation), np.float32)
    actions = generator.random((ROLLOUT_STEPS, N_ENVS, shape.action), np.float32)
    for first in range(0, STEPS // N_ENVS + 1, ROLLOUT_STEPS):
        times = first + 1 + np.arange(ROLLOUT_STEPS)
        replay.add(_rollout(seen, actions, truncated=times % shape.episode == 0))
    return replay


def _rollout(seen: Array, actions: Array, *, truncated: Array) -> Rollout:
    shape = (ROLLOUT_STEPS, N_ENVS)
    no = np.zeros(shape, np.bool_)
    return Rollout(
        number=0,
        observations={"": seen},
        finals={"": seen[: int(truncated.sum())]},
        columns={"actions": actions},
        rewards=np.ones(shape, np.float32),
        terminated=no,
        truncated=no | truncated[:, None],
        valid=~no,
        masks=None,
        memory=np.zeros((2, N_ENVS, 0), np.float32),
        final_memory=np.zeros((*shape, 0), np.float32),
        episode_returns=np.zeros(shape),
        episode_lengths=np.zeros(shape, np.int64),
        seconds=np.zeros((1, 2)),
    )


def ways(shape: Shape) -> dict[str, Callable[[], object]]:
    """Return the functions that draw `BATCHES` batches from the replay buffer, and that gather as much."""
    replay, generator = filled_replay(shape), np.random.default_rng(1)
    values, actions, rewards = replay._stores[""]._values, replay._actions, replay._rewards  # type: ignore[attr-defined]
    last = len(values) - (shape.length + 1) * N_ENVS

    def gather() -> None:
        for _ in range(BATCHES):
            at = generator.integers(last, size=shape.batch)
            if shape.length:
                at = at + np.arange(shape.length + 1)[:, None] * N_ENVS
            seen = at if shape.length else np.concatenate([at, at + N_ENVS])
            steps = at[:-1] if shape.length else at
            values.take(seen, axis=0, mode="clip")
            actions.take(steps, axis=0, mode="clip")
            rewards.take(steps, mode="clip")

    def transitions() -> object:
        entries = replay.uniform_entries(generator, BATCHES * shape.batch).reshape(BATCHES, shape.batch)
        return replay.take_batches(entries, steps=1, gamma=0.99)

    if not shape.length:
        return {"replay": transitions, "gather": gather}
    sampler = SequenceSampler(replay, SequenceSpec(shape.batch, shape.length, 0.99))
    return {"replay": lambda: list(sampler.batches(generator, BATCHES)), "gather": gather}


def measure(shape: Shape, rounds: int) -> dict[str, Any]:
    """Measure the seconds per batch of both, alternately."""
    functions = ways(shape)
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(-1, rounds):  # the first round is not counted
        for name in list(functions)[:: 1 if number % 2 else -1]:
            began = perf_counter()
            for _ in range(DRAWS_PER_ROUND):
                functions[name]()
            if number >= 0:
                taken[name].append((perf_counter() - began) / DRAWS_PER_ROUND / BATCHES)
    ratios = [plain / ours for ours, plain in zip(taken["replay"], taken["gather"], strict=True)]
    return {
        "title": shape.title,
        "seconds": {name: quartiles(seconds) for name, seconds in taken.items()},
        "share_of_gather": quartiles(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    keep_freed_memory()  # as training does
    rows = [measure(shape, options.rounds) for shape in SHAPES]
    print(json.dumps({"steps": STEPS, "batches": BATCHES, "rows": rows}))


if __name__ == "__main__":
    main()
