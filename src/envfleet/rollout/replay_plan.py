"""How much memory a replay will take, known and refused before any of it is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import ResourceError
from envfleet.fleet.spaces import Leaf, leaves_of
from envfleet.machine import available_memory
from envfleet.rollout.storage import Aside, entry_bytes, stacked_leaves

__all__ = ["ReplayPlan"]


@dataclass(frozen=True)
class ReplayPlan:
    """All sizes of a replay."""

    observation_space: spaces.Space[Any]
    action: tuple[tuple[int, ...], Any]  # shape and type of one action
    capacity: int  # steps that are asked for
    n_envs: int
    mask_size: int = 0
    frame_stack: int = 1
    prioritised: bool = False  # a sum tree of priorities lies beside it
    name: str = "the replay"

    @property
    def stacked(self) -> list[Leaf]:
        """The leaves whose frames are stored once."""
        return stacked_leaves(leaves_of(self.observation_space), self.frame_stack)

    @property
    def most(self) -> int:
        """Rows with steps to draw."""
        return max(1, -(-self.capacity // self.n_envs))

    @property
    def rows(self) -> int:
        """One row holds where the newest step led; the oldest stacks need the frames of the rows before them."""
        return self.most + 1 + (self.frame_stack - 1 if self.stacked else 0)

    @property
    def entries(self) -> int:
        return self.rows * self.n_envs

    @property
    def bytes(self) -> int:
        """What everything with a place for each entry takes; the few observations that are kept aside come on top."""
        stacked = self.stacked
        seen = sum(
            entry_bytes(leaf, self.frame_stack if leaf in stacked else 1) for leaf in leaves_of(self.observation_space)
        )
        acted: int = np.dtype(self.action[1]).itemsize * int(np.prod(self.action[0], dtype=np.int64))
        each = seen + acted + self.mask_size + 4 + 1 + Aside.BYTES_PER_ENTRY  # with the reward and what became of it
        # The tree has a leaf for each entry, up to the next power of two, and as many nodes above them.
        tree = 2 * 8 << (self.entries - 1).bit_length() if self.prioritised else 0
        return self.entries * each + tree

    @property
    def text(self) -> str:
        steps = f"{self.most * self.n_envs:,} steps of {self.n_envs} environments in {self.bytes / 2**20:,.0f} MiB"
        once = f", stacks of {self.frame_stack} as single frames" if self.stacked else ""
        return steps + once + (", priorities included" if self.prioritised else "")

    def refuse_too_large(self, *, beside: int = 0) -> None:
        """ResourceError where it does not fit into the memory that is left when `beside` bytes are taken as well."""
        free = max(0, available_memory() - beside)
        if self.bytes > 0.9 * free:
            fits = int(0.8 * free / self.bytes * self.capacity)
            raise ResourceError(
                f"{self.name} needs {self.bytes / 2**30:,.1f} GiB for {self.capacity:,} steps, but only "
                f"{free / 2**30:,.1f} GiB of memory are available",
                hint=f"about {fits:,} steps fit; store smaller observations (uint8 instead of float32), or keep fewer",
            )
