"""Minimum travel time: when a fire reaches each cell, in one Numba kernel for many ignitions.

The time of a cell is the minimum over straight paths into it, from three kinds of start:

- the cell where the path into a burning neighbour began. The path goes through all cells between, at the rate of each,
  so a fire from one point has the right shape from the first cell on;
- the neighbour itself;
- any point between two adjacent burning neighbours.

Times between two neighbours are interpolated linearly. The best point then has a closed form, because the time of a
path is a norm minus a linear part (see `rothermel.travel_metric`). So fires grow in every direction, not only along the
eight of the grid. A step uses the rates of the cell that it enters, so the whole cell of an ignition burns at once.

A heap settles cells in the order of their times: n log n. With long ellipses, a better path can turn up after a cell
was settled; the cell is then reopened. Fire passes between two cells that touch at a corner unless both cells beside
the corner are barred, so a diagonal line of breaks holds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.compilation import kernel

__all__ = ["arrival_minutes", "fires_near", "saved_cells"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# The eight neighbours in a circle: even numbers share an edge, odd ones a corner.
ROW_STEPS = (-1, -1, 0, 1, 1, 1, 0, -1)
COLUMN_STEPS = (0, 1, 1, 1, 0, -1, -1, -1)
LONGEST = 12  # cells; the longest straight path considered
BETTER = 1e-9  # minutes; a smaller gain does not reopen a settled cell


@kernel
def _before(times: Floats, one: int, other: int) -> bool:
    return times[one] < times[other] or (times[one] == times[other] and one < other)


@kernel
def _rise(heap: Integers, places: Integers, times: Floats, at: int) -> None:
    """Move the cell at this position of the heap up to its place."""
    cell = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(times, cell, heap[parent]):
            break
        heap[at] = heap[parent]
        places[heap[at]] = at
        at = parent
    heap[at] = cell
    places[cell] = at


@kernel
def _take_first(heap: Integers, places: Integers, times: Floats, size: int) -> int:
    """Remove and return the earliest cell of a heap of `size` cells."""
    first, cell, at = heap[0], heap[size - 1], 0
    size -= 1
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(times, heap[child + 1], heap[child]):
            child += 1
        if not _before(times, heap[child], cell):
            break
        heap[at] = heap[child]
        places[heap[at]] = at
        at = child
    heap[at] = cell
    places[cell] = at
    places[first] = -1
    return int(first)


@kernel
def _minutes(metric: Floats, row: int, column: int, row_step: float, column_step: float) -> float:
    """Time of this step if all of it lay in one cell."""
    squared = (
        metric[row, column, 0] * row_step**2
        + 2.0 * metric[row, column, 1] * row_step * column_step
        + metric[row, column, 2] * column_step**2
    )
    return math.sqrt(squared) - float(metric[row, column, 3] * row_step + metric[row, column, 4] * column_step)


@kernel
def _straight(metric: Floats, barred: Flags, row: int, column: int, to_row: int, to_column: int) -> float:
    """Time of the straight path between the centres of two cells, through all cells on it.

    The part in the first cell uses the rates of the last one, as if every border lay half a cell earlier. A path of one
    step then uses the rates of the cell that it enters, and paths add up.
    """
    row_step, column_step = to_row - row, to_column - column
    row_sign, column_sign = (1 if row_step > 0 else -1), (1 if column_step > 0 else -1)
    # Fractions of the path at which the next row border and column border are crossed.
    per_row = 1.0 / abs(row_step) if row_step != 0 else np.inf
    per_column = 1.0 / abs(column_step) if column_step != 0 else np.inf
    row_border, column_border = 0.5 * per_row, 0.5 * per_column
    done = min(row_border, column_border)
    total, begun, first = 0.0, done, True
    while row != to_row or column != to_column:
        border = min(row_border, column_border)
        if not first:
            total += (border - done) * _minutes(metric, row, column, row_step, column_step)
        first, done = False, border
        if abs(row_border - column_border) < 1e-9:  # through a corner
            if barred[row, column + column_sign] and barred[row + row_sign, column]:
                return np.inf
            row, column = row + row_sign, column + column_sign
            row_border, column_border = row_border + per_row, column_border + per_column
        elif row_border < column_border:
            row, row_border = row + row_sign, row_border + per_row
        else:
            column, column_border = column + column_sign, column_border + per_column
        if barred[row, column]:
            return np.inf
    return total + (1.0 - done + begun) * _minutes(metric, row, column, row_step, column_step)


@kernel
def _between(metric: Floats, row: int, column: int, k: int, j: int, time_1: float, time_2: float) -> float:
    """Least time into the cell (row, column) from a point between two adjacent burning cells.

    Step k leads from the first into the cell, the reverse of step j from the second. Infinite if an end is best.
    """
    p, q, r = metric[row, column, 0], metric[row, column, 1], metric[row, column, 2]
    u, v = metric[row, column, 3], metric[row, column, 4]
    row_1, column_1 = ROW_STEPS[k], COLUMN_STEPS[k]
    row_edge, column_edge = -ROW_STEPS[j] - row_1, -COLUMN_STEPS[j] - column_1
    gain = time_1 - time_2 + u * row_edge + v * column_edge
    a = p * row_1 * row_1 + 2.0 * q * row_1 * column_1 + r * column_1 * column_1
    b = p * row_1 * row_edge + q * (row_1 * column_edge + column_1 * row_edge) + r * column_1 * column_edge
    c = p * row_edge * row_edge + 2.0 * q * row_edge * column_edge + r * column_edge * column_edge
    # The derivative at both ends: the minimum is inside only if the time falls at one end and rises at the other.
    if gain * math.sqrt(a) <= b or gain * math.sqrt(a + 2.0 * b + c) >= b + c:
        return np.inf
    base = time_1 - u * row_1 - v * column_1
    return float(base + gain * b / c + math.sqrt((a - b * b / c) * (c - gain * gain) / c))


@kernel
def _best_way(
    metric: Floats, barred: Flags, times: Floats, settled: Flags, tried: Integers, cell: int, origin: int, k: int
) -> tuple[float, int]:
    """Least time of step k from a cell that was just settled, and the cell where its last straight path began.

    Tries three paths: from where the path into the cell began, from the cell, and from between it and a neighbour.
    """
    rows, columns = barred.shape
    row, column = cell // columns, cell % columns
    to_row, to_column = row + ROW_STEPS[k], column + COLUMN_STEPS[k]
    target = to_row * columns + to_column
    best, best_origin = times[target], -1
    from_row, from_column = origin // columns, origin % columns
    if tried[target] != origin and max(abs(to_row - from_row), abs(to_column - from_column)) <= LONGEST:
        tried[target] = origin  # other neighbours may share this origin: do not try the same path again
        found = times[origin] + _straight(metric, barred, from_row, from_column, to_row, to_column)
        if found < best:
            best, best_origin = found, origin
    if origin != cell and (k % 2 == 0 or not (barred[row, to_column] and barred[to_row, column])):
        found = times[cell] + _minutes(metric, to_row, to_column, ROW_STEPS[k], COLUMN_STEPS[k])
        if found < best:
            best, best_origin = found, cell
    for turn in (3, 5):  # the two neighbours of the target beside the cell
        j = (k + turn) % 8
        side_row, side_column = to_row + ROW_STEPS[j], to_column + COLUMN_STEPS[j]
        if 0 <= side_row < rows and 0 <= side_column < columns and settled[side_row * columns + side_column]:
            side_time = times[side_row * columns + side_column]
            found = _between(metric, to_row, to_column, k, j, times[cell], side_time)
            if found < best:
                best, best_origin = found, cell
    return best, best_origin


@kernel
def _spread(
    metric: Floats, barred: Flags, ignition: int, minutes: float, times: Floats, settled: Flags, memory: Integers
) -> int:
    """Fill `times` (flat, initially infinite) with the arrival times of one fire within `minutes`.

    Returns the number of burned cells; `memory[4]` lists them.
    """
    rows, columns = barred.shape
    heap, places, origins, tried, reached = memory[0], memory[1], memory[2], memory[3], memory[4]
    if barred[ignition // columns, ignition % columns]:
        return 0
    times[ignition], reached[0], burned = 0.0, ignition, 1
    heap[0], places[ignition], origins[ignition], size = ignition, 0, ignition, 1
    while size > 0:
        cell = _take_first(heap, places, times, size)
        size -= 1
        settled[cell] = True
        row, column = cell // columns, cell % columns
        for k in range(8):
            to_row, to_column = row + ROW_STEPS[k], column + COLUMN_STEPS[k]
            if not (0 <= to_row < rows and 0 <= to_column < columns) or barred[to_row, to_column]:
                continue
            target = to_row * columns + to_column
            if times[target] <= times[cell]:
                continue
            best, origin = _best_way(metric, barred, times, settled, tried, cell, origins[cell], k)
            if origin < 0 or best > minutes or best >= times[target] - BETTER:
                continue
            if math.isinf(times[target]):
                reached[burned] = target
                burned += 1
            times[target], origins[target], settled[target] = best, origin, False
            if places[target] < 0:
                heap[size], places[target] = target, size
                size += 1
            _rise(heap, places, times, places[target])
    return burned


@kernel
def _forget(shape: tuple[int, int], burned: int, times: Floats, settled: Flags, memory: Integers) -> None:
    """Make the arrays ready for the next fire. Touches only the cells that the last one burned, and their neighbours.

    On a large landscape, filling whole arrays would take longer than the fire.
    """
    rows, columns = shape
    tried, reached = memory[3], memory[4]
    for i in range(burned):
        cell = reached[i]
        times[cell], settled[cell] = np.inf, False
        row, column = cell // columns, cell % columns
        for near_row in range(max(0, row - 1), min(rows, row + 2)):
            for near_column in range(max(0, column - 1), min(columns, column + 2)):
                tried[near_row * columns + near_column] = -1


@kernel
def _bar(metric: Floats, breaks: Flags, barred: Flags) -> None:
    """Fill `barred`: breaks, and cells where no fire spreads in this weather."""
    for row in range(breaks.shape[0]):
        for column in range(breaks.shape[1]):
            barred[row, column] = breaks[row, column] or math.isinf(metric[row, column, 0])


@kernel
def arrival_minutes(metrics: Floats, weathers: Integers, ignitions: Integers, breaks: Flags, minutes: float) -> Floats:
    """Minutes until each fire reaches each cell, infinite if not within `minutes`: [fire, row, column].

    `metrics` is [weather, row, column, 5]. Fire i burns under weather `weathers[i]` from cell `ignitions[i]` (row *
    columns + column). Fires are independent of each other.
    """
    rows, columns = breaks.shape
    times = np.full((len(ignitions), rows * columns), np.inf)
    settled = np.empty(rows * columns, np.bool_)
    memory = np.empty((5, rows * columns), np.int64)
    barred = np.empty((rows, columns), np.bool_)
    for fire in range(len(ignitions)):
        _bar(metrics[weathers[fire]], breaks, barred)
        settled[:] = False
        memory[:] = -1
        _spread(metrics[weathers[fire]], barred, ignitions[fire], minutes, times[fire], settled, memory)
    return times.reshape(len(ignitions), rows, columns)


@kernel
def _is_near(arrival: Floats, cells: Integers) -> bool:
    """Whether a fire burns one of the cells or a neighbour: only then do breaks there change anything for it."""
    rows, columns = arrival.shape
    for cell in cells:
        row, column = cell // columns, cell % columns
        for near_row in range(max(0, row - 1), min(rows, row + 2)):
            for near_column in range(max(0, column - 1), min(columns, column + 2)):
                if not math.isinf(arrival[near_row, near_column]):
                    return True
    return False


@kernel
def fires_near(arrival: Floats, cells: Integers) -> Integers:
    """Numbers of the fires that breaks in these cells may change."""
    return np.array([fire for fire in range(len(arrival)) if _is_near(arrival[fire], cells)], np.int64)


@kernel
def saved_cells(
    metrics: Floats,
    weathers: Integers,
    ignitions: Integers,
    breaks: Flags,
    minutes: float,
    arrival: Floats,
    burned: Integers,
    candidates: Integers,
    known: NDArray[np.int32],
    rows_of_known: Integers,
) -> Integers:
    """Number of cells that each candidate saves if it becomes breaks, over all fires: [candidate].

    A candidate is a row of cells: [candidate, cell]. `arrival` [fire, row, column] and `burned` [fire] are times and
    cells without it. A fire that does not come near a candidate is not spread again, because nothing changes for it.
    A fire that starts in a candidate does not count (see `Lookahead.saved`).

    `known` is [row, fire], with row `rows_of_known[candidate]`: the results so far, or -1. This fills it. A result is
    left out if the fire burns a cell that it does not burn without the candidate. All others stay valid until a break
    comes near the fire.
    """
    rows, columns = breaks.shape
    saved = np.zeros(len(candidates), np.int64)
    times, settled = np.full(rows * columns, np.inf), np.zeros(rows * columns, np.bool_)
    memory = np.full((5, rows * columns), -1, np.int64)
    barred = np.empty((rows, columns), np.bool_)
    for fire in range(len(ignitions)):
        metric, ready, without = metrics[weathers[fire]], False, arrival[fire]
        for i in range(len(candidates)):
            if known[rows_of_known[i], fire] >= 0:
                saved[i] += known[rows_of_known[i], fire]
                continue
            if not _is_near(without, candidates[i]) or (candidates[i] == ignitions[fire]).any():
                known[rows_of_known[i], fire] = 0
                continue
            if not ready:
                _bar(metric, breaks, barred)
                ready = True
            for cell in candidates[i]:
                barred[cell // columns, cell % columns] = True
            found = _spread(metric, barred, ignitions[fire], minutes, times, settled, memory)
            saved[i] += burned[fire] - found
            if not _reaches_others(without, memory[4, :found]):
                known[rows_of_known[i], fire] = burned[fire] - found
            _forget((rows, columns), found, times, settled, memory)
            for cell in candidates[i]:
                row, column = cell // columns, cell % columns
                barred[row, column] = breaks[row, column] or math.isinf(metric[row, column, 0])
    return saved


@kernel
def _reaches_others(without: Floats, reached: Integers) -> bool:
    """Whether a fire reaches cells that it does not burn without a candidate.

    This is rare, but can happen: a detour may end in a straight path that is otherwise not tried.
    """
    times, others = without.ravel(), False
    for cell in reached:
        others = others or math.isinf(times[cell])
    return others
