"""Values as messages quote them."""

from __future__ import annotations

from typing import Any

__all__ = ["one_line", "shown"]


def shown(value: Any) -> str:
    """The repr of a value on one line, shortened if long."""
    return one_line(repr(value))


def one_line(text: str) -> str:
    """The text on one line, cut at 80 characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 80 else f"{joined[:77]}..."
