"""Messages between hosts and the caller: small ones as bytes, large ones as they are."""

from __future__ import annotations

import numpy as np
import pytest

from envfleet.fleet.backends.packing import SMALL_BYTES, pack, unpack


@pytest.mark.parametrize("size", [0, 100, SMALL_BYTES])
def test_small_messages_are_bytes(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    packed = pack((3, None, array), array.nbytes)
    assert isinstance(packed, bytes)
    number, nothing, received = unpack(packed)
    assert (number, nothing) == (3, None) and np.array_equal(received, array)


def test_large_messages_are_not_copied() -> None:
    message = 3, np.zeros(SMALL_BYTES + 1, np.uint8)
    assert pack(message, message[1].nbytes) is message
    assert unpack(message) is message
