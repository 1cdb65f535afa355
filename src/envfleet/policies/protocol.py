"""The contract of a policy: what collectors, evaluation, checkpoints and runs need from it.

A kind of policy consists of two classes. Its settings (`PolicyBuilder`) are plain data that a checkpoint records, and
build the policy. The policy (`ActingPolicy`), a torch module, acts. A learner knows its own kind and uses more of it.

A policy draws no random numbers: `draw_noise` samples them for many steps at once, and `act` takes them as an argument.
Observations are flat dicts `{leaf.name: tensor}` of raw observations. Importing this module does not load torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from gymnasium import spaces
    from torch import Tensor, nn

__all__ = [
    "Acted",
    "ActingPolicy",
    "BuildPolicy",
    "NumpyActed",
    "NumpyPolicy",
    "PolicyBuilder",
    "RanksActions",
    "Recorded",
]

Array = np.ndarray[Any, Any]
Recorded = Mapping[str, tuple[tuple[int, ...], str]]  # name -> shape for one environment, and dtype


class Acted(NamedTuple):
    """The result of `ActingPolicy.act` for one batch."""

    actions: Tensor  # [batch, *action_shape], as stored; `to_env` converts them for the environment
    memory: Tensor  # [batch, memory_size], after the step
    recorded: tuple[Tensor, ...] = ()  # [batch, ...] each, in the order of `ActingPolicy.recorded`


class NumpyActed(NamedTuple):
    """The result of `NumpyPolicy.act` for one batch."""

    env_actions: Array  # for the environment
    actions: Array  # as stored
    recorded: tuple[Array, ...] = ()


class NumpyPolicy(Protocol):
    """A policy in NumPy, for batches of one size. It uses the weights of the policy it was made from."""

    def refresh(self) -> None:
        """Called after the weights have changed, for a policy that keeps them in another form."""

    def act(self, observations: Mapping[str, Array], memory: Array, noise: Array, mask: Array | None) -> NumpyActed:
        """Like `ActingPolicy.act` followed by `to_env`; the memory is updated in place."""


class ActingPolicy(Protocol):
    """A torch module that acts."""

    @property
    def acting_module(self) -> nn.Module:
        """The part whose weights are needed for acting, and are sent to the workers: often the policy itself."""

    @property
    def memory_size(self) -> int:
        """Numbers of recurrent state per environment, all zero when an episode begins; 0 without memory."""

    @property
    def mask_size(self) -> int:
        """Flags of an action mask; 0 if the policy takes none."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one stored action."""

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Dtype of a stored action."""

    @property
    def recorded(self) -> Recorded:
        """What a rollout records of every step besides the action."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the noise for `act`, for many steps at once: float32 [*shape, n]."""

    def act(self, observations: dict[str, Tensor], memory: Tensor, noise: Tensor, mask: Tensor | None = None) -> Acted:
        """Choose one action per row, with exploration. The caller sets `torch.inference_mode`."""

    def best_actions(
        self, observations: dict[str, Tensor], memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the best action per row, without exploration, and the memory after the step."""

    def to_env(self, actions: Tensor) -> Tensor:
        """Convert stored actions for the environment."""

    def numpy_version(self, rows: int) -> NumpyPolicy | None:
        """Return a NumPy version for batches of `rows`; None if torch is faster or required.

        `FlatParameters` has placed the weights before; they change in place, and then `refresh` is called.
        """

    def normaliser_state(self) -> dict[str, dict[str, Array]]:
        """Return the moments of normalised observations per leaf, for a checkpoint; empty without normalisation."""

    def restore_normaliser(self, state: dict[str, dict[str, Array]]) -> None:
        """Restore the result of `normaliser_state`."""

    # --- as every torch module

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


@runtime_checkable
class RanksActions(Protocol):
    """A policy that can name several of its best actions."""

    def ranked_actions(self, observations: dict[str, Tensor], mask: Tensor | None, count: int) -> Tensor:
        """Return the best actions of each row, the best one first: [batch, up to count]."""


class BuildPolicy(Protocol):
    """Builds a policy; it can be pickled."""

    def __call__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, seed: int
    ) -> ActingPolicy: ...


class PolicyBuilder(Protocol):
    """The settings of one kind of policy: a frozen dataclass. See `envfleet.policies.kinds`."""

    kind: ClassVar[str]  # the name in checkpoints

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build settings from the result of `to_json`. Must not import code that the data names; `build` may."""

    def build(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, seed: int
    ) -> ActingPolicy:
        """Build a policy whose weights depend only on the seed. Imports torch."""
