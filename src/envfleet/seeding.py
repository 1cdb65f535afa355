"""Seeds: a run has one integer seed, and every random stream is derived from it by integer keys."""

from __future__ import annotations

import secrets

import numpy as np

from envfleet.errors import SettingsError

__all__ = ["LARGEST_SEED", "checked_seed", "derive_seed", "draw_seed", "stream"]

LARGEST_SEED = 2**63 - 1  # limit of torch and of simulators written in C


def checked_seed(seed: int) -> int:
    """Return the user's seed; raise SettingsError if it is out of range."""
    if not 0 <= seed <= LARGEST_SEED:
        raise SettingsError(f"seed is {seed}, expected a whole number from 0 to {LARGEST_SEED}")
    return seed


def draw_seed() -> int:
    """A fresh seed from the operating system, small enough to type again."""
    return secrets.randbelow(2**31)


def derive_seed(seed: int, *keys: int) -> int:
    """Derive the seed of a separate stream: the same keys give the same seed, other keys an unrelated one."""
    return int(np.random.SeedSequence([abs(seed), *keys]).generate_state(1, np.uint32)[0])


def stream(seed: int, *keys: int) -> np.random.Generator:
    """Counter-based generator for the stream identified by `keys`."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), *keys])))
