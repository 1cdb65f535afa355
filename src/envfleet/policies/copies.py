"""Copies of a policy that share its weights but have their own gradients: one per learner thread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from envfleet.policies.flat import FlatParameters
from envfleet.policies.learner_threads import LearnerThreads
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
        self._threads = LearnerThreads(count)

    @property
    def count(self) -> int:
        return len(self._copies)

    def work(self, function: Callable[[PolicyCopy, T], R], parts: Sequence[T]) -> list[R]:
        """Call `function(copy, part)` for all parts in parallel, with zeroed gradients, under `torch.no_grad`."""

        def apply(pair: tuple[PolicyCopy, T]) -> R:
            each, part = pair
            with torch.no_grad():  # applies only to the current thread
                each.flat.zero_gradient()
                return function(each, part)

        return self._threads.map(apply, list(zip(self._copies, parts, strict=False)))

    def gradient(self, parts: int) -> Tensor:
        """Sum the gradients of the first `parts` copies into the first copy's gradient and return it."""
        total = self._copies[0].flat.gradient
        for each in self._copies[1:parts]:
            total += each.flat.gradient
        return total

    def close(self) -> None:
        """Stop the threads; the copies cannot be used afterwards."""
        self._threads.close()
