"""A trained policy for inference: takes one observation or a batch, and applies normalisation, masks and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import flat_mask, leaves_of, pick
from envfleet.policies.description import describe_space, space_from
from envfleet.policies.devices import to_device
from envfleet.policies.kinds import describe_kind, settings_from
from envfleet.policies.protocol import ActingPolicy, PolicyBuilder, RanksActions
from envfleet.policies.weights import load_weights
from envfleet.seeding import stream

__all__ = ["TrainedAgent", "TrainedPolicy", "describe_policy"]

Array = np.ndarray[Any, Any]
_SAMPLING = 13  # key of the random streams for sampled actions


def describe_policy(
    policy: PolicyBuilder, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> dict[str, Any]:
    """Return everything needed to rebuild the policy, as plain data."""
    return {
        **describe_kind(policy),
        "observation_space": describe_space(observation_space),
        "action_space": describe_space(action_space),
    }


class TrainedPolicy:
    """Acts with trained weights. A policy with memory remembers between calls until `reset()`."""

    def __init__(
        self,
        policy: ActingPolicy,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.observation_space, self.action_space = observation_space, action_space
        self._device = next(policy.parameters(), torch.zeros(0)).device
        self._leaves = leaves_of(observation_space)
        self._generator = stream(seed, _SAMPLING)
        self._memory: torch.Tensor | None = None

    @classmethod
    def load(
        cls,
        description: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        *,
        policy: Any = None,
        trust: bool = False,
        other_spaces: tuple[spaces.Space[Any], spaces.Space[Any]] | None = None,
    ) -> TrainedPolicy:
        """Rebuild a policy from its description. Code outside Envfleet must be registered, given or trusted.

        `other_spaces` of observations and actions replace those of training: a fully convolutional network fits grids
        of any size.
        """
        trained = space_from(description["observation_space"]), space_from(description["action_space"])
        observation_space, action_space = other_spaces or trained
        settings = settings_from(description, network=policy, trust=trust)
        module = settings.build(observation_space, action_space, seed=0)
        try:
            load_weights(module, weights, "the run")
        except SettingsError as error:
            if other_spaces is None:
                raise
            raise SettingsError(
                f"the policy was trained on {trained[0]} and its weights do not fit {observation_space}",
                hint="only the network 'cells' fits grids of other sizes, with the same channels",
            ) from error
        return cls(module, observation_space, action_space)

    def reset(self, *, seed: int | None = None) -> None:
        """Clear the memory, so that the next observation begins an episode. `seed` restarts the sampled actions."""
        self._memory = None
        if seed is not None:
            self._generator = stream(seed, _SAMPLING)

    def act(self, observation: Any, *, mask: Any = None, deterministic: bool = True) -> Any:
        """Return the action for one observation, or the actions for a batch.

        `mask` marks the allowed actions (`info["action_mask"]`). `deterministic=False` samples from the policy's
        distribution, as in training.
        """
        if mask is not None and self._forbids_everything(mask):
            raise SettingsError(
                "the mask allows no action, expected at least one",
                hint='pass info["action_mask"] of the same step, or mask=None where every action is allowed',
            )
        return self.play(observation, mask, deterministic=deterministic)

    @torch.inference_mode()
    def play(self, observation: Any, mask: Any, *, deterministic: bool) -> Any:
        """Act as in training, where a mask that allows nothing counts as allowing everything."""
        observations, single = self._batched(observation)
        rows = len(next(iter(observations.values())))
        allowed = None if mask is None or not self.policy.mask_size else self._mask(mask, rows)
        if self._memory is None or len(self._memory) != rows:
            self._memory = torch.zeros(rows, self.policy.memory_size, device=self._device)
        if deterministic:
            actions, self._memory = self.policy.best_actions(observations, self._memory, allowed)
        else:
            noise = to_device(self.policy.draw_noise(self._generator, (rows,)), self._device)
            acted = self.policy.act(observations, self._memory, noise, allowed)
            actions, self._memory = acted.actions, acted.memory
        result = self.policy.to_env(actions).cpu().numpy().astype(self.action_space.dtype, copy=False)
        return result[0] if single else result

    @torch.inference_mode()
    def ranked(self, observation: Any, mask: Any, count: int) -> list[int]:
        """Return up to `count` allowed actions for one observation, the best one first."""
        if not isinstance(self.policy, RanksActions):
            raise SettingsError(
                f"a search was asked for, and {type(self.policy).__name__} does not rank its actions",
                hint="use a run of DQN, or give your policy a method ranked_actions",
            )
        observations, _ = self._batched(observation)
        allowed = None if mask is None or not self.policy.mask_size else self._mask(mask, 1)
        if allowed is not None and allowed.any():
            count = min(count, int(allowed.sum()))
        actions = self.policy.to_env(self.policy.ranked_actions(observations, allowed, count))
        found: list[int] = actions[0].cpu().tolist()
        return found

    def _batched(self, observation: Any) -> tuple[dict[str, torch.Tensor], bool]:
        parts: dict[str, Array] = {}
        kinds = set()
        for leaf in self._leaves:
            try:
                value = np.asarray(pick(observation, leaf.path), leaf.dtype)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise SettingsError(
                    f"the observation has no entry {leaf.name!r} that fits {leaf.space}: {error}",
                    hint=f"the policy was trained on {self.observation_space}",
                ) from None
            single = value.shape == leaf.shape
            if not single and value.shape[1:] != leaf.shape:
                raise SettingsError(
                    f"the observation {leaf.name!r} has the shape {value.shape}, expected {leaf.shape} or a batch "
                    f"of them, (n, {', '.join(map(str, leaf.shape))})"
                )
            if value.dtype.kind == "f" and np.isnan(value).any():
                raise SettingsError(
                    f"the observation{f' {leaf.name!r}' if leaf.name else ''} holds NaN, expected numbers",
                    hint="look where it is computed: the policy would act as if it had seen something",
                )
            kinds.add(single)
            parts[leaf.name] = value[None] if single else value
        if len(kinds) > 1:
            raise SettingsError("some entries of the observation are single and some are batches, expected one kind")
        tensors = {name: to_device(np.ascontiguousarray(value), self._device) for name, value in parts.items()}
        return tensors, kinds.pop()

    def _mask(self, mask: Any, rows: int) -> torch.Tensor:
        flat, size = self._flat_mask(mask), self.policy.mask_size
        if len(flat) not in (1, rows):
            raise SettingsError(f"received {len(flat)} masks for {rows} observations, expected one or {rows}")
        return to_device(np.broadcast_to(flat, (rows, size)).copy(), self._device)

    def _flat_mask(self, mask: Any) -> Array:
        size = self.policy.mask_size
        try:
            return flat_mask(mask).astype(np.bool_).reshape(-1, size)
        except (TypeError, ValueError):
            raise SettingsError(
                f"received the mask {mask!r}, expected {size} flags, or a row of them for each observation"
            ) from None

    def _forbids_everything(self, mask: Any) -> bool:
        """Whether some choice has no allowed option. Independent switches (MultiBinary) always have one: off."""
        space = self.action_space
        if not self.policy.mask_size or isinstance(space, spaces.MultiBinary):
            return False
        sizes = space.nvec.reshape(-1) if isinstance(space, spaces.MultiDiscrete) else np.array([self.policy.mask_size])
        options = np.add.reduceat(self._flat_mask(mask), np.cumsum(sizes) - sizes, axis=1, dtype=np.int64)
        return bool((options == 0).any())


class TrainedAgent:
    """A trained policy as an agent: clears its memory before every episode and applies the mask of each step."""

    def __init__(self, trained: TrainedPolicy, *, deterministic: bool) -> None:
        self._trained, self._deterministic = trained, deterministic

    def reset(self) -> None:
        self._trained.reset()

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        return self._trained.play(observation, info.get("action_mask"), deterministic=self._deterministic)

    def ranked(self, observation: Any, info: dict[str, Any], count: int) -> list[int]:
        """Return up to `count` allowed actions, the best one first."""
        return self._trained.ranked(observation, info.get("action_mask"), count)
