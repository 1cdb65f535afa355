"""Threads of a learner: they work on the parts of a batch, or torch shares single operations between them.

Splitting a batch over threads that each use one torch thread is faster for convolutions. It also gives the same
arithmetic on every machine: the parts are fixed, and their gradients are added in order. But only one thread at a time
runs Python, and each time one has to wait for the other costs some 0.1 ms. So if an update consists of many operations
of less than a millisecond, as with MLPs, it is better to let torch share the large products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

__all__ = ["LearnerThreads", "torch_threads"]

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads for single operations inside the `with` block, in the whole process."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
