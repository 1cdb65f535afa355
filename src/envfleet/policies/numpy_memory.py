"""The memory of a policy in NumPy, for fast acting: a GRU or an LSTM, and the embeddings of a history around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from envfleet.fleet.memory import aligned
from envfleet.policies.history import HeadInput, HistoryEncoder
from envfleet.policies.memory import Memory
from envfleet.policies.numpy_networks import Product, view

__all__ = ["NumpyGRU", "NumpyHistory", "NumpyLSTM"]

Array = np.ndarray[Any, Any]
_FLOAT = np.dtype(np.float32)


class NumpyGRU:
    """Same as `torch.gru_cell`, compiled (`gru_kernels.py`)."""

    def __init__(self, memory: Memory, rows: int) -> None:
        from envfleet.policies import gru_kernels

        self._step = gru_kernels.step
        self._weights = [view(weight) for weight in (memory.weight_input, memory.weight_state)]
        self._of_input, self._of_state = (aligned(weight.T.shape, _FLOAT) for weight in self._weights)
        self._bias_input, self._bias_state = view(memory.bias_input), view(memory.bias_state)
        self._projected, self._pulled = (aligned((rows, 3 * memory.units), _FLOAT) for _ in range(2))
        self.refresh()
        # Compile now, because a step may have a time limit.
        self(np.zeros((rows, len(self._of_input)), _FLOAT), np.zeros((rows, memory.units), _FLOAT))

    def refresh(self) -> None:
        """Read the weights again after they changed: the kernel needs them transposed."""
        self._of_input[...], self._of_state[...] = (weight.T for weight in self._weights)

    def __call__(self, features: Array, state: Array) -> Array:
        """Update the state in place and return the output."""
        of_input, of_state = (self._of_input, self._bias_input), (self._of_state, self._bias_state)
        self._step(features, state, *of_input, *of_state, self._projected, self._pulled)
        return state


class NumpyLSTM:
    """Same as `torch.lstm_cell`; the state is h and c side by side."""

    def __init__(self, memory: Memory, rows: int) -> None:
        self._units = memory.units
        self._project = Product(memory.weight_input, memory.bias_input, rows)
        self._pull = Product(memory.weight_state, memory.bias_state, rows)

    def refresh(self) -> None:
        """Nothing to do: the products read the weights in place."""

    def __call__(self, features: Array, state: Array) -> Array:
        """Update the state in place and return the output."""
        units = self._units
        output, cell = state[:, :units], state[:, units:]
        gates = self._project(features)  # input, forget, candidate, output
        gates += self._pull(output)
        _sigmoid(gates[:, : 2 * units])
        candidate = np.tanh(gates[:, 2 * units : 3 * units])
        _sigmoid(gates[:, 3 * units :])
        cell *= gates[:, units : 2 * units]
        candidate *= gates[:, :units]
        cell += candidate
        np.tanh(cell, out=output)
        output *= gates[:, 3 * units :]
        return output


class NumpyHistory:
    """A history encoder and the input of the head behind it, from rows of features [rows, n] to [rows, size]."""

    def __init__(self, encoder: HistoryEncoder, head: HeadInput, rows: int) -> None:
        settings = encoder.settings
        kind: type[NumpyGRU | NumpyLSTM] = NumpyGRU if settings.memory == "gru" else NumpyLSTM
        self._remember = kind(encoder.memory, rows)
        self._columns, self._scale = view(encoder.columns), view(encoder.action_scale)
        self._embedded = aligned((rows, settings.input_size), _FLOAT)
        self._joined = aligned((rows, head.size), _FLOAT)
        self._units = encoder.units
        first, of_memory = 0, {}
        for name in ("action", "reward", "observation"):
            layer = getattr(encoder, name)
            if layer is not None:
                out = self._embedded[:, first : first + layer.out_features]
                of_memory[name] = Product(layer.weight, layer.bias, rows, out)
                first += layer.out_features
        self._embed = [(*encoder.places[name], of_memory[name], name) for name in encoder.places if name in of_memory]
        self._observe = of_memory.get("observation")
        current = head.embedding
        self._current = None
        if current is not None:
            self._current = Product(current.weight, current.bias, rows, self._joined[:, encoder.units :])

    def refresh(self) -> None:
        """Read the weights again after they changed."""
        self._remember.refresh()

    def __call__(self, rows: Array, state: Array) -> Array:
        """Update the state in place and return the input of the head; the next call reuses the array."""
        observed = rows.take(self._columns, axis=1)
        for start, stop, product, name in self._embed:
            part = rows[:, start:stop]
            product(part * self._scale if name == "action" else part)
        if self._observe is not None:
            self._observe(observed)
        np.maximum(self._embedded, 0.0, out=self._embedded)
        joined = self._joined
        joined[:, : self._units] = self._remember(self._embedded, state)
        if self._current is not None:
            current = self._current(observed)
            np.maximum(current, 0.0, out=current)
        return joined


def _sigmoid(values: Array) -> None:
    """In place: sigmoid(x) = (tanh(x / 2) + 1) / 2."""
    values *= 0.5
    np.tanh(values, out=values)
    values += 1.0
    values *= 0.5
