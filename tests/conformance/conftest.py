"""Fixtures for the conformance tests."""

from __future__ import annotations

import pytest

from envfleet.conformance import isolation


@pytest.fixture(autouse=True)
def no_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip restoring a state, which takes two processes each time; test_exactness.py tests it."""
    monkeypatch.setattr(isolation, "why_inexact", lambda *_, **__: None)
