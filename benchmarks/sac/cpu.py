"""CPU time of a session and its child processes. Only the standard library is used; needs Linux's /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.stepping import Stepper

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children so far."""
    return sum(_seconds(pid) for pid in _tree(os.getpid()))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _tree(int(child))


def _seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS  # user and system time


def with_cpu_time(stepper: Stepper) -> Stepper:
    """Return the stepper with one more fact: CPU seconds per step, over everything since it was resumed."""
    counted = {"steps": 0, "began": 0.0}

    def advance() -> int:
        steps = stepper.advance()
        counted["steps"] += steps
        return steps

    def resume() -> None:
        counted.update(steps=0, began=cpu_seconds())
        stepper.resume()

    def facts() -> dict[str, Any]:
        used = cpu_seconds() - counted["began"]
        return {**stepper.facts(), "cpu_seconds_per_step": used / max(1, counted["steps"])}

    return replace(stepper, advance=advance, resume=resume, facts=facts)
