"""Fixtures of the tests on clusters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.training import train_in


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the digest of the weights that one machine gives, by world and schedule."""
    known: dict[tuple[str, str], str] = {}

    def look_up(world: str, schedule: str) -> str:
        if (world, schedule) not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            known[world, schedule] = train_in(folder, world, schedule=schedule, backend="processes", workers=2)
        return known[world, schedule]

    return look_up
