"""Facts about an environment that settings may depend on. Importing this does not load Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envfleet.settings.presets import Preset

if TYPE_CHECKING:
    from gymnasium import spaces

__all__ = ["EnvFacts"]


@dataclass(frozen=True)
class EnvFacts:
    """Facts about an environment that training collects before it resolves the settings."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    entry_point: str  # in Gymnasium's registry, or the module of its class
    own_settings: frozenset[str]  # names of the settings that the environment declares
    presets: Mapping[str, Preset]  # that the environment declares, by algorithm
    frames: int  # stacked in an observation
    simulators: dict[str, str]  # versions
    # Where the observation has the previous "action" and "reward": leaf, start, stop (`capabilities.HasHistory`).
    history: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    has_trials: bool = False  # its episodes are trials of tasks (meta-RL)
    hides_history: bool = False  # it could show them, but its settings say that no memory is to see them

    @property
    def has_image(self) -> bool:
        """Whether an image is part of the observation."""
        return _has_image(self.observation_space)

    def own_preset(self, algorithm: str, *, memory: bool = False) -> Preset | None:
        """The preset that the environment declares for an algorithm, if it fits these observations and a memory."""
        preset = self.presets.get(algorithm)
        if preset is None or (self.has_image and not preset.for_images) or (memory and not preset.for_memory):
            return None
        return preset


def _has_image(space: spaces.Space[Any]) -> bool:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return any(_has_image(part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return any(_has_image(part) for part in space.spaces)
    # The two larger sides are the picture's: channels or stacked frames may come first or last.
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and sorted(space.shape)[1] >= 32
