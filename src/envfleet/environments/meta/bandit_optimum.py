"""The return of the best agent on a Bernoulli bandit whose chances are uniform in [0, 1].

For few pulls it is exact, by dynamic programming over the records of the arms. For more pulls it is the return of the
finite-horizon index policy, which pulls the arm that is worth the highest fixed payment for the rest of the trial. This
policy is nearly optimal, and better than Gittins' index, which plans for an endless horizon.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from envfleet.seeding import stream

__all__ = ["exact_return", "index_returns", "is_small"]

_MOST_RECORDS = 50_000  # sets of records that dynamic programming may visit: about a second
_MOST_PULLS = 150  # for the index policy: seconds
_PAYMENTS = 400  # grid of fixed payments that an arm is compared with
_INSTANCES = 20_000

Records = tuple[tuple[int, int], ...]  # of each arm, sorted: pulls that paid, pulls that did not


def is_small(arms: int, pulls: int) -> bool:
    """Whether the optimum can be computed exactly in about a second: if there are few sets of records."""
    sets = Counter({(0, 0): 1})  # by arms and pulls used: how many there are with at most `each` pulls of an arm
    for each in range(1, pulls + 1):
        larger: Counter[tuple[int, int]] = Counter()
        for (used, done), count in sets.items():
            for more in range(min(arms - used, (pulls - done) // each) + 1):
                # An arm with this many pulls has one of each + 1 records, and the order of arms does not matter.
                larger[used + more, done + more * each] += count * math.comb(each + more, more)
        sets = larger
        if sets.total() > _MOST_RECORDS:
            return False
    return True


def exact_return(arms: int, pulls: int) -> float:
    """The return of the Bayes-optimal agent."""

    @functools.cache
    def value(records: Records, left: int) -> float:
        if not left:
            return 0.0
        best = 0.0
        for place, (paid, unpaid) in enumerate(records):
            if place and records[place - 1] == records[place]:
                continue  # equal arms are worth the same
            others = records[:place] + records[place + 1 :]
            chance = (paid + 1) / (paid + unpaid + 2)
            better = value(tuple(sorted((*others, (paid + 1, unpaid)))), left - 1)
            worse = value(tuple(sorted((*others, (paid, unpaid + 1)))), left - 1)
            best = max(best, chance * (1.0 + better) + (1.0 - chance) * worse)
        return best

    return value(((0, 0),) * min(arms, pulls), pulls)  # there are no pulls for more arms


def index_returns(arms: int, pulls: int) -> NDArray[np.float64] | None:
    """The mean reward of each pull with the index policy, over many bandits; None if there are too many pulls."""
    if pulls > _MOST_PULLS:
        return None
    index = _indices(pulls)
    generator = stream(0, arms, pulls)
    half = generator.random((_INSTANCES // 2, arms))
    chances = np.concatenate([half, 1.0 - half])  # in mirrored pairs: less noise in the mean
    records = np.zeros((2, _INSTANCES, arms), np.int64)
    rows, rewards = np.arange(_INSTANCES), np.zeros(pulls)
    for pull in range(pulls):
        scores = index[pulls - pull][records[0], records[1]]
        arm = scores.argmax(axis=1)
        chance = chances[rows, arm]
        rewards[pull] = chance.mean()  # the expected reward: less noise than a drawn one
        paid = generator.random(_INSTANCES) < chance
        records[0, rows, arm] += paid
        records[1, rows, arm] += ~paid
    return rewards


def _indices(pulls: int) -> NDArray[np.int16]:
    """For [pulls left, paid, unpaid]: the number of fixed payments that an arm with this record is better than.

    An arm is better than a payment if it is worth pulling once, with the choice between both afterwards.
    """
    paid, unpaid = np.ogrid[: pulls + 1, : pulls + 1]
    chance = (paid + 1.0) / (paid + unpaid + 2.0)
    index = np.zeros((pulls + 1, pulls + 1, pulls + 1), np.int16)
    for payment in (np.arange(_PAYMENTS) + 0.5) / _PAYMENTS:
        value = np.zeros((pulls + 2, pulls + 2))
        for left in range(1, pulls + 1):
            size = pulls - left + 1  # records of at most this many pulls can come up
            pulled = chance[:size, :size] * (1.0 + value[1 : size + 1, :size])
            pulled += (1.0 - chance[:size, :size]) * value[:size, 1 : size + 1]
            index[left, :size, :size] += pulled > payment * left
            value[:size, :size] = np.maximum(pulled, payment * left)
    return index
