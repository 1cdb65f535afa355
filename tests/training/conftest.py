"""Tests run torch with one thread, and may skip the trial of an exact resume."""

from __future__ import annotations

import pytest

from envfleet.training import exactness
from tests.torch_threads import one_thread

__all__ = ["no_trial", "one_thread"]


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the trial that a saved environment continues exactly: it starts processes, which takes seconds."""
    monkeypatch.setattr(exactness, "why_inexact", lambda *args, **kwargs: None)
