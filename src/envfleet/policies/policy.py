"""`Policy`: observations in; actions, log-probabilities and values out. `build_policy` builds one from settings.

A policy has three parts: inputs (preprocessing of raw observations), a body (actor, critic and memory) and a
distribution (samples actions from the actor's output). `act` is called for every group and every step of a fleet, so it
does as few tensor operations as possible. It draws no random numbers; the caller passes the noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.policies.body import Body
from envfleet.policies.construction import build_parts
from envfleet.policies.distributions import Distribution
from envfleet.policies.inputs import Inputs
from envfleet.policies.numpy_actor import NumpyActor, numpy_actor
from envfleet.policies.protocol import Acted, Recorded
from envfleet.policies.settings import PolicySettings
from envfleet.policies.weights import seeded

__all__ = ["Evaluated", "Policy", "build_policy"]

Array = np.ndarray[Any, Any]
Observations = dict[str, Tensor]


class Evaluated(NamedTuple):
    """The result of `evaluate`: [batch], or [time, batch] with memory."""

    log_probs: Tensor
    entropy: Tensor
    values: Tensor


class Policy(nn.Module):
    """An actor and a critic for one observation space and one action space.

    Observations are flat dicts `{leaf.name: tensor}` of raw environment observations (a space without Dict or Tuple
    has the single name "").
    """

    def __init__(self, inputs: Inputs, body: Body, distribution: Distribution, *, record_values: bool = False) -> None:
        super().__init__()
        self.inputs, self.body, self.distribution = inputs, body, distribution
        self.memory_size: int = body.memory_size
        self.rows_at_once = body.rows_at_once
        self.noise_size: int = distribution.noise_size
        self.mask_size: int = distribution.mask_size
        self.action_shape: tuple[int, ...] = distribution.action_shape
        self.action_dtype: np.dtype[Any] = distribution.action_dtype
        self._with_values = record_values and body.shared
        names = ("log_probs", "values") if self._with_values else ("log_probs",)
        self.recorded: Recorded = dict.fromkeys(names, ((), "<f4"))
        # Plain attributes: looking up a submodule costs as much as a small tensor operation.
        self._read, self._step, self._sample = inputs.forward, body.step, distribution.sample

    def initial_memory(self, batch: int) -> Tensor:
        """Return the memory at the start of an episode: zeros [batch, memory_size]."""
        return torch.zeros(batch, self.memory_size)

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the noise for `act`, for many steps at once: float32 [*shape, noise_size]."""
        return self.distribution.draw_noise(generator, shape)

    @property
    def acting_module(self) -> nn.Module:
        return self

    def act(self, observations: Observations, memory: Tensor, noise: Tensor, mask: Tensor | None = None) -> Acted:
        """Sample one action per row. The caller sets `torch.inference_mode` and zeroes memory at episode ends."""
        parameters, values, memory = self._step(self._read(observations), memory, with_values=self._with_values)
        actions, log_probs = self._sample(parameters, noise, mask)
        return Acted(actions, memory, (log_probs,) if values is None else (log_probs, values))

    def numpy_version(self, rows: int) -> NumpyActor | None:
        """Return a NumPy version for batches of `rows`, if the networks are small."""
        return numpy_actor(self.inputs, self.body, self.distribution, rows, with_values=self._with_values)

    def best_actions(
        self, observations: Observations, memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the most likely action per row, and the memory after the step."""
        parameters, _, memory = self._step(self._read(observations), memory, with_values=False)
        return self.distribution.mode(parameters, mask), memory

    def to_env(self, actions: Tensor) -> Tensor:
        """Convert stored actions for the environment: add the start of a Discrete, clip or scale a Box."""
        return self.distribution.to_env(actions)

    def evaluate(
        self,
        observations: Observations,
        actions: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        starts: Tensor | None = None,
    ) -> Evaluated:
        """Return log-probabilities of stored actions, entropy and values, with gradients.

        Without memory all tensors are [batch, ...]. With memory they are sequences [time, batch, ...]: `memory` [batch,
        memory_size] is the memory before the first step (default: zeros), and `starts` [time, batch] marks the first
        steps of episodes, before which it is reset.
        """
        if not self.memory_size:
            parameters, values = self.body.run(self._read(observations), None, None)
            log_probs, entropy = self.distribution.evaluate(parameters, actions, mask)
            return Evaluated(log_probs, entropy, values)
        shape = actions.shape[:2]
        parts, memory = self._flattened(observations, memory)
        parameters, values = self.body.run(parts, memory, starts)
        flat_mask = None if mask is None else mask.flatten(0, 1)
        log_probs, entropy = self.distribution.evaluate(parameters, actions.flatten(0, 1), flat_mask)
        return Evaluated(log_probs.view(shape), entropy.reshape(shape), values.view(shape))

    def read(self, observations: Observations) -> list[Any]:
        """Preprocess observations `[batch, ...]`: concatenate and normalise vectors, leave images as they are."""
        return self._read(observations)

    def values(self, observations: Observations, memory: Tensor | None = None, starts: Tensor | None = None) -> Tensor:
        """Return values only, in the same form as `evaluate`."""
        if not self.memory_size:
            return self.body.values(self._read(observations), None, None)
        shape = next(iter(observations.values())).shape[:2]
        parts, memory = self._flattened(observations, memory)
        return self.body.values(parts, memory, starts).view(shape)

    def _flattened(self, observations: Observations, memory: Tensor | None) -> tuple[list[Any], Tensor]:
        """Return the parts of a sequence [time, batch, ...] as rows [time * batch, ...], and its first memory."""
        if memory is None:
            any_leaf = next(iter(observations.values()))
            memory = self.initial_memory(any_leaf.shape[1]).to(any_leaf.device)
        return self._read({name: value.flatten(0, 1) for name, value in observations.items()}), memory

    def update_normaliser(self, observations: Observations, valid: Tensor | None = None) -> None:
        """Add a rollout `{name: [..., *leaf.shape]}` to the running moments, except rows not `valid` [...].

        Does nothing if `normalise_observations` is off. The result depends on the order of the rows.
        """
        self.inputs.update_normalisers(observations, valid)

    def normaliser_state(self) -> dict[str, dict[str, Array]]:
        """Return the float64 moments per leaf, for a checkpoint; the weights only hold float32 copies."""
        return self.inputs.normaliser_state()

    def restore_normaliser(self, state: dict[str, dict[str, Array]]) -> None:
        """Restore the result of `normaliser_state`."""
        self.inputs.restore_normalisers(state)


def build_policy(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    settings: PolicySettings | None = None,
    *,
    seed: int,
    record_values: bool = False,
) -> Policy:
    """Build a policy whose weights depend only on the seed; torch's global generator is not changed.

    With `record_values` it also records values while acting, if actor and critic share a network: then they are almost
    free. Networks given as 'module:Class' in the settings are imported here.
    """
    with seeded(seed):
        parts = build_parts(observation_space, action_space, settings or PolicySettings())
        return Policy(*parts, record_values=record_values)
