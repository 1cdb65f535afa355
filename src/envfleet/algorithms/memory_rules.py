"""Settings of a recurrent memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["memory_notices"]


def memory_notices(settings: Any, names: Iterable[str]) -> list[str]:
    """Return a notice about given settings of a memory, `names`, that the policy does not have.

    All settings of a resumed run count as given, so those with their default are left out.
    """
    defaults = type(settings)
    given = [name for name in names if name in settings.given and getattr(settings, name) != getattr(defaults, name)]
    if settings.memory != "none" or not given:
        return []
    return [f"without memory, {' and '.join(given)} {'has' if len(given) == 1 else 'have'} no effect: add --memory gru"]
