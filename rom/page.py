"""Writes the measured tables into docs/gameboy.md.

python -m rom.page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from envfleet.environments.gameboy.settings import GameBoySettings
from envfleet.settings import reference_table

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURES = ROOT / "docs/gameboy.md", ROOT / "docs/gameboy.json"


def filled(page: str, figures: dict[str, Any]) -> str:
    """The page with its tables as the figures have them."""
    tables = {
        "settings": reference_table(GameBoySettings),
        "frames": _frames(figures["frames"]),
        "hardness": _hardness(figures),
        "training": _training(figures.get("training", [])),
    }
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        assert pattern.search(page), name
        page = pattern.sub(lambda match, table=table: f"{match[1]}{table}{match[2]}", page)  # type: ignore[misc]
    return page


def _frames(costs: dict[str, Any]) -> str:
    rows = ["| frames per step | features | tiles | pixels |", "|---|---:|---:|---:|"]
    for count in (4, 8):
        speeds = [f"{costs[f'{kind}, {count} frames']:,}" for kind in ("features", "tiles", "pixels")]
        rows.append(f"| {count} | {' | '.join(speeds)} |")
    return "\n".join(rows) + "\n"


def _hardness(figures: dict[str, Any]) -> str:
    bot, chance, heart = figures["bot"], figures["random"], figures["by_heart"]
    shortest = figures["shortest"].values()
    played = heart["solutions"] * heart["seeds"]
    decisions, screens = bot["decisions"], bot["screens"]
    solved = f"wins {bot['wins']}, in {decisions['least']} to {decisions['most']} decisions"
    solved += f" (median {decisions['median']:.0f}) over {screens['least']} to {screens['most']} screens"
    rows = {
        "fewest decisions that any solution can have (walking alone, best start), by place of the key": (
            f"{min(shortest)} to {max(shortest)}"
        ),
        f"a bot that knows the map, {bot['episodes']} seeds": solved,
        f"random play, {chance['episodes']:,} episodes": (
            f"finishes {chance['wins']}, finds {chance['keys']} keys, return {chance['mean_return']:.2f}"
        ),
        f"{heart['solutions']} winning sequences of the bot, replayed on {heart['seeds']} seeds they are not from": (
            f"{heart['wins']} of {played:,} finish ({100 * heart['wins'] / played:.1f} %)"
        ),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {result} |" for name, result in rows.items())]) + "\n"


def _training(runs: list[dict[str, Any]]) -> str:
    full, short = ([run for run in runs if run["target"] == target] for target in ("train", "train-20k"))
    if not full:
        return "No run is on record yet: that the preset finishes the game has not been shown.\n"
    rows = [
        "| `make train` | steps | minutes | steps/s (median) | finished | return in evaluation | random play |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| seed {run['seed']} | {run['steps']:,} | {run['minutes']:.1f} | {run['steps_per_second']:,} | "
            f"{run['evaluated']['finished']} of {run['evaluated']['episodes']} | {run['evaluated']['return']:.1f} | "
            f"{run['random']:.1f} |"
            for run in full
        ),
    ]
    if short:
        rows += [
            "",
            "| `make train-20k` | steps | return, last 10 episodes | random play | times as high |",
            "|---|---:|---:|---:|---:|",
            *(
                f"| seed {run['seed']} | {run['steps']:,} | {run['return']:.1f} | {run['random']:.1f} | "
                f"{run['return'] / run['random']:.1f} |"
                for run in short
            ),
        ]
    return "\n".join(rows) + "\n"


def main() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
