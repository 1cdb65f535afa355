"""Tests run torch with one thread."""

from tests.torch_threads import one_thread

__all__ = ["one_thread"]
