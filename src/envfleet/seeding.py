"""Seeds: a run has one integer seed, and every random stream is derived from it by integer keys."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from envfleet.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np  # the functions import it: the settings need only LARGEST_SEED, and --help should be fast

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
    import numpy as np

    return int(np.random.SeedSequence([abs(seed), *keys]).generate_state(1, np.uint32)[0])


def stream(seed: int, *keys: int) -> np.random.Generator:
    """Counter-based generator for the stream identified by `keys`."""
    import numpy as np

    return np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), *keys])))
