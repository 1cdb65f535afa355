"""The memory a replay buffer needs, computed and checked before it is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import ResourceError
from envfleet.fleet.spaces import Leaf, leaves_of
from envfleet.machine import available_memory
from envfleet.rollout.storage import Aside, entry_bytes, stacked_leaves

__all__ = ["ReplaySpec"]


@dataclass(frozen=True)
class ReplaySpec:
    """All sizes of a replay buffer."""

    observation_space: spaces.Space[Any]
    action: tuple[tuple[int, ...], Any]  # shape and type of one action
    capacity: int  # requested number of steps
    n_envs: int
    mask_size: int = 0
    frame_stack: int = 1
    prioritised: bool = False  # with a sum tree of priorities
    batch_rows: int | None = None  # rows of an asynchronous batch, after which episodes may be cut; None: none are
    name: str = "the replay"

    @property
    def stacked(self) -> list[Leaf]:
        """The frame-stack leaves, whose frames are stored once."""
        return stacked_leaves(leaves_of(self.observation_space), self.frame_stack)

    @property
    def most(self) -> int:
        """Maximum number of rows with steps that can be sampled."""
        return max(1, -(-self.capacity // self.n_envs))

    @property
    def rows(self) -> int:
        """`most`, plus a row for the observations after the newest step, plus rows for frames of the oldest stacks."""
        return self.most + 1 + (self.frame_stack - 1 if self.stacked else 0)

    @property
    def entries(self) -> int:
        return self.rows * self.n_envs

    @property
    def bytes(self) -> int:
        """Bytes of everything stored per entry, and aside for asynchronous batches.

        The few observations stored aside for truncated episodes come on top.
        """
        stacked = self.stacked
        seen = sum(
            entry_bytes(leaf, self.frame_stack if leaf in stacked else 1) for leaf in leaves_of(self.observation_space)
        )
        acted: int = np.dtype(self.action[1]).itemsize * int(np.prod(self.action[0], dtype=np.int64))
        each = seen + acted + self.mask_size + 4 + 1 + Aside.BYTES_PER_ENTRY  # 4: reward, 1: status bits
        # The tree has one leaf per entry, rounded up to a power of two, and as many inner nodes.
        tree = 2 * 8 << (self.entries - 1).bit_length() if self.prioritised else 0
        return self.entries * each + tree + self._aside_bytes

    @property
    def _aside_bytes(self) -> int:
        """Bytes for what the episodes of every asynchronous batch led to, and for the older frames of its stacks."""
        if self.batch_rows is None:
            return 0
        batches = -(-self.rows // self.batch_rows) + 1
        whole = sum(entry_bytes(leaf, 1) for leaf in leaves_of(self.observation_space))
        older = sum(entry_bytes(leaf, 1) // self.frame_stack * (self.frame_stack - 1) for leaf in self.stacked)
        return Aside.slots_for(batches * self.n_envs) * (whole + self.mask_size + older)

    @property
    def text(self) -> str:
        steps = f"{self.most * self.n_envs:,} steps of {self.n_envs} environments in {self.bytes / 2**20:,.0f} MiB"
        once = f", stacks of {self.frame_stack} as single frames" if self.stacked else ""
        return steps + once + (", priorities included" if self.prioritised else "")

    def refuse_too_large(self, *, beside: int = 0) -> None:
        """Raise ResourceError if the buffer does not fit into the available memory, less `beside` bytes."""
        free = max(0, available_memory() - beside)
        if self.bytes > 0.9 * free:
            fits = int(0.8 * free / self.bytes * self.capacity)
            raise ResourceError(
                f"{self.name} needs {self.bytes / 2**30:,.1f} GiB for {self.capacity:,} steps, but only "
                f"{free / 2**30:,.1f} GiB of memory are available",
                hint=f"about {fits:,} steps fit; store smaller observations (uint8 instead of float32), or keep fewer",
            )
