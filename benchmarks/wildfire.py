"""Compare the fire model with pyretechnics and measure its speed: `python -m benchmarks.wildfire [--output FILE]`.

Without `--output` the results are printed. Three flags do one thing only: `--reference` writes pyretechnics' fires for
the tests, `--tables` renders the tables of docs/wildfire.md from docs/benchmarks/wildfire.json, and `--check` fails if
those tables are out of date.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
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

from benchmarks import wildfire_page
from benchmarks.load import busy_cores
from benchmarks.peers import install
from envfleet.environments.wildfire import (
    Fire,
    Landscape,
    SurfaceFire,
    Weather,
    draw_fires,
    generate_landscape,
)
from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "tests" / "environments" / "wildfire" / "pyretechnics_spread.npz"
PEER = ROOT / "benchmarks" / "peers" / "pyretechnics_spread.py"
MINUTES = 120.0

Case = tuple[Landscape, Fire]


def cases(size: int, cells: int) -> list[Case]:
    """Return one fire on each of 12 landscapes: the one that burns closest to `cells` cells.

    Fires that reach the border are avoided, because pyretechnics burns no cell there.
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
    """Return whether each fire of [fire, row, column] reaches the border."""
    return burned[:, [0, -1]].any(axis=(1, 2)) | burned[:, :, [0, -1]].any(axis=(1, 2))


def peers_fires(fires: list[Case], repeats: int) -> dict[str, Any] | None:
    """Return the same fires by pyretechnics (input, arrival times, seconds), or None if it is not installed."""
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
    """Compare burned cells and the order of arrival, fire by fire."""
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
    """Spearman's rank correlation: 1 if both arrive in the same order."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def seconds_of(work: Callable[[], Any], repeats: int = 15) -> float:
    """Return the median seconds of `work` over the repeats, after one warm-up call."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def seconds_per_fire(fires: list[Case]) -> list[float]:
    """Return our seconds for each fire of the comparison; the warm-up call computes the spread rates."""
    found = []
    for landscape, fire in fires:
        model, given, breaks = SurfaceFire(), (fire,), np.zeros(landscape.shape, np.bool_)
        found.append(seconds_of(lambda m=model, f=given, b=breaks, at=landscape: m(at, f, b, MINUTES)))  # type: ignore[misc]
    return found


def growth(sizes: Sequence[int] = (25, 62, 125, 250, 500, 1000)) -> list[dict[str, Any]]:
    """Time a fire that burns everything, by number of cells."""
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
    """Measure the speed-up of the same fires in several threads; the kernels release the GIL.

    A loop of sums, which touches no memory, is measured alternately: its speed-up is the most that the machine allows.
    """
    landscape = generate_landscape("mixed", "high", 25, 1)
    fires = draw_fires(landscape, np.random.default_rng(0), 500)
    breaks = np.zeros(landscape.shape, np.bool_)
    burning = [functools.partial(SurfaceFire(), landscape, fires, breaks, MINUTES) for _ in range(threads)]
    summing = [functools.partial(arithmetic(), 20_000_000)] * threads
    pairs = [(_alone_over_together(burning), _alone_over_together(summing)) for _ in range(9)]
    speedup, ceiling = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"threads": threads, "speedup": round(speedup, 2), "arithmetic": round(ceiling, 2)}


def arithmetic() -> Callable[[int], float]:
    """Return a compiled loop of sums that also releases the GIL."""
    import numba

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]  # numba is untyped
    def summed(count: int) -> float:
        total = 0.0
        for number in range(count):
            total = total * 0.5 + number
        return total

    compiled: Callable[[int], float] = summed
    return compiled


def _alone_over_together(pieces: Sequence[Callable[[], Any]]) -> float:
    """Return how much faster the pieces run in one thread each than one after the other."""

    def alone() -> None:
        for piece in pieces:
            piece()

    def together() -> None:
        threads = [threading.Thread(target=piece) for piece in pieces]
        for worker in threads:
            worker.start()
        for worker in threads:
            worker.join()

    return seconds_of(alone, 1) / seconds_of(together, 1)


def experiences(backend: str, n_envs: int = 8, seconds: float = 5.0) -> dict[str, Any]:
    """Measure steps collected per minute with the preset's Q-network acting: 25 × 25 cells, two fires per reward."""
    from envfleet.algorithms.settings import DQN
    from envfleet.training.assembly import assemble, resolve

    asked = {"memory_simulations": 2}
    settings = DQN(env="envfleet/Wildfire-v0", env_kwargs=asked, n_envs=n_envs, backend=backend, seed=1)
    with contextlib.closing(assemble(resolve(settings))) as parts:
        parts.schedule.next()
        steps, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            steps += parts.schedule.next().rewards.size
    return {"backend": backend, "n_envs": n_envs, "per_minute": round(60 * steps / passed)}


def fire() -> dict[str, Any]:
    """Compare with pyretechnics: how long a fire takes, and what it burns."""
    fires = cases(25, 60)
    ours, theirs = seconds_per_fire(fires), peers_fires(fires, repeats=9)
    result: dict[str, Any] = {"ours_milliseconds": round(1e3 * statistics.median(ours), 4)}
    if theirs is not None:
        ratios = [peer / own for peer, own in zip(theirs["seconds"], ours, strict=True)]
        result["pyretechnics_milliseconds"] = round(1e3 * float(np.median(theirs["seconds"])), 2)
        result["times_as_fast"] = round(statistics.median(ratios), 0)
        compared = cases(41, 120)
        result["comparison"] = compare(compared, peers_fires(compared, repeats=1) or {})
    return result


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "fire": fire,
    "growth": lambda: {"growth": growth()},
    "threads": lambda: {"threads": thread_scaling()},
    "experiences": lambda: {
        "experiences": [experiences(backend) for backend in ("sequential", "threads", "processes")]
    },
}


def measure(parts: Sequence[str]) -> dict[str, Any]:
    """Measure these parts, and record how busy the machine is."""
    machine = {"cores": len(os.sched_getaffinity(0)), "load": round(busy_cores(), 1)}
    result: dict[str, Any] = {"machine": machine}
    for part in parts:
        result |= PARTS[part]()
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file in which to update the measured parts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--reference", action="store_true", help="only write pyretechnics' fires for the tests")
    parser.add_argument("--tables", action="store_true", help="only put the measurements into the page")
    parser.add_argument("--check", action="store_true", help="fail if the page differs from the measurements")
    options = parser.parse_args(arguments)
    if options.tables or options.check:
        return wildfire_page.write(check=options.check)
    if options.reference:
        theirs = peers_fires(cases(41, 120), repeats=1)
        assert theirs is not None
        keys = ("layers", "weathers", "ignitions", "arrival")
        np.savez_compressed(REFERENCE, **{key: theirs[key].astype(np.float32) for key in keys})
        return 0
    result = measure(options.parts)
    if options.output is None:
        print(json.dumps(result, indent=2))
    else:
        known = json.loads(options.output.read_text()) if options.output.exists() else {}
        options.output.write_text(json.dumps({**known, **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
