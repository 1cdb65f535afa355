"""Threads of a learner that work on the parts of a batch.

Splitting a batch over threads that each use one torch thread is faster than letting torch split every operation. It
also gives the same arithmetic on every machine: the parts are fixed, and their gradients are added in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["LearnerThreads"]

T = TypeVar("T")
R = TypeVar("R")


def _use_one_torch_thread() -> None:
    # Torch applies its setting to a new thread only at the first elementwise operation. Products before that would use
    # all cores.
    torch.set_num_threads(1)


class LearnerThreads:
    """The calling thread and `count - 1` others."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._others = ThreadPoolExecutor(count - 1, "envfleet-learner", _use_one_torch_thread) if count > 1 else None

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Call `function(part)` for all parts in parallel and return the results in order."""
        assert 1 <= len(parts) <= self.count
        if len(parts) == 1 or self._others is None:
            return [function(parts[0])]
        others = [self._others.submit(function, part) for part in parts[1:]]
        first = function(parts[0])
        return [first, *(other.result() for other in others)]

    def close(self) -> None:
        """Stop the threads."""
        if self._others is not None:
            self._others.shutdown()
