"""Process-wide settings that a training changes and restores.

Torch computes with one thread in each learner thread, in workers and in acting, and large freed memory blocks are kept
for reuse. Both affect the whole process. Several trainings may run in one process, in threads of the caller: the first
changes the settings and the last restores them.
"""

from __future__ import annotations

import threading

from envfleet.machine import keep_freed_memory, return_freed_memory

__all__ = ["TunedProcess"]

_lock = threading.Lock()
_tuned: list[TunedProcess] = []
_threads_before = 1


class TunedProcess:
    """Process settings for training, until `release`."""

    def __init__(self) -> None:
        global _threads_before  # noqa: PLW0603  # the setting belongs to the process
        import torch

        with _lock:
            if not _tuned:
                _threads_before = torch.get_num_threads()
                keep_freed_memory()
            torch.set_num_threads(1)
            _tuned.append(self)

    def release(self) -> None:
        """Restore the settings, unless another training is running. A second call does nothing."""
        import torch

        with _lock:
            if self not in _tuned:
                return
            _tuned.remove(self)
            if not _tuned:
                torch.set_num_threads(_threads_before)
                return_freed_memory()
