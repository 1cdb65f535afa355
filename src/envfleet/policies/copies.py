"""Copies of a policy that share its weights but have their own gradients: one per learner thread.

Splitting a minibatch over threads that each use one torch thread is faster than letting torch split every operation.
It also gives the same arithmetic on every machine: the parts are fixed, and their gradients are added in order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from envfleet.policies.flat import FlatParameters
from envfleet.policies.manual_gradients import GradientPass, make_gradient_pass
from envfleet.policies.policy import Policy

__all__ = ["Copies", "PolicyCopy"]

T = TypeVar("T")
R = TypeVar("R")


class PolicyCopy:
    """A policy with its flat weights and gradients, and a gradient pass through its networks."""

    def __init__(self, policy: Policy, flat: FlatParameters) -> None:
        self.policy, self.flat = policy, flat
        self.gradient_pass: GradientPass = make_gradient_pass(policy.body)


class Copies:
    """The policy itself and `count - 1` copies of it."""

    def __init__(self, policy: Policy, flat: FlatParameters, count: int) -> None:
        self._copies = [PolicyCopy(policy, flat)]
        for _ in range(count - 1):
            other = copy.deepcopy(policy)
            self._copies.append(PolicyCopy(other, FlatParameters(other, flat.numpy(), adopt=True)))
        self._threads = ThreadPoolExecutor(count - 1, thread_name_prefix="envfleet-learner") if count > 1 else None

    @property
    def count(self) -> int:
        return len(self._copies)

    def work(self, function: Callable[[PolicyCopy, T], R], parts: Sequence[T]) -> list[R]:
        """Call `function(copy, part)` for all parts in parallel, with zeroed gradients, under `torch.no_grad`."""
        assert 1 <= len(parts) <= self.count

        def apply(each: PolicyCopy, part: T) -> R:
            with torch.no_grad():  # applies only to the current thread
                each.flat.zero_gradient()
                return function(each, part)

        if len(parts) == 1 or self._threads is None:
            return [apply(self._copies[0], parts[0])]
        others = [self._threads.submit(apply, *pair) for pair in zip(self._copies[1:], parts[1:], strict=False)]
        first = apply(self._copies[0], parts[0])
        return [first, *(other.result() for other in others)]

    def gradient(self, parts: int) -> Tensor:
        """Sum the gradients of the first `parts` copies into the first copy's gradient and return it."""
        total = self._copies[0].flat.gradient
        for each in self._copies[1:parts]:
            total += each.flat.gradient
        return total

    def close(self) -> None:
        """Stop the threads; the copies cannot be used afterwards."""
        if self._threads is not None:
            self._threads.shutdown()
