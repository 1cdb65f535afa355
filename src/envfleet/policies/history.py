"""A memory over the history of an episode: the previous action, the previous reward and the observation of each step.

Each part has an embedding of its own, a linear layer with relu, because they differ in size and scale. The memory reads
all of them, in this order. Its output is joined with a second embedding, of the current observation (and, for a critic,
of the action), before it enters a head (Ni et al. 2022):

    x_t = [ E_a(a_{t-1}), E_r(r_{t-1}), E_o(o_t) ]      h_t = GRU(x_t, h_{t-1})
    actor: [ h_t, C(o_t) ]                              critic: [ h_t, C(o_t, a_t) ]

Rows of features hold all parts side by side; `EnvFacts.history` says where. Embeddings start as torch's linear layers
do, the memory with orthogonal weights and zero biases.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.inputs import JoinedInputs
from envfleet.policies.memory import Memory
from envfleet.policies.weights import parameters_of

__all__ = ["HeadInput", "HistoryEncoder", "build_history", "places_of"]


class HistoryEncoder(nn.Module):
    """From rows of features to the output of a memory.

    `features` is the size of a row, and `places` maps "action" and "reward" to their columns [start, stop). Actions are
    multiplied by `action_scale`.
    """

    columns: Tensor  # of the observation: all that are neither action nor reward
    action_scale: Tensor

    def __init__(
        self,
        features: int,
        places: Mapping[str, tuple[int, int]],
        settings: HistorySettings,
        action_scale: Tensor | float = 1.0,
    ) -> None:
        super().__init__()
        self.settings = settings
        taken = {column for start, stop in places.values() for column in range(start, stop)}
        columns = [column for column in range(features) if column not in taken]
        self.observation_size = len(columns)
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64), persistent=False)
        self.register_buffer("action_scale", torch.as_tensor(action_scale, dtype=torch.float32), persistent=False)
        self.places = {name: places[name] for name in ("action", "reward") if name in places}
        self.action, self.reward = (
            _embedding(self.places[name], size) if size else None
            for name, size in (("action", settings.action_embedding), ("reward", settings.reward_embedding))
        )
        of_observation = settings.observation_embedding
        self.observation = nn.Linear(len(columns), of_observation) if of_observation else None
        self.memory = Memory(settings.memory, settings.input_size, settings.memory_size)
        self.units, self.memory_size = self.memory.units, self.memory.state_size

    def observed(self, rows: Tensor) -> Tensor:
        """Return the columns of the observation [..., observation_size]."""
        return rows.index_select(-1, self.columns)

    def step(self, rows: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory's output [batch, units] for rows [batch, features], and its state after the step."""
        return self.memory.step(self._embedded(rows), state)

    def run(self, rows: Tensor, state: Tensor | None = None, starts: Tensor | None = None) -> Tensor:
        """Return the memory's outputs [time, batch, units] for sequences of rows [time, batch, features].

        They begin with `state` [batch, memory_size], by default zero. `starts` [time, batch] marks the first steps of
        episodes, before which the state is reset; sequences of a replay buffer have none.
        """
        time, batch, features = rows.shape
        embedded = self._embedded(rows.reshape(time * batch, features))
        if state is None:
            state = rows.new_zeros(batch, self.memory_size)
        return self.memory.run(embedded.view(time, batch, -1), state, starts)

    def _embedded(self, rows: Tensor) -> Tensor:
        parts = []
        if self.action is not None:
            start, stop = self.places["action"]
            parts.append(_linear(rows[:, start:stop] * self.action_scale, self.action))
        if self.reward is not None:
            start, stop = self.places["reward"]
            parts.append(_linear(rows[:, start:stop], self.reward))
        if self.observation is not None:
            parts.append(_linear(self.observed(rows), self.observation))
        return torch.relu(torch.cat(parts, dim=1))


class HeadInput(nn.Module):
    """Joins the memory's output with an embedding of the current observation and, for a critic, of the action."""

    def __init__(self, units: int, observation_size: int, embedding: int, *, action_size: int = 0) -> None:
        super().__init__()
        self.size = units + embedding
        self.embedding = nn.Linear(observation_size + action_size, embedding) if embedding else None

    def forward(
        self, remembered: Tensor, observed: Tensor, actions: Tensor | None = None, *, frozen: bool = False
    ) -> list[Tensor]:
        """Return the parts to join, [rows, size] together. With `frozen` weights, gradients reach the inputs only."""
        if self.embedding is None:
            return [remembered]
        current = observed if actions is None else torch.cat([observed, actions], dim=1)
        return [remembered, torch.relu_(_linear(current, self.embedding, frozen=frozen))]


def build_history(
    inputs: JoinedInputs, features: int, action_space: spaces.Space[object], settings: HistorySettings
) -> HistoryEncoder:
    """Build the memory for rows of features that begin with the vector of `inputs`.

    Previous actions of a Box are scaled to [-1, 1] by its largest bound, if that is finite; 0 stays 0. Actions that the
    inputs normalise have their scale already.
    """
    scale: Tensor | float = 1.0
    leaf = settings.parts["action"][0] if "action" in settings.parts else None
    normalised = leaf is not None and inputs.normaliser_of(leaf) is not None
    if isinstance(action_space, spaces.Box) and not normalised:
        largest = np.maximum(np.abs(action_space.low), np.abs(action_space.high)).astype(np.float64).reshape(-1)
        known = np.isfinite(largest) & (largest > 0.0)
        scale = torch.from_numpy(1.0 / np.where(known, largest, 1.0))
    return HistoryEncoder(features, places_of(inputs, settings.parts), settings, scale)


def places_of(inputs: JoinedInputs, parts: Mapping[str, tuple[str, int, int]]) -> dict[str, tuple[int, int]]:
    """Return the columns of the parts in the joined vector of an observation."""
    found = {}
    for name, (leaf, start, stop) in parts.items():
        first = inputs.column_of(leaf)
        found[name] = (first + start, first + stop)
    return found


def _embedding(place: tuple[int, int], size: int) -> nn.Linear:
    return nn.Linear(place[1] - place[0], size)


def _linear(rows: Tensor, layer: nn.Linear, *, frozen: bool = False) -> Tensor:
    weights = parameters_of(layer)
    weight, bias = weights["weight"], weights["bias"]
    return functional.linear(rows, weight.detach(), bias.detach()) if frozen else functional.linear(rows, weight, bias)
