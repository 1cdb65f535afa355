"""Sum tree for prioritised replay: samples entries in proportion to their priority in O(log n) (Schaul et al. 2016).

A node is always recomputed as the sum of its two children, never updated by a difference. So rounding errors do not
accumulate over millions of updates, and a tree rebuilt from its leaves is identical to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envfleet.kernels import compiler

__all__ = ["SumTree"]

Array = np.ndarray[Any, Any]
kernel = compiler()
_SMALLEST_ERROR = 1e-6  # keeps every priority above zero


class SumTree:
    """Priorities of `capacity` entries, initially zero."""

    def __init__(self, capacity: int) -> None:
        self._leaves = 1 << max(0, (capacity - 1).bit_length())
        self._nodes = np.zeros(2 * self._leaves, np.float64)  # node 1 is the root, node i has 2i and 2i + 1
        self.capacity = capacity

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def set(self, entries: Array, priorities: Array) -> None:
        """Set the priorities of entries; for a repeated entry, the last one counts."""
        _set(self._nodes, self._leaves, entries.astype(np.int64), priorities.astype(np.float64))

    def draw_batch(self, uniform: Array, *, among: int, correction: float) -> tuple[Array, Array]:
        """Sample a batch and return its entries and importance-sampling weights.

        One entry comes from each of equal parts of the mass, for less variance than independent samples. A weight is
        (among * probability) ** -correction, divided by the largest weight of the batch.
        """
        entries, weights = _draw_batch(self._nodes, self._leaves, uniform, float(among), correction)
        return np.asarray(entries), np.asarray(weights)

    def set_by_error(self, entries: Array, errors: Array, exponent: float) -> float:
        """Set the priorities of entries from their TD errors (float32) and return the highest priority."""
        return float(_set_by_error(self._nodes, self._leaves, entries, errors, exponent))

    def state(self) -> Array:
        """The leaves, which determine all other nodes."""
        return self._nodes[self._leaves : self._leaves + self.capacity].copy()

    def restore(self, leaves: Array) -> None:
        self._nodes[:] = 0.0
        self._nodes[self._leaves : self._leaves + self.capacity] = leaves
        _sum_up(self._nodes, self._leaves)


@kernel
def _put(nodes: Array, leaves: int, entry: int, priority: float) -> None:
    node = leaves + entry
    nodes[node] = priority
    node >>= 1
    while node:
        nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
        node >>= 1


@kernel
def _set(nodes: Array, leaves: int, entries: Array, priorities: Array) -> None:
    for i in range(len(entries)):
        _put(nodes, leaves, entries[i], priorities[i])


@kernel
def _set_by_error(nodes: Array, leaves: int, entries: Array, errors: Array, exponent: float) -> float:
    highest = 0.0
    for i in range(len(entries)):
        priority = (abs(np.float64(errors[i])) + _SMALLEST_ERROR) ** exponent
        highest = max(highest, priority)
        _put(nodes, leaves, entries[i], priority)
    return highest


@kernel
def _find(nodes: Array, leaves: int, mass: float) -> int:
    node = 1
    while node < leaves:
        node *= 2
        # Never enter a subtree of zero mass; rounding at the end of the range could lead there.
        if mass >= nodes[node] and nodes[node + 1] > 0.0:
            mass -= nodes[node]
            node += 1
    return node


@kernel
def _draw_batch(nodes: Array, leaves: int, uniform: Array, among: float, correction: float) -> tuple[Array, Array]:
    entries, weights = np.empty(len(uniform), np.int64), np.empty(len(uniform), np.float32)
    total, highest = nodes[1], 0.0
    for i in range(len(uniform)):
        node = _find(nodes, leaves, (i + uniform[i]) / len(uniform) * total)
        weight = (among * nodes[node] / total) ** -correction
        highest = max(highest, weight)
        entries[i], weights[i] = node - leaves, weight
    for i in range(len(uniform)):
        weights[i] /= highest
    return entries, weights


@kernel
def _sum_up(nodes: Array, leaves: int) -> None:
    for node in range(leaves - 1, 0, -1):
        nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
