"""The fire model against pyretechnics, and its cost: `python -m benchmarks.wildfire [--output FILE]`.

Without `--output` it prints what it measures. `--reference` also writes pyretechnics' fires for the tests. The
tables of docs/wildfire.md are made from docs/benchmarks/wildfire.json by `--tables`; `--check` says whether they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import install
from envfleet.environments.wildfire import (
    Fire,
    Landscape,
    SurfaceFire,
    Weather,
    WildfireSettings,
    draw_fires,
    generate_landscape,
)
from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES
from envfleet.settings import reference_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "wildfire.md"
RESULTS = ROOT / "docs" / "benchmarks" / "wildfire.json"
REFERENCE = ROOT / "tests" / "environments" / "wildfire" / "pyretechnics_spread.npz"
PEER = ROOT / "benchmarks" / "peers" / "pyretechnics_spread.py"
MINUTES = 120.0
SEED_EXPERIENCES_PER_MINUTE = 280  # of the system that this environment replaces, with 8 environments

Case = tuple[Landscape, Fire]


def cases(size: int, cells: int) -> list[Case]:
    """One fire on each of 12 landscapes: of those that do not reach the border, the one closest to `cells` cells.

    Not the border, because pyretechnics burns no cell there.
    """
    model, chosen = SurfaceFire(), []
    kinds = [(kind, risk) for kind in LANDSCAPE_TYPES for risk in ("medium", "high")] * 2
    for number, (kind, risk) in enumerate(kinds):
        landscape = generate_landscape(kind, risk, size, 100 + number)
        fires = draw_fires(landscape, np.random.default_rng(number), 150)
        burned = model(landscape, fires, np.zeros(landscape.shape, np.bool_), MINUTES) < np.inf
        far_off = np.abs(np.count_nonzero(burned, axis=(1, 2)) - cells) + size**2 * at_border(burned)
        chosen.append((landscape, fires[int(np.argmin(far_off))]))
    return chosen


def at_border(burned: Any) -> Any:
    """Whether a fire [fire, row, column] reaches the border."""
    return burned[:, [0, -1]].any(axis=(1, 2)) | burned[:, :, [0, -1]].any(axis=(1, 2))


def peers_fires(fires: list[Case], repeats: int) -> dict[str, Any] | None:
    """The same fires by pyretechnics: its input, arrival times and seconds; None if it is not installed."""
    if reason := install.reason_of_absence("pyretechnics"):
        print(f"pyretechnics: {reason}", file=sys.stderr)
        return None
    given = {
        "layers": np.stack([landscape.layers for landscape, _ in fires]),
        "weathers": np.array([astuple(fire.weather) for _, fire in fires]),
        "ignitions": np.array([fire.ignition for _, fire in fires]),
        "minutes": MINUTES,
        "cell_size": 30.0,
        "repeats": repeats,
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("in.npz", "out.npz")]
        np.savez(paths[0], **given)
        subprocess.run([str(install.python_of("pyretechnics")), str(PEER), *paths], check=True)
        return given | dict(np.load(paths[1]))


def compare(fires: list[Case], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    """Burned cells and the order of arrival, fire by fire."""
    model, rows = SurfaceFire(), []
    for (landscape, fire), arrival in zip(fires, theirs["arrival"], strict=True):
        ours = model(landscape, (fire,), np.zeros(landscape.shape, np.bool_), MINUTES)[0]
        both = np.isfinite(ours) & np.isfinite(arrival)
        rows.append(
            {
                "landscape": landscape.name,
                "ours": int(np.isfinite(ours).sum()),
                "pyretechnics": int(np.isfinite(arrival).sum()),
                "both": int(both.sum()),
                "order": round(rank_correlation(ours[both], arrival[both]), 3),
            }
        )
    return rows


def rank_correlation(one: Any, other: Any) -> float:
    """Spearman's: 1 if both arrive in the same order."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def seconds_of(work: Callable[[], Any], repeats: int = 15, clock: Callable[[], float] = time.perf_counter) -> float:
    """The median of the repeats, after one that does not count."""
    work()
    taken = []
    for _ in range(repeats):
        started = clock()
        work()
        taken.append(clock() - started)
    return statistics.median(taken)


