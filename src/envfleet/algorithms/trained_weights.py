"""The weights of a module that one learner trains: gradients from several threads, clipping, Adam."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from envfleet.algorithms.adam import FlatAdam
from envfleet.policies.flat import FlatParameters

__all__ = ["TrainedWeights"]


class TrainedWeights:
    """The weights of one module: flat, with their own Adam. The part `apart` has a learning rate of its own.

    `beta` is Adam's decay of the mean gradient.
    """

    def __init__(self, module: nn.Module, *, apart: nn.Module | None = None, beta: float = 0.9) -> None:
        self.flat = FlatParameters(module)
        self._apart = None if apart is None else self.flat.span_of(apart)
        self.adam = FlatAdam(self.flat, epsilon=1e-8, betas=(beta, 0.999), apart=self._apart)
        self._parameters = list(module.parameters())
        self._slots = [parameter.grad for parameter in self._parameters]  # views of the flat gradient

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return the gradients of a loss; several threads may do so at once."""
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        return [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(self._parameters, found, strict=True)
        ]

    def step(
        self, gradients: Sequence[list[Tensor] | None], largest: float | None, rate: float, of_apart: float = 0.0
    ) -> Tensor:
        """Add the gradients of all parts, in order, clip them, make a step of Adam and return their norm.

        None stands for those of a single part that has written them to the flat gradient itself.
        """
        if gradients[0] is not None:
            self._add([part for part in gradients if part is not None])
        norm: Tensor = torch.linalg.vector_norm(self.flat.gradient)
        if largest is not None and float(norm) > largest:
            self.flat.gradient.mul_(largest / (float(norm) + 1e-6))
        self.adam.step(*((rate,) if self._apart is None else (rate, of_apart)))
        return norm

    def _add(self, gradients: Sequence[list[Tensor]]) -> None:
        for slot, *parts in zip(self._slots, *gradients, strict=True):
            assert slot is not None
            if len(parts) == 1:
                slot.copy_(parts[0])
                continue
            torch.add(parts[0], parts[1], out=slot)
            for part in parts[2:]:
                slot.add_(part)
