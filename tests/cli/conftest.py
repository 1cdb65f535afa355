"""Small runs for the tests of commands, trained once in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from envfleet import cli

SMALL = ["--env", "CartPole-v1", "--seed", "1", "--backend", "sequential", "--n-envs", "4", "--steps", "512"]


def train(folder: Path, *flags: str) -> int:
    """Run `envfleet train ppo` for a few updates; return the exit code."""
    return cli.main(["train", "ppo", *SMALL, "--output-dir", str(folder), "--quiet", *flags])


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that no test may change."""
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    assert train(folder) == 0
    return folder
