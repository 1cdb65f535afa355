"""Settings of a memory over the history of an episode. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envfleet.errors import SettingsError

__all__ = ["HistorySettings"]


@dataclass(frozen=True, kw_only=True)
class HistorySettings:
    """A GRU or LSTM that reads embeddings of the previous action, the previous reward and the observation.

    An embedding of size 0 leaves its part out. `parts` says where the observation has the previous action and reward,
    as `EnvFacts.history` does: leaf, start and stop. Everything else counts as the observation.
    """

    memory: Literal["gru", "lstm"] = "gru"
    memory_size: int = 128  # units
    action_embedding: int = 16
    reward_embedding: int = 16
    observation_embedding: int = 32
    parts: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.input_size:
            raise SettingsError(
                "the embeddings of the previous action, the previous reward and the observation all have the size 0, "
                "so the memory would read nothing; expected at least one above 0"
            )
        wanted = {"action": self.action_embedding, "reward": self.reward_embedding}
        missing = [name for name, size in wanted.items() if size and name not in self.parts]
        if missing:
            raise SettingsError(
                f"the memory reads the previous {' and '.join(missing)}, which the observation does not have",
                hint="use the wrapper history, or set the size of the embedding to 0",
            )

    @property
    def input_size(self) -> int:
        """Numbers that the memory reads per step."""
        return self.action_embedding + self.reward_embedding + self.observation_embedding

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {**plain, "parts": {name: list(place) for name, place in self.parts.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HistorySettings:
        """Build settings from the result of `to_json`."""
        parts = {name: (str(leaf), int(start), int(stop)) for name, (leaf, start, stop) in data["parts"].items()}
        return cls(**{**data, "parts": parts})
