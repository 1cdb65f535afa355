"""Seeds: one integer for a run, and every stream derived from it by name and number."""

from __future__ import annotations

import secrets

import numpy as np

from envfleet.errors import SettingsError

__all__ = ["LARGEST_SEED", "checked_seed", "derive_seed", "draw_seed", "stream"]

LARGEST_SEED = 2**63 - 1  # what torch and simulators written in C can take


def checked_seed(seed: int) -> int:
    """The seed that a user gave, if it can be one."""
    if not 0 <= seed <= LARGEST_SEED:
        raise SettingsError(f"seed is {seed}, expected a whole number from 0 to {LARGEST_SEED}")
    return seed


def draw_seed() -> int:
    """A fresh seed from the operating system, small enough to type again."""
    return secrets.randbelow(2**31)


def derive_seed(seed: int, *keys: int) -> int:
    """A seed for a stream of its own: the same keys give the same seed, other keys an unrelated one."""
    return int(np.random.SeedSequence([abs(seed), *keys]).generate_state(1, np.uint32)[0])


def stream(seed: int, *keys: int) -> np.random.Generator:
    """A counter-based generator for the stream that `keys` name."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), *keys])))
