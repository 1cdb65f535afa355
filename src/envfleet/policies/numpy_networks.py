"""Small networks in NumPy, for fast acting.

Acting uses batches of a few rows. For products of that size torch spends most of its time on bookkeeping, and NumPy
needs a quarter of the time. Each kind of policy combines these parts in its `numpy_version`.

The weights of linear layers are views of the policy's, so `FlatParameters` must have placed the weights before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from envfleet.fleet.memory import aligned
from envfleet.policies.inputs import Inputs, JoinedInputs
from envfleet.policies.normalise import LIMIT, ObservationNormaliser

__all__ = ["NumpyNetwork", "Product", "VectorReader", "fit", "fits", "vector_reader", "view"]

Array = np.ndarray[Any, Any]
_FLOAT = np.dtype(np.float32)
# NumPy's BLAS uses one thread for products below these sizes, whatever the thread settings: rows x inputs x outputs,
# and inputs x outputs for a single row.
_ONE_THREAD, _ONE_THREAD_SINGLE = 2**18, 2**13


class VectorReader:
    """Converts a vector of floats to the network's input."""

    def __init__(self, name: str, normaliser: ObservationNormaliser | None) -> None:
        self._name = name
        self._scale = None if normaliser is None else (view(normaliser.mean), view(normaliser.inverse_std))

    def __call__(self, observations: Mapping[str, Array]) -> Array:
        rows = observations[self._name]
        if self._scale is None:
            return rows.astype(np.float32, copy=False)
        seen = rows.astype(np.float32)
        mean, inverse_std = self._scale
        seen -= mean
        seen *= inverse_std
        return np.minimum(np.maximum(seen, -LIMIT, out=seen), LIMIT, out=seen)


def vector_reader(inputs: Inputs) -> VectorReader | None:
    """Return the reader of an observation that is one vector of floats; None for any other."""
    if not isinstance(inputs, JoinedInputs) or len(inputs.leaves) != 1:
        return None
    (leaf,) = inputs.leaves
    if leaf.dtype.kind != "f" or len(leaf.shape) != 1:
        return None
    return VectorReader(leaf.name, inputs.normaliser_of(leaf.name))


class Product:
    """The product of a few rows and a transposed weight matrix [outputs, inputs], plus a bias.

    A large product is computed in pieces, some outputs at a time, each so small that NumPy's BLAS uses one thread. So
    the result does not depend on thread settings, which belong to the process and not to us.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rows: int, out: Array | None = None) -> None:
        matrix = view(weight)
        outputs, inputs = matrix.shape
        self.out: Array = aligned((rows, outputs), _FLOAT) if out is None else out
        self._bias = view(bias)
        width = outputs if fits(matrix.size, rows) else _widest(inputs, rows)
        self._pieces = [
            (matrix[first : first + width].T, self.out[:, first : first + width]) for first in range(0, outputs, width)
        ]

    def __call__(self, rows: Array) -> Array:
        """Return the outputs; the next call reuses the array."""
        for weight, out in self._pieces:
            np.matmul(rows, weight, out=out)
        return np.add(self.out, self._bias, out=self.out)


def _widest(inputs: int, rows: int) -> int:
    """The number of outputs, a multiple of 16 if possible, whose product NumPy computes with one thread."""
    width = 16
    while fits(2 * width * inputs, rows):
        width *= 2
    while not fits(width * inputs, rows) and width > 1:
        width //= 2
    return width


class NumpyNetwork:
    """Linear layers with an activation between them, over a few rows."""

    def __init__(self, layers: list[nn.Linear], activation: str, rows: int, *, activate_last: bool = False) -> None:
        self._layers = [Product(layer.weight, layer.bias, rows) for layer in layers]
        self._activated = len(layers) - (0 if activate_last else 1)
        self._tanh = activation == "tanh"

    def __call__(self, rows: Array) -> Array:
        """Return the outputs; the next call reuses the array."""
        for depth, product in enumerate(self._layers):
            out = product(rows)
            if depth < self._activated:
                if self._tanh:
                    np.tanh(out, out=out)
                else:
                    np.maximum(out, 0.0, out=out)
            rows = out
        return rows


def fit(layers: list[nn.Linear], rows: int) -> bool:
    """Whether NumPy computes all layers with one thread."""
    return all(fits(layer.weight.numel(), rows) for layer in layers)


def fits(weights: int, rows: int) -> bool:
    """Whether NumPy computes the product of a weight matrix and `rows` with one thread."""
    return rows * weights < _ONE_THREAD and (rows > 1 or weights < _ONE_THREAD_SINGLE)


def view(tensor: Tensor) -> Array:
    """Return a tensor's numbers as an array that shares its memory."""
    array: Array = tensor.detach().numpy()
    return array
