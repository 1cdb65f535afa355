"""The description of a fleet: its groups, spaces, metadata and capabilities, combined from those of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from envfleet.fleet.group import Capability, GroupDescription
from envfleet.fleet.observation_modes import ObservationMode, action_spaces, observation_spaces
from envfleet.fleet.spec import WorkerSpec
from envfleet.fleet.worker import Hello

__all__ = ["FleetDescription"]


@dataclass(frozen=True)
class FleetDescription:
    """Attributes of the vector environment. Metadata, render mode, spec and capabilities are the first group's."""

    groups: list[range]  # the environments of each group
    groups_of_workers: list[list[int]]
    observation_spaces: tuple[Space[Any], Space[Any]]  # of one environment, of all together
    action_spaces: tuple[Space[Any], Space[Any]]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: Any
    capabilities: frozenset[Capability]

    @classmethod
    def combined(cls, specs: Sequence[WorkerSpec], hellos: Sequence[Hello], mode: ObservationMode) -> FleetDescription:
        """Combine the descriptions of all groups; raise SpacesError if their spaces do not fit together."""
        groups = sorted((group for spec in specs for group in spec.groups), key=lambda group: group.index)
        described = _in_order(specs, hellos)
        first = described[0]
        return cls(
            [range(group.start, group.stop) for group in groups],
            [[group.index for group in spec.groups] for spec in specs],
            observation_spaces([space for group in described for space in group.observation_spaces], mode),
            action_spaces([space for group in described for space in group.action_spaces]),
            first.metadata,
            first.render_mode,
            first.spec,
            first.capabilities,
        )


def _in_order(specs: Sequence[WorkerSpec], hellos: Sequence[Hello]) -> list[GroupDescription]:
    """The descriptions of all groups, in the order of the groups."""
    described = {
        group.index: description
        for spec, hello in zip(specs, hellos, strict=True)
        for group, description in zip(spec.groups, hello.groups, strict=True)
    }
    return [described[index] for index in sorted(described)]
