"""What a training changes in the process that calls it, and how that is put back.

Each thread of a learner computes with one thread of torch, as do workers and whoever acts, and large memory that is
freed is kept. Both hold for a whole process. Trainings may overlap in one, in threads of the caller: the first one
changes it and the last one puts it back.
"""

from __future__ import annotations

import threading

from envfleet.machine import keep_freed_memory, return_freed_memory

__all__ = ["TunedProcess"]

_lock = threading.Lock()
_tuned: list[TunedProcess] = []
_threads_before = 1


class TunedProcess:
    """The process as a training needs it, until `release`."""

    def __init__(self) -> None:
        global _threads_before  # noqa: PLW0603  # it is the process that has one
        import torch

        with _lock:
            if not _tuned:
                _threads_before = torch.get_num_threads()
                keep_freed_memory()
            torch.set_num_threads(1)
            _tuned.append(self)

    def release(self) -> None:
        """Puts everything back, unless another training is under way; a second call does nothing."""
        import torch

        with _lock:
            if self not in _tuned:
                return
            _tuned.remove(self)
            if not _tuned:
                torch.set_num_threads(_threads_before)
                return_freed_memory()
