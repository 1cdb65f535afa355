"""Centrality of fire paths: how many cells burn by way of each cell."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.compilation import kernel

__all__ = ["path_centrality"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The eight neighbours in a circle: even numbers share an edge, odd ones a corner.
ROW_STEPS = (-1, -1, 0, 1, 1, 1, 0, -1)
COLUMN_STEPS = (0, 1, 1, 1, 0, -1, -1, -1)


@kernel
def path_centrality(arrival: Floats, left_out: Integers) -> Floats:
    """Number of burned cells downstream of each cell, itself included, summed over the fires: [row, column].

    A cell counts as lit by the neighbour from which time rises most steeply. `arrival` is [fire, row, column] of any
    fire model. `left_out` is a cell of each fire in which that fire does not count, or -1: [fire].
    """
    fires, rows, columns = arrival.shape
    total = np.zeros((rows, columns))
    for fire in range(fires):
        times = arrival[fire].ravel()
        led_to = np.isfinite(times).astype(np.float64)
        burned = np.flatnonzero(led_to)
        for cell in burned[np.argsort(-times[burned], kind="mergesort")]:  # latest first: all that it lit is counted
            row, column = cell // columns, cell % columns
            parent, steepest = -1, 0.0
            for k in range(8):
                near_row, near_column = row + ROW_STEPS[k], column + COLUMN_STEPS[k]
                if 0 <= near_row < rows and 0 <= near_column < columns:
                    near = near_row * columns + near_column
                    rise = (times[cell] - times[near]) / (1.0 if k % 2 == 0 else math.sqrt(2.0))
                    if rise > steepest:  # never true for an unburned cell: its time is infinite
                        parent, steepest = near, rise
            if parent >= 0:
                led_to[parent] += led_to[cell]
        if left_out[fire] >= 0:
            led_to[left_out[fire]] = 0.0
        total += led_to.reshape(rows, columns)
    return total
