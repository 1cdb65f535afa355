"""A cache that keeps one copy of a landscape per process, shared by all environments and threads."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ParamSpec

from envfleet.environments.wildfire.landscape import Landscape

__all__ = ["MOST_SHARED", "one_copy"]

MOST_SHARED = 128  # most recently used landscapes

P = ParamSpec("P")


def one_copy(make: Callable[P, Landscape]) -> Callable[P, Landscape]:
    """Cache the results of `make` for hashable arguments.

    Unlike with `functools.lru_cache`, concurrent calls with the same arguments all return the same object. The threads
    build it in parallel and the first result wins, so that no thread waits for another's landscape.
    """
    kept: OrderedDict[Hashable, Landscape] = OrderedDict()
    lock = threading.Lock()

    @functools.wraps(make)
    def shared(*args: P.args, **kwargs: P.kwargs) -> Landscape:
        key = args, *sorted(kwargs.items())
        with lock:
            found = kept.get(key)
            if found is not None:
                kept.move_to_end(key)
                return found
        made = make(*args, **kwargs)
        with lock:
            found = kept.setdefault(key, made)
            kept.move_to_end(key)
            if len(kept) > MOST_SHARED:
                kept.popitem(last=False)
        return found

    return shared
