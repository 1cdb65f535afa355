"""Write the measured tables into docs/gameboy.md, and a sentence into the README.

python -m rom.page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import PPO
from envfleet.environments.gameboy.settings import GameBoySettings
from envfleet.settings import reference_table
from envfleet.training.assembly import resolve

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURES, SPEEDS = ROOT / "docs/gameboy.md", ROOT / "docs/gameboy.json", ROOT / "docs/benchmarks/gameboy.json"
README = ROOT / "README.md"
# Targets: share of the limit, steps per second, megabytes.
WANTED_SHARE, WANTED_TRAINING, MOST_MEMORY = 0.9, 1360, 50


def filled(page: str, figures: dict[str, Any], speeds: dict[str, Any]) -> str:
    """Return the page with its tables filled from the figures."""
    tables = {
        "settings": reference_table(GameBoySettings),
        "frames": _frames(figures["frames"]),
        "hardness": _hardness(figures),
        "training": _training(figures.get("training", [])),
        "preset": _preset(),
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
    times = {kind: costs[f"{kind}, 4 frames"] / costs[f"{kind}, 8 frames"] for kind in ("features", "tiles", "pixels")}
    least, most = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
    dearer = f"{times[least]:.1f} (with {least}) to {times[most]:.1f} times (with {most})"
    return "\n".join([*rows, "", f"A step of eight frames takes {dearer} as long as one of four.\n"])


def _hardness(figures: dict[str, Any]) -> str:
    bot, chance, heart = figures["bot"], figures["random"], figures["by_heart"]
    shortest, fewest = figures["shortest"].values(), figures["fewest_screens"].values()
    played = heart["solutions"] * heart["seeds"]
    decisions, screens = bot["decisions"], bot["screens"]
    solved = f"wins {bot['wins']}, in {decisions['least']} to {decisions['most']} decisions"
    solved += f" (median {decisions['median']:.0f}) over {screens['least']} to {screens['most']} screens"
    rows = {
        "fewest decisions that any solution can have (walking alone, best start), by place of the key": (
            f"{min(shortest)} to {max(shortest)}"
        ),
        "fewest of the 16 screens that any solution can see, by place of the key": f"{min(fewest)} to {max(fewest)}",
        f"a bot that knows the map, {bot['episodes']} seeds": solved,
        f"random play, {chance['episodes']:,} episodes": (
            f"finishes {chance['wins']}, finds {chance['keys']} keys, return {chance['mean_return']:.2f}"
        ),
        f"{heart['solutions']} winning sequences of the bot, replayed on {heart['seeds']} seeds they are not from": (
            f"{heart['wins']} of {played:,} finish ({100 * heart['wins'] / played:.1f} %)"
        ),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {result} |" for name, result in rows.items())]) + "\n"


def _preset() -> str:
    """Values that the preset sets for features, next to the defaults."""
    preset, defaults = resolve(PPO(env="envfleet/GameBoy-v0", seed=1)).preset, PPO().to_json()
    rows = [f"| preset `{preset.name}` | value | default |", "|---|---|---|"]
    for name, value in preset.values.items():
        shown = list(value) if isinstance(value, tuple) else value
        rows.append(f"| `{name}` | `{json.dumps(shown)}` | `{json.dumps(defaults[name])}` |")
    return "\n".join(rows) + "\n"


def _training(runs: list[dict[str, Any]]) -> str:
    full, short = ([run for run in runs if run["target"] == target] for target in ("train", "train-20k"))
    if not full:
        return "No run is on record yet: that the preset finishes the game has not been shown.\n"
    rows = [
        "| `make train` | steps | steps/s | minutes | finished | by best actions | return | random play |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| seed {run['seed']} | {run['steps']:,} | {run['steps_per_second']:,} | "
            f"{run['minutes_by_the_clock']:.1f} | {run['evaluated']['finished']} of {run['evaluated']['episodes']} | "
            f"{run['evaluated']['finished_by_best']} | {run['evaluated']['return']:.1f} | {run['random']:.1f} |"
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


def _speed(speeds: dict[str, Any]) -> str:
    kinds = _measured_kinds(speeds)
    ways = list(dict.fromkeys(row["way"] for row in speeds["stepping-features"]))
    stepping = {(kind, row["n_envs"], row["way"]): row for kind in kinds for row in speeds[f"stepping-{kind}"]}
    training = {
        (kind, row["n_envs"]): row["steps_per_second"]["median"] for kind in kinds for row in speeds[f"training-{kind}"]
    }
    titles = [f"{kind}, {way}" for kind in kinds for way in ways] + [
        f"training, {kind}{_one_run(speeds[f'training-{kind}'])}" for kind in kinds
    ]
    rows = [f"| environments | {' | '.join(titles)} |", f"|{'---:|' * (1 + len(titles))}"]
    for n_envs in dict.fromkeys(row["n_envs"] for row in speeds["stepping-features"]):
        cells = [
            f"{row['steps_per_second']['median']:,.0f}/s · {row['share']['median']:.2f}"
            for row in (stepping[kind, n_envs, way] for kind in kinds for way in ways)
        ]
        cells += [f"{training[kind, n_envs]:,.0f}/s" for kind in kinds]
        rows.append(f"| {n_envs} | {' | '.join(cells)} |")
    return "\n".join([_limit_sentence(speeds), "", *rows, "", *_speed_targets(speeds, stepping, training), ""])


def _one_run(rows: list[dict[str, Any]]) -> str:
    """Mark figures that come from a single run and so have no quartiles."""
    single = all(row["steps_per_second"]["lower"] == row["steps_per_second"]["upper"] for row in rows)
    return " (one run)" if single else ""


def _measured_kinds(speeds: dict[str, Any]) -> list[str]:
    return [kind for kind in ("features", "pixels") if {f"stepping-{kind}", f"training-{kind}"} <= speeds.keys()]


def _limit_sentence(speeds: dict[str, Any]) -> str:
    limits = [row["limit"]["median"] for kind in _measured_kinds(speeds) for row in speeds[f"stepping-{kind}"]]
    machine, memory = speeds["machine"], speeds["memory"]
    return (
        f"The limit was {min(limits):,.0f} to {max(limits):,.0f} steps/s ({machine['cores']} cores, {machine['cpu']}, "
        f"PyBoy {machine['pyboy']}). A process with one console has {memory['process_with_one']:.0f} MB, NumPy and "
        "Gymnasium included."
    )


def _speed_targets(speeds: dict[str, Any], stepping: dict[Any, Any], training: dict[Any, float]) -> list[str]:
    """Table of targets and measured values."""
    best = {
        kind: max((row for (of, _, _), row in stepping.items() if of == kind), key=lambda row: row["share"]["median"])
        for kind in _measured_kinds(speeds)
    }
    two, memory = training["features", 2], speeds["memory"]["further_instance"]
    gain = training["features", 16] / two
    targets = [
        *(
            (
                f"stepping with {kind}, best share of the limit: {row['n_envs']} environments, {row['way']}",
                f">= {WANTED_SHARE}",
                f"{row['share']['median']:.2f} ({row['share']['lower']:.2f} to {row['share']['upper']:.2f})",
                row["share"]["median"] >= WANTED_SHARE,
            )
            for kind, row in best.items()
        ),
        ("training, features, 2 environments, steps/s", f"> {WANTED_TRAINING:,}", f"{two:,.0f}", two > WANTED_TRAINING),
        ("the same with 16 environments, times as fast", "> 1", f"{gain:.2f}", gain > 1),
        ("megabytes of a further instance", f"<= {MOST_MEMORY}", f"{memory:.1f}", memory <= MOST_MEMORY),
    ]
    return [
        "| target | wanted | measured | reached |",
        "|---|---|---|---|",
        *(
            f"| {name} | {wanted} | {measured} | {'yes' if met else '**no**' + _bound(name, speeds.get('step-cost'))} |"
            for name, wanted, measured, met in targets
        ),
    ]


def _bound(target: str, cost: dict[str, float] | None) -> str:
    """Why stepping misses its target: the environment itself takes longer than the raw loop, whatever steps it."""
    kinds = [kind for kind in ("features", "pixels") if target.startswith(f"stepping with {kind}")]
    if cost is None or not kinds:
        return ""
    own, raw = cost[kinds[0]], cost["raw"]
    return (
        f": a step of the environment takes {own:.0f} µs of CPU time, and one of the raw loop {raw:.0f} µs, so no "
        f"fleet can reach more than {raw / own:.2f}"
    )


def filled_readme(readme: str, figures: dict[str, Any]) -> str:
    """Return the README with its sentence on `make train` filled in."""
    runs = [run for run in figures.get("training", []) if run["target"] == "train"]
    sentence = ""
    if runs:
        minutes = [run["minutes_by_the_clock"] for run in runs]
        least, episodes = min(run["evaluated"]["finished"] for run in runs), runs[0]["evaluated"]["episodes"]
        share = f"{'' if least == episodes else 'at least '}{least} of {episodes}"
        sentence = (
            f"`make train` plays {runs[0]['steps']:,} steps, which took {min(minutes):.0f} to {max(minutes):.0f} "
            f"minutes on 2 cores that had other work as well; the agents of {len(runs)} seeds then each finished the "
            f"game in {share} episodes ([how](docs/gameboy.md#training); "
            "`make train TRAIN_STEPS=50000` for a short look).\n"
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
