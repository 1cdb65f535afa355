"""Compare sampling images from a replay buffer of a million steps with a plain gather of as many bytes.

Prints one line of JSON. A batch is 256 transitions: 256 observations and their successors, each a stack of four 84×84
frames. The plain gather copies as many bytes from the same memory, one stack from each random position.
"""

from __future__ import annotations

import argparse
import json
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.dqn.workloads import MILLION
from benchmarks.interleave import quartiles
from envfleet.machine import keep_freed_memory
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec

N_ENVS, BATCH, FRAMES, SIDE = 8, 256, 4, 84
ROLLOUT_STEPS, EPISODE_STEPS = 250, 1_000
BATCHES_PER_ROUND = 20


def filled_replay(steps: int) -> Replay:
    """Return a replay buffer in which every frame has been written."""
    space = spaces.Box(0, 255, (FRAMES, SIDE, SIDE), np.uint8)
    replay = Replay(ReplaySpec(space, ((), np.int64), capacity=steps, n_envs=N_ENVS, frame_stack=FRAMES))
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (ROLLOUT_STEPS + FRAMES, N_ENVS, SIDE, SIDE), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(frames, FRAMES, axis=0)  # [time, env, height, width, frame]
    for number in range(-(-steps // (ROLLOUT_STEPS * N_ENVS))):
        replay.add(_rollout(np.moveaxis(windows, -1, 2), ends=(number + 1) * ROLLOUT_STEPS % EPISODE_STEPS == 0))
    return replay


def _rollout(stacks: Any, *, ends: bool) -> Rollout:
    shape = (ROLLOUT_STEPS, N_ENVS)
    terminated = np.zeros(shape, np.bool_)
    terminated[-1] = ends
    return Rollout(
        number=0,
        observations={"": stacks},
        finals={"": stacks[:0]},
        columns={"actions": np.zeros(shape, np.int64)},
        rewards=np.ones(shape, np.float32),
        terminated=terminated,
        truncated=np.zeros(shape, np.bool_),
        valid=np.ones(shape, np.bool_),
        masks=None,
        memory=np.zeros((2, N_ENVS, 0), np.float32),
        final_memory=np.zeros((*shape, 0), np.float32),
        episode_returns=np.zeros(shape),
        episode_lengths=np.zeros(shape, np.int64),
        seconds=np.zeros((1, 2)),
    )


def measure(steps: int, rounds: int) -> dict[str, Any]:
    """Measure the seconds per sampled batch and per plain gather, alternately."""
    keep_freed_memory()  # as training does
    replay = filled_replay(steps)
    stored: Any = replay._stores[""]
    memory = stored._newest[: len(stored._newest) // FRAMES * FRAMES].reshape(-1, FRAMES * SIDE * SIDE)
    generator = np.random.default_rng(1)
    taken = {"replay": [0.0] * rounds, "gather": [0.0] * rounds}
    for number in range(-1, rounds):  # the first round is not counted
        for name in ("replay", "gather") if number % 2 else ("gather", "replay"):
            began = perf_counter()
            for _ in range(BATCHES_PER_ROUND):
                if name == "replay":
                    entries = replay.uniform_entries(generator, BATCH)
                    replay.take_batches(entries[None], steps=1, gamma=0.99)
                else:
                    memory.take(generator.integers(len(memory), size=2 * BATCH), axis=0)
            if number >= 0:
                taken[name][number] = (perf_counter() - began) / BATCHES_PER_ROUND
    ratios = [plain / ours for ours, plain in zip(taken["replay"], taken["gather"], strict=True)]
    return {
        "steps": steps,
        "memory_bytes": replay.spec.bytes,
        "batch": BATCH,
        "batch_bytes": 2 * BATCH * FRAMES * SIDE * SIDE,
        "seconds": {name: quartiles(seconds) for name, seconds in taken.items()},
        "share_of_gather": quartiles(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=MILLION)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(measure(options.steps, options.rounds)))


if __name__ == "__main__":
    main()