def seconds_per_fire(fires: list[Case]) -> list[float]:
    """Ours, for each of the fires of the comparison, with the rates of the landscape at hand."""
    found = []
    for landscape, fire in fires:
        model, given, breaks = SurfaceFire(), (fire,), np.zeros(landscape.shape, np.bool_)
        found.append(seconds_of(lambda m=model, f=given, b=breaks, at=landscape: m(at, f, b, MINUTES)))  # type: ignore[misc]
    return found


def growth(sizes: Sequence[int] = (62, 125, 250, 500, 1000)) -> list[dict[str, Any]]:
    """A fire that burns everything, over the number of cells."""
    rows = []
    for size in sizes:
        landscape, model = generate_landscape("grassland", "high", size, 1), SurfaceFire()
        middle = int(np.flatnonzero(landscape.burnable)[np.count_nonzero(landscape.burnable) // 2])
        fire, breaks = (Fire(middle, Weather()),), np.zeros(landscape.shape, np.bool_)
        seconds = seconds_of(lambda m=model, at=landscape, f=fire, b=breaks: m(at, f, b, 1e9), 3)  # type: ignore[misc]
        cells = size**2
        per_log = seconds / (cells * np.log2(cells)) * 1e9
        rows.append({"cells": cells, "seconds": seconds, "nanoseconds_per_n_log_n": round(float(per_log), 1)})
    return rows


def thread_scaling(threads: int = 2) -> dict[str, Any]:
    """The same fires in one thread and shared among several: the kernels do not hold the GIL."""
    landscape = generate_landscape("mixed", "high", 100, 1)
    fires = draw_fires(landscape, np.random.default_rng(0), 64)
    breaks = np.zeros(landscape.shape, np.bool_)
    models = [SurfaceFire() for _ in range(threads)]
    shares = [fires[number::threads] for number in range(threads)]

    def alone() -> None:
        for model, share in zip(models, shares, strict=True):
            model(landscape, share, breaks, 300.0)

    def together() -> None:
        crew = [
            threading.Thread(target=model, args=(landscape, share, breaks, 300.0))
            for model, share in zip(models, shares, strict=True)
        ]
        for worker in crew:
            worker.start()
        for worker in crew:
            worker.join()

    pairs = [(seconds_of(alone, 1), seconds_of(together, 1)) for _ in range(9)]
    processor = [seconds_of(work, 5, time.process_time) for work in (alone, together)]
    return {
        "threads": threads,
        "speedup": round(statistics.median(one / several for one, several in pairs), 2),
        "processor_time": round(processor[1] / processor[0], 2),  # near 1: the threads do not get in each other's way
    }


def experiences(backend: str, n_envs: int = 8, seconds: float = 5.0) -> dict[str, Any]:
    """Steps a minute of a fleet whose actions a convolutional network chooses: 25 × 25 cells, two fires a reward."""
    import torch

    import envfleet
    from envfleet.environments.wildfire import WildfireEnv

    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(9, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 1, 1),
        torch.nn.Flatten(),
    )
    fleet = envfleet.make(WildfireEnv, n_envs, backend=backend, seed=1, quiet=True)
    with contextlib.closing(fleet), torch.inference_mode():
        observations, infos = fleet.reset()
        masks, steps, started = np.array(infos["action_mask"]), 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            values = network(torch.from_numpy(observations)).numpy()
            observations, _, _, _, infos = fleet.step(np.where(masks, values, -np.inf).argmax(axis=1))
            masks = np.array(infos["action_mask"])
            steps += n_envs
    return {"backend": backend, "n_envs": n_envs, "per_minute": round(60 * steps / passed)}


def measure() -> dict[str, Any]:
    """Everything but the reference file."""
    fires = cases(25, 60)
    ours, theirs = seconds_per_fire(fires), peers_fires(fires, repeats=9)
    machine = {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
    result: dict[str, Any] = {"machine": machine, "ours_milliseconds": round(1e3 * statistics.median(ours), 4)}
    if theirs is not None:
        ratios = [peer / own for peer, own in zip(theirs["seconds"], ours, strict=True)]
        result["pyretechnics_milliseconds"] = round(1e3 * float(np.median(theirs["seconds"])), 2)
        result["times_as_fast"] = round(statistics.median(ratios), 0)
        compared = cases(41, 120)
        result["comparison"] = compare(compared, peers_fires(compared, repeats=1) or {})
    result["growth"] = growth()
    result["threads"] = thread_scaling()
    result["experiences"] = [experiences(backend) for backend in ("sequential", "threads", "processes")]
    return result


# ---- tables ----


def tables(result: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by name."""
    rows = result["comparison"]
    comparison = ["| landscape | ours | pyretechnics | both | order |", "|---|---|---|---|---|"]
    keys = ("landscape", "ours", "pyretechnics", "both", "order")
    comparison += [f"| {' | '.join(str(row[key]) for key in keys)} |" for row in rows]
    totals = [sum(row[key] for row in rows) for key in keys[1:4]]
    order = statistics.median(row["order"] for row in rows)
    comparison.append(f"| all (order: median) | {totals[0]} | {totals[1]} | {totals[2]} | {order:.3f} |")
    speed = ["| what | measured |", "|---|---|"]
    speed.append(f"| a fire, 25 × 25 cells, 120 minutes | {result['ours_milliseconds']:.3f} ms |")
    speed.append(f"| the same fire by pyretechnics | {result['pyretechnics_milliseconds']:.1f} ms |")
    speed.append(f"| times as fast (median over the fires) | {result['times_as_fast']:.0f} |")
    for row in result["growth"]:
        figures = f"{row['seconds']:.3g} s, {row['nanoseconds_per_n_log_n']} ns per n log₂ n"
        speed.append(f"| a fire over all of {row['cells']:,} cells | {figures} |")
    threads = result["threads"]
    figures = f"{threads['speedup']} times as fast, {threads['processor_time']} times the processor time"
    speed.append(f"| {threads['threads']} threads over one | {figures} |")
    for row in result["experiences"]:
        times = row["per_minute"] / SEED_EXPERIENCES_PER_MINUTE
        figures = f"{row['per_minute']:,} a minute ({times:,.0f} × {SEED_EXPERIENCES_PER_MINUTE})"
        speed.append(f"| experiences, {row['n_envs']} environments, {row['backend']} | {figures} |")
    machine = result["machine"]
    speed.append(f"| the machine | {machine['cores']} cores with {machine['load']} processes running or waiting |")
    settings = reference_table(WildfireSettings).rstrip()
    return {"comparison": "\n".join(comparison), "speed": "\n".join(speed), "settings": settings}


def page_with_tables() -> str:
    """The page with its tables as the measured file has them."""
    text = PAGE.read_text()
    for name, table in tables(json.loads(RESULTS.read_text())).items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the measurements there")
    parser.add_argument("--reference", action="store_true", help="write pyretechnics' fires for the tests, no more")
    parser.add_argument("--tables", action="store_true", help="put the measurements into the page, no more")
    parser.add_argument("--check", action="store_true", help="fail if the page differs from the measurements")
    options = parser.parse_args(arguments)
    if options.tables:
        PAGE.write_text(page_with_tables())
        return 0
    if options.check:
        return int(page_with_tables() != PAGE.read_text())
    if options.reference:
        theirs = peers_fires(cases(41, 120), repeats=1)
        assert theirs is not None
        keys = ("layers", "weathers", "ignitions", "arrival")
        np.savez_compressed(REFERENCE, **{key: theirs[key].astype(np.float32) for key in keys})
        return 0
    text = json.dumps(measure(), indent=2)
    print(text) if options.output is None else options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
