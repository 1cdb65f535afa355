"""What the tests of examinations have in common."""

from __future__ import annotations

import pytest

from envfleet.conformance import isolation


@pytest.fixture(autouse=True)
def no_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring a state takes two processes each time; test_exactness.py has the tests of it."""
    monkeypatch.setattr(isolation, "why_inexact", lambda *_, **__: None)
