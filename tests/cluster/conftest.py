"""Fixtures of the tests on clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.namespaces import NamespaceCluster
from tests.cluster.training import train_in


@pytest.fixture
def fresh() -> Iterator[NamespaceCluster]:
    """Yield a cluster that the test may break: two nodes with two CPUs each."""
    with NamespaceCluster(2, cpus=2) as made:
        yield made


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
