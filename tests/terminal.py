"""Reads what a command draws on a terminal of its own."""

from __future__ import annotations

import os

__all__ = ["all_of"]


def all_of(descriptor: int) -> str:
    """Return everything that is written until the other side of the terminal is closed; closes this side."""
    written = b""
    try:
        while piece := os.read(descriptor, 65536):
            written += piece
    except OSError:  # Linux reports the closed other side this way
        pass
    os.close(descriptor)
    return written.decode()
