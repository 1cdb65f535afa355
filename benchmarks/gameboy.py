"""Benchmark the Game Boy environment: `python -m benchmarks.gameboy [PART ...]`. Run it alone on the machine.

The parts are stepping-features, stepping-pixels, training-features, training-pixels, memory and step-cost, the CPU time
of one environment's step beside that of the raw loop (default: all). Each takes a few minutes at most and replaces its
own figures in docs/benchmarks/gameboy.json. `python -m rom.page` renders the tables of docs/gameboy.md from that file.

The *limit* of stepping is a raw PyBoy loop in one process per core, each with one emulator. It runs the same ROM and
frames per step, presses random buttons and renders one frame per step. It reads nothing and does not communicate. The
limit is measured right before and right after each measurement of a fleet. The fleet's *share* is its speed divided by
the mean of the two.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.fleet_session import half_batches, whole_batches
from benchmarks.interleave import quartiles

if TYPE_CHECKING:
    from envfleet.environments.gameboy.emulator import Emulator

RESULTS = Path(__file__).parents[1] / "docs/benchmarks/gameboy.json"
FRAME_SKIP = 4
NUMBERS = (1, 2, 4, 8, 16)  # of environments
GROUPS = 4  # if there are enough environments; then every half batch has work for both cores
WAYS = {"step": whole_batches, "send and recv of halves": half_batches}
ROUNDS, SECONDS, WARMUP = 4, 1.2, 0.3  # for stepping; each measurement of the limit takes half of SECONDS
TRAINING_ROUNDS = {"features": 3, "pixels": 1}
TRAINING_STEPS = {"features": 8_000, "pixels": 2_000}
# Episode length, epochs and batch size of the system that Game Boy users come from.
EPISODE_LENGTH, EPOCHS, BATCH = 750, 6, 128
COST_STEPS, COST_ROUNDS = 200, 25
FURTHER = 8  # additional emulators over which the memory per emulator is averaged


def main(arguments: Sequence[str] | None = None) -> int:
    parts = {
        **{f"stepping-{kind}": lambda kind=kind: stepping(kind) for kind in ("features", "pixels")},
        **{f"training-{kind}": lambda kind=kind: training(kind) for kind in ("features", "pixels")},
        "memory": memory,
        "step-cost": step_cost,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="what to measure")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for name in options.parts or parts:
        measured = parts[name]()  # type: ignore[no-untyped-call]  # a lambda has no types
        print(f"{name}: {json.dumps(measured)}")
        known = json.loads(options.output.read_text()) if options.output.exists() else {}
        known |= {name: measured, "machine": _machine()}
        options.output.write_text(json.dumps(known, indent=1) + "\n")
    return 0


def _machine() -> dict[str, Any]:
    from importlib.metadata import version

    from envfleet.machine import describe

    return {**describe(), "pyboy": version("pyboy")}


# ---- stepping ----


def stepping(observation: str) -> list[dict[str, Any]]:
    """Return the fleet's speed and the limit for every number of environments and both ways to step."""
    rows = []
    with closing(_Limit()) as limit:
        for n_envs in NUMBERS:
            for way in WAYS:
                with closing(_Stepping(observation, n_envs, way)) as fleet:
                    pairs = []
                    for _ in range(ROUNDS):
                        before = limit.steps_per_second(SECONDS / 2)
                        rate = fleet.steps_per_second(SECONDS)
                        pairs.append((rate, (before + limit.steps_per_second(SECONDS / 2)) / 2))
                rows.append(
                    {
                        "n_envs": n_envs,
                        "way": way,
                        "steps_per_second": quartiles(rate for rate, _ in pairs),
                        "limit": quartiles(limit_rate for _, limit_rate in pairs),
                        "share": quartiles(rate / limit_rate for rate, limit_rate in pairs),
                    }
                )
    return rows


