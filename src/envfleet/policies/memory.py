"""Memory of a recurrent policy: one state vector per environment, carried from step to step of an episode."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from envfleet.policies.gru import gru_sequence
from envfleet.policies.weights import parameters_of, refuse_too_large

__all__ = ["Memory"]


class Memory(nn.Module):
    """A GRU or an LSTM. Its state is one tensor [batch, state_size]: GRU h, LSTM h and c side by side."""

    def __init__(self, kind: str, inputs: int, units: int) -> None:
        super().__init__()
        self.kind, self.units = kind, units
        self.state_size = units if kind == "gru" else 2 * units
        gates = 3 if kind == "gru" else 4
        refuse_too_large(f"the gates of a {kind} of {units} units", gates * units * (inputs + units + 2))
        self.weight_input = nn.Parameter(torch.empty(gates * units, inputs))
        self.weight_state = nn.Parameter(torch.empty(gates * units, units))
        self.bias_input = nn.Parameter(torch.zeros(gates * units))
        self.bias_state = nn.Parameter(torch.zeros(gates * units))
        for weight in (self.weight_input, self.weight_state):
            nn.init.orthogonal_(weight, 1.0)  # gain 1: the gates have their own activations

    def _weights(self) -> list[Tensor]:
        """The parameters in the order that torch's functions expect, which is the order of their creation."""
        return list(parameters_of(self).values())

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [batch, units] and the state after one step."""
        if self.kind == "gru":
            state = torch.gru_cell(features, state, *self._weights())
            return state, state
        output, cell = torch.lstm_cell(features, state.chunk(2, dim=1), *self._weights())
        return output, torch.cat((output, cell), dim=1)

    def run(self, features: Tensor, state: Tensor, starts: Tensor | None) -> Tensor:
        """Return outputs [time, batch, units] of a sequence [time, batch, n] that begins with `state`.

        `starts` [time, batch] marks the first steps of episodes, before which the state is reset to zero. A GRU on the
        CPU runs all steps in one call. Otherwise each stretch between such steps is one fused call of torch.
        """
        if self.kind == "gru" and features.device.type == "cpu":
            return gru_sequence(features, state, starts, self._weights())
        cuts = [] if starts is None else starts.any(dim=1).nonzero().flatten().tolist()
        edges = [*([] if 0 in cuts else [0]), *cuts, len(features)]
        pieces = []
        for begin, end in pairwise(edges):
            if starts is not None and (begin or 0 in cuts):
                state = state.masked_fill(starts[begin].unsqueeze(1), 0.0)
            output, state = self._fused(features[begin:end], state)
            pieces.append(output)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _fused(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Run the memory over steps without an episode start in between."""
        one_layer = (True, 1, 0.0, self.training, False, False)  # with biases, no dropout, forward in time
        if self.kind == "gru":
            output, hidden = torch.gru(features, state.unsqueeze(0), self._weights(), *one_layer)
            return output, hidden[0]
        parts = [part.contiguous().unsqueeze(0) for part in state.chunk(2, dim=1)]
        output, hidden, cell = torch.lstm(features, parts, self._weights(), *one_layer)
        return output, torch.cat((hidden[0], cell[0]), dim=1)
