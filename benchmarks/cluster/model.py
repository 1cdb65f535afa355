"""What an update costs with N nodes: publishing weights, waiting for the slowest, receiving rows, learning.

A *host* is a node with its workers. All times are in seconds, sizes in bytes. The learner's machine sends weights to
one host after the other, and they answer in the same order. While it copies the rows of one host, those of the next are
on their way. So one host needs all stages, and each further host only adds the slowest of them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Constants", "Load", "Parts", "expected_maximum", "first_limit", "share_of_linear", "update"]


@dataclass(frozen=True)
class Constants:
    """What a cluster costs."""

    per_host: float  # the driver's work for one host and rollout, without that for its rows
    latency: float  # of a request and its answer, beyond that work
    bandwidth: float  # bytes per second through the learner's cable, in each direction
    packing: float = 0.0  # a host's seconds to pack a byte of rows
    copying: float = 0.0  # the driver's seconds to unpack and copy it


@dataclass(frozen=True)
class Load:
    """What one host does in a rollout."""

    collecting: float  # seconds that its rollout takes
    row_bytes: float  # that it sends
    weight_bytes: float  # that it receives
    learning: float  # seconds that the learner needs for its rows
    spread: float = 0.0  # standard deviation of `collecting`, as a share of it


@dataclass(frozen=True)
class Parts:
    """The parts of an update, in seconds."""

    publishing: float
    collecting: float
    waiting: float  # for the slowest host
    receiving: float
    copying: float  # the driver's part of publishing and receiving, which takes time from the learner
    learning: float

    def seconds(self, schedule: str) -> float:
        """Return the time from one update to the next."""
        return sum(self.visible(schedule).values())

    def visible(self, schedule: str) -> dict[str, float]:
        """Return the parts that an update waits for, by name."""
        collected = {
            "publishing weights": self.publishing,
            "collecting": self.collecting,
            "waiting for the slowest host": self.waiting,
            "receiving rows": self.receiving,
        }
        if schedule == "sync":
            return {**collected, "learning": self.learning}
        learned = {"learning": self.learning, "copying rows": self.copying}  # `overlap`: meanwhile, hosts collect
        return max(collected, learned, key=lambda parts: sum(parts.values()))


def update(constants: Constants, load: Load, nodes: int) -> Parts:
    """Return the parts of an update with `nodes` hosts."""
    handling = constants.per_host / 2  # of one message
    sending = load.weight_bytes / constants.bandwidth
    arriving, copying = load.row_bytes / constants.bandwidth, load.row_bytes * constants.copying
    publishing = handling + sending
    receiving = constants.latency + load.row_bytes * constants.packing + arriving + handling + copying
    of_next_weights, of_next_rows = max(handling, sending), max(arriving, handling + copying)
    if of_next_weights > of_next_rows:
        publishing += (nodes - 1) * of_next_weights
    else:
        receiving += (nodes - 1) * of_next_rows
    return Parts(
        publishing=publishing,
        collecting=load.collecting,
        waiting=load.collecting * load.spread * expected_maximum(nodes),
        receiving=receiving,
        copying=nodes * (2 * handling + copying),
        learning=nodes * load.learning,
    )


@functools.cache
def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` normal variables, in standard deviations."""
    points = np.linspace(-10.0, 10.0, 4001)
    density = np.exp(-(points**2) / 2.0) / math.sqrt(2.0 * math.pi)
    below = np.array([0.5 * math.erfc(-point / math.sqrt(2.0)) for point in points])
    return float(np.trapezoid(points * count * density * below ** (count - 1), points))


def share_of_linear(constants: Constants, load: Load, nodes: int, schedule: str) -> float:
    """Return the speed of `nodes` hosts divided by `nodes` times that of one machine without a cluster."""
    alone = Parts(0.0, load.collecting, 0.0, 0.0, 0.0, load.learning)
    return alone.seconds(schedule) / update(constants, load, nodes).seconds(schedule)


def first_limit(constants: Constants, load: Load, schedule: str, most: int = 1000) -> tuple[int, str] | None:
    """Return the number of hosts from which on less than 0.8 of linear is left, and what costs most there."""
    for nodes in range(1, most + 1):
        if share_of_linear(constants, load, nodes, schedule) < 0.8:
            parts = update(constants, load, nodes).visible(schedule)
            parts.pop("collecting", None)  # it does not grow with the number of hosts
            return nodes, max(parts, key=parts.__getitem__)
    return None
