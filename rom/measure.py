"""Measure the difficulty of Lantern Isle for random play, for a memorised solution, and for a bot with the map.

python -m rom.measure [--episodes 1000] [--output docs/gameboy.json] [--parts bounds]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.environments.gameboy.environment import GameBoyEnv
from rom.solver import Bot, fewest_screens, shortest_solutions

BOT_SEEDS = range(100)
UNSEEN = range(10_000, 10_050)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of random play")
    parser.add_argument("--output", type=Path, default=Path("docs/gameboy.json"))
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure; other results are kept"
    )
    given = parser.parse_args()
    figures = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else {}
    for part in given.parts:
        figures |= PARTS[part](given.episodes)
    given.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _bounds(_: int) -> dict[str, Any]:
    """Lower bounds on any solution, from the map alone."""
    bounds = {"shortest": shortest_solutions(), "fewest_screens": fewest_screens()}
    return {name: {f"key at {x},{y}": bound for (x, y), bound in found.items()} for name, found in bounds.items()}


def _play(episodes: int) -> dict[str, Any]:
    """Results of the bot, of random play, and of replaying the bot's solutions on other seeds."""
    with closing(GameBoyEnv()) as env:
        bot, chance = _bot(env), _random(env, episodes)
        return {"bot": bot, "random": chance, "by_heart": _by_heart(env, bot.pop("actions"))}


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "bounds": _bounds,
    "play": _play,
    "frames": lambda _: {"frames": _frame_cost()},
}


def current_values(env: GameBoyEnv) -> dict[str, Any]:
    assert env._emulator is not None
    return dict(zip(env.game.memory, env._layout.read(env._emulator.memory), strict=True))


def _bot(env: GameBoyEnv) -> dict[str, Any]:
    bot, lengths, screens, solutions, wins = Bot(), [], [], [], 0
    for seed in BOT_SEEDS:
        env.reset(seed=seed)
        played: list[int] = []
        ended = False
        while not ended:
            played.append(bot.act(current_values(env)))
            _, _, terminated, truncated, info = env.step(played[-1])
            ended = terminated or truncated
        if info["is_success"]:
            wins += 1
            lengths.append(len(played))
            screens.append(int(info["screens"]))
            solutions.append(played)
    return {
        "episodes": len(BOT_SEEDS),
        "wins": wins,
        "decisions": {"least": min(lengths), "median": float(np.median(lengths)), "most": max(lengths)},
        "screens": {"least": min(screens), "most": max(screens)},
        "actions": solutions[:20],
    }


def _random(env: GameBoyEnv, episodes: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    wins, keys, returns, lengths, screens = 0, 0, [], [], []
    for seed in range(episodes):
        env.reset(seed=seed)
        total, length, ended = 0.0, 0, False
        while not ended:
            _, reward, terminated, truncated, info = env.step(rng.integers(env.action_space.n))
            total, length, ended = total + reward, length + 1, terminated or truncated
        wins, keys = wins + info["is_success"], keys + info["key"]
        returns.append(total)
        lengths.append(length)
        screens.append(int(info["screens"]))
    return {
        "episodes": episodes,
        "wins": int(wins),
        "keys": int(keys),
        "mean_return": round(float(np.mean(returns)), 3),
        "mean_length": round(float(np.mean(lengths)), 1),
        "mean_screens": round(float(np.mean(screens)), 2),
    }


def _by_heart(env: GameBoyEnv, solutions: list[list[int]]) -> dict[str, Any]:
    wins = 0
    for played in solutions:
        for seed in UNSEEN:
            env.reset(seed=seed)
            for action in played:
                _, _, terminated, _, info = env.step(action)
                if terminated:
                    break
            wins += info["is_success"]
    return {"solutions": len(solutions), "seeds": len(UNSEEN), "wins": int(wins)}


def _frame_cost(steps: int = 1500) -> dict[str, Any]:
    """Steps per second of processor time, which other work on the machine barely affects."""
    costs: dict[str, Any] = {"processor": platform.machine()}
    for observation in ("features", "tiles", "pixels"):
        for frame_skip in (4, 8):
            env = GameBoyEnv(observation=observation, frame_skip=frame_skip, episode_length=10**9)
            env.reset(seed=0)
            rng = np.random.default_rng(0)
            actions = rng.integers(0, 6, steps)
            began = time.process_time()
            for action in actions:
                if env.step(action)[2]:
                    env.reset()
            seconds = time.process_time() - began
            costs[f"{observation}, {frame_skip} frames"] = round(steps / seconds)
            env.close()
    return costs


if __name__ == "__main__":
    main()
