"""Writes the measured tables into docs/gameboy.md, and a sentence into the README.

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
PAGE, FIGURES, SPEEDS = ROOT / "docs/gameboy.md", ROOT / "docs/gameboy.json", ROOT / "docs/benchmarks/gameboy.json"
README = ROOT / "README.md"
# What is wanted: a share of the limit, steps per second, megabytes.
WANTED_SHARE, WANTED_TRAINING, MOST_MEMORY = 0.9, 1360, 50


def filled(page: str, figures: dict[str, Any], speeds: dict[str, Any]) -> str:
    """The page with its tables as the figures have them."""
    tables = {
        "settings": reference_table(GameBoySettings),
        "frames": _frames(figures["frames"]),
        "hardness": _hardness(figures),
        "training": _training(figures.get("training", [])),
        "speed": _speed(speeds),
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
        "| `make train` | steps | steps/s (median) | minutes at that speed | finished | return | random play |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| seed {run['seed']} | {run['steps']:,} | {run['steps_per_second']:,} | {_minutes(run):.1f} | "
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


def _minutes(run: dict[str, Any]) -> float:
    """At the median speed: the clock also counts what stopped the whole machine meanwhile."""
    return float(run["steps"] / run["steps_per_second"] / 60)


def _speed(speeds: dict[str, Any]) -> str:
    stepping, training = (
        {kind: {row["n_envs"]: row for row in speeds[f"{what}-{kind}"]} for kind in ("features", "pixels")}
        for what in ("stepping", "training")
    )
    rows = [
        "| environments | stepping, features | stepping, pixels | training, features | training, pixels |",
        "|---:|---:|---:|---:|---:|",
    ]
    for n_envs in stepping["features"]:
        cells = [
            f"{_median(table[n_envs]['steps_per_second']):,.0f}/s · {_median(table[n_envs]['share']):.2f}"
            for table in stepping.values()
        ]
        cells += [f"{_median(table[n_envs]['steps_per_second']):,.0f}/s" for table in training.values()]
        rows.append(f"| {n_envs} | {' | '.join(cells)} |")
    shares = [_median(table[n_envs]["share"]) for table in stepping.values() for n_envs in (2, 16)]
    memory, two = speeds["memory"], _median(training["features"][2]["steps_per_second"])
    gain = _median(training["features"][16]["steps_per_second"]) / two
    limits = [_median(row["limit"]) for table in stepping.values() for row in table.values()]
    machine = speeds["machine"]
    targets = [
        ("stepping over the limit, with 2 and with 16 environments, features and pixels", f">= {WANTED_SHARE}",
         f"{min(shares):.2f} to {max(shares):.2f}", min(shares) >= WANTED_SHARE),
        ("training, features, 2 environments, steps/s", f"> {WANTED_TRAINING:,}", f"{two:,.0f}",
         two > WANTED_TRAINING),
        ("the same with 16 environments, times as fast", "> 1", f"{gain:.2f}", gain > 1),
        ("megabytes of a further instance", f"<= {MOST_MEMORY}", f"{memory['further_instance']:.1f}",
         memory["further_instance"] <= MOST_MEMORY),
    ]  # fmt: skip
    introduction = (
        f"The limit was {min(limits):,.0f} to {max(limits):,.0f} steps/s ({machine['cores']} cores, "
        f"{machine['cpu']}, PyBoy {machine['pyboy']}). A process with one console has "
        f"{memory['process_with_one']:.0f} MB, NumPy and Gymnasium included."
    )
    return "\n".join(
        [
            introduction,
            "",
            *rows,
            "",
            "| target | wanted | measured | reached |",
            "|---|---|---|---|",
            *(f"| {name} | {wanted} | {got} | {'yes' if ok else 'no'} |" for name, wanted, got, ok in targets),
            "",
        ]
    )


def _median(measured: dict[str, float]) -> float:
    return measured["median"]


def filled_readme(readme: str, figures: dict[str, Any]) -> str:
    """The README with its sentence on `make train`."""
    runs = [run for run in figures.get("training", []) if run["target"] == "train"]
    sentence = ""
    if runs:
        minutes = [_minutes(run) for run in runs]
        least = min(100 * run["evaluated"]["finished"] / run["evaluated"]["episodes"] for run in runs)
        sentence = (
            f"`make train` plays {runs[0]['steps']:,} steps, which took {min(minutes):.0f} to {max(minutes):.0f} "
            f"minutes on 2 cores; the agents of {len(runs)} seeds then finished the game in {least:.0f} % of 50 "
            "episodes or more ([how](docs/gameboy.md#training); `make train TRAIN_STEPS=50000` for a short look).\n"
        )
    start, end = "<!-- gameboy-training:start -->\n", "<!-- gameboy-training:end -->"
    before, rest = readme.split(start)
    return f"{before}{start}{sentence}{end}{rest.split(end)[1]}"


def main() -> None:
    figures, speeds = (json.loads(path.read_text(encoding="utf-8")) for path in (FIGURES, SPEEDS))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures, speeds), encoding="utf-8")
    README.write_text(filled_readme(README.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
