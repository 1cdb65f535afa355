"""Small messages between hosts and the caller, packed as bytes.

Ray sends bytes as they are. Other values go through its own serialisation. That takes about a millisecond for a call
with commands and weights, whatever their size, so it is a large part of a small rollout. For large arrays Ray's way is
better: it makes fewer copies.
"""

from __future__ import annotations

import pickle
from typing import Any

__all__ = ["SMALL_BYTES", "pack", "unpack"]

SMALL_BYTES = 256 * 2**10


def pack(message: Any, array_bytes: int) -> Any:
    """Return the message, as bytes if its arrays are small."""
    return pickle.dumps(message, protocol=5) if array_bytes <= SMALL_BYTES else message


def unpack(received: Any) -> Any:
    """Return the message that was given to `pack`."""
    return pickle.loads(received) if isinstance(received, bytes) else received