class _Limit:
    """Raw PyBoy loops: one process per core, each with its own emulator."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(len(os.sched_getaffinity(0))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_raw_loop, args=(theirs,), daemon=True)
            process.start()
            self._ends.append(ours)
            self._processes.append(process)
        for end in self._ends:
            end.recv()  # wait until its game has started

    def steps_per_second(self, seconds: float) -> float:
        """Return the summed speed of all processes, measured at the same time."""
        for end in self._ends:
            end.send(seconds)
        return float(sum(end.recv() for end in self._ends))

    def close(self) -> None:
        for end, process in zip(self._ends, self._processes, strict=True):
            end.send(None)
            process.join()


def _raw_game() -> tuple[Emulator, Callable[[], None]]:
    """Return an emulator in which the game has started, and a raw step: random buttons, frames, one of them drawn."""
    from envfleet.environments.gameboy.emulator import Emulator
    from envfleet.environments.gameboy.game_files import load_game

    game = load_game("homebrew")
    assert game.rom is not None
    emulator = Emulator(game.rom.read_bytes())  # only to set up PyBoy; the loop calls PyBoy directly
    emulator.run(game.start.frames)
    emulator.memory[game.memory["rng_seed"].address] = 7
    emulator.memory[game.memory["start_request"].address] = 1
    emulator.run(game.start.at_most)
    console = emulator._console
    names = ("up", "down", "left", "right", "a")
    buttons = cycle([names[number] for number in np.random.default_rng(0).integers(0, len(names), 4096)])

    def step() -> None:
        console.button(next(buttons), FRAME_SKIP)
        console.tick(FRAME_SKIP, True, False)

    return emulator, step


def _raw_loop(end: Connection) -> None:
    emulator, step = _raw_game()
    end.send("ready")
    while (seconds := end.recv()) is not None:
        count, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            step()
            count += 1
        end.send(count / passed)
    emulator.close()


def step_cost() -> dict[str, float]:
    """Return the CPU microseconds of a raw step and of an environment's, in one process, taking turns."""
    from envfleet.environments.gameboy.environment import GameBoyEnv

    emulator, raw = _raw_game()
    envs = {kind: GameBoyEnv(observation=kind) for kind in ("features", "pixels")}
    actions = np.random.default_rng(0).integers(0, 5, COST_STEPS).tolist()

    def steps(env: GameBoyEnv) -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    def raws() -> None:
        for _ in actions:
            raw()

    ways: dict[str, Callable[[], None]] = {"raw": raws}
    for kind, env in envs.items():
        env.reset(seed=1)
        ways[kind] = partial(steps, env)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(COST_ROUNDS):
        for name, way in ways.items():
            began = time.process_time()
            way()
            seconds[name].append((time.process_time() - began) / COST_STEPS)
    emulator.close()
    for env in envs.values():
        env.close()
    return {name: round(1e6 * median(values), 1) for name, values in seconds.items()}


class _Stepping:
    """A fleet stepped with random actions drawn in advance."""

    def __init__(self, observation: str, n_envs: int, way: str) -> None:
        import envfleet

        self._fleet = envfleet.make(
            "envfleet/GameBoy-v0",
            n_envs,
            backend="processes",
            env_kwargs={"observation": observation, "frame_skip": FRAME_SKIP, "episode_length": EPISODE_LENGTH},
            seed=1,
            quiet=True,
            group_size=max(1, n_envs // GROUPS),
        )
        self._advance = WAYS[way](self._fleet, np.random.default_rng(0).integers(0, 6, (512, n_envs)))

    def steps_per_second(self, seconds: float) -> float:
        self._run(WARMUP)
        return self._run(seconds)

    def _run(self, seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            count += self._advance()
        return count / passed

    def close(self) -> None:
        self._fleet.close()


# ---- training ----


def training(observation: str) -> list[dict[str, Any]]:
    """Return PPO's steps per second, acting and learning included, for every number of environments."""
    rates: dict[int, list[float]] = {n_envs: [] for n_envs in NUMBERS}
    for round_number in range(TRAINING_ROUNDS[observation]):
        order = NUMBERS if round_number % 2 == 0 else NUMBERS[::-1]
        for n_envs in order:
            rates[n_envs].append(_training_speed(observation, n_envs))
    return [{"n_envs": n_envs, "steps_per_second": quartiles(found)} for n_envs, found in rates.items()]


def _training_speed(observation: str, n_envs: int) -> float:
    """Return steps per second from the end of the first update to the end of the last, which excludes start-up."""
    import envfleet

    with tempfile.TemporaryDirectory() as folder:
        settings = envfleet.PPO(
            env="envfleet/GameBoy-v0",
            env_kwargs={"observation": observation, "frame_skip": FRAME_SKIP, "episode_length": EPISODE_LENGTH},
            n_envs=n_envs,
            group_size=max(1, n_envs // GROUPS),
            rollout_steps=128,
            epochs=EPOCHS,
            minibatch_size=BATCH,
            steps=TRAINING_STEPS[observation] + 128 * n_envs,
            backend="processes" if n_envs > 1 else "sequential",
            eval_every=0,
            quiet=True,
            seed=1,
            output_dir=f"{folder}/run",
        )
        rows = envfleet.train(settings).metrics
    first, last = rows[0], rows[-1]
    return float((last["step"] - first["step"]) / (last["time"] - first["time"]))


# ---- memory ----


def memory() -> dict[str, float]:
    """Return the MiB of a process with one emulator, and of each additional emulator in it."""
    context = multiprocessing.get_context("spawn")
    sizes = {}
    for instances in (1, 1 + FURTHER):
        ours, theirs = context.Pipe()
        process = context.Process(target=_resident, args=(theirs, instances))
        process.start()
        sizes[instances] = float(ours.recv())
        process.join()
    return {"process_with_one": sizes[1], "further_instance": (sizes[1 + FURTHER] - sizes[1]) / FURTHER}


def _resident(end: Connection, instances: int) -> None:
    import psutil

    from envfleet.environments.gameboy.environment import GameBoyEnv

    envs = [GameBoyEnv(observation="pixels") for _ in range(instances)]
    for env in envs:
        env.reset(seed=1)
        for _ in range(200):
            env.step(0)
    end.send(psutil.Process().memory_info().rss / 2**20)


if __name__ == "__main__":
    sys.exit(main())
