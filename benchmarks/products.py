"""Time products of matrices by MKL and by oneDNN, on one core: `python -m benchmarks.products`.

It prints the table of docs/architecture.md: CPU time, medians of turns. This is why policies use oneDNN for large
products on some processors (`policies/products.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from time import thread_time

import torch

from benchmarks.tables import table_line
from envfleet.machine import cpu_model

SHAPES = ((64, 64, 64), (256, 17, 256), (256, 256, 256), (1024, 256, 256))
TURNS, CALLS = 21, 50


def main() -> None:
    torch.set_num_threads(1)
    lines = [table_line(f"product, in µs on {cpu_model()}", "MKL", "oneDNN"), table_line("---", "---:", "---:")]
    for rows, inner, columns in SHAPES:
        left, right = torch.randn(rows, inner), torch.randn(inner, columns)
        across = right.t().contiguous()
        times = _in_turn(
            lambda left=left, right=right: torch.mm(left, right),  # type: ignore[misc]
            lambda left=left, across=across: torch.ops.mkldnn._linear_pointwise(  # type: ignore[misc]
                left, across, None, "none", [], ""
            ),
        )
        lines.append(table_line(f"{rows:,} × {inner} × {columns}", *(f"{1e6 * each:.0f}" for each in times)))
    sys.stdout.write("\n".join([*lines, ""]))


def _in_turn(*calls: Callable[[], object]) -> list[float]:
    """Return the median seconds of a call of each."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(TURNS):
        for call, seconds in zip(calls, found, strict=True):
            began = thread_time()
            for _ in range(CALLS):
                call()
            seconds.append((thread_time() - began) / CALLS)
    return [median(seconds) for seconds in found]


if __name__ == "__main__":
    main()
