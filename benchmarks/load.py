"""How busy other work keeps the machine before a benchmark begins."""

from __future__ import annotations

import psutil

__all__ = ["BUSY_CORES", "busy_cores", "disturbance"]

BUSY_CORES = 0.5  # above this, a benchmark warns


def busy_cores(seconds: float = 2.0) -> float:
    """Return how many cores other work uses now. Load averages would still count what ended minutes ago."""
    return float(psutil.cpu_percent(interval=seconds)) / 100.0 * psutil.cpu_count()


def disturbance(cores: float) -> str:
    """Return a sentence for the page of a benchmark, with a space before it, or nothing if the machine was quiet."""
    return f" Other work kept {cores:.1f} cores busy when the benchmark began." if cores > BUSY_CORES else ""
