"""Impossible requests end with a clear message and a hint, never with a traceback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from envfleet import cli
from tests.cli.conftest import SMALL, train


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))


# ---- impossible values ----


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_seed_that_is_too_large(algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", algorithm, *SMALL, "--seed", "99999999999999999999", "--output-dir", str(tmp_path / "run")]
    assert cli.main(command) == 2
    assert "--seed: got '99999999999999999999', expected a whole number" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_largest_seed_works(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--seed", str(2**63 - 1), "--steps", "64", "--eval-every", "0") == 0


@pytest.mark.parametrize(
    "command",
    [["check", "CartPole-v1"], ["demo"], ["bench", "demo"], ["evaluate", "RUN"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_seeds_of_other_commands(
    command: list[str], seed: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [str(trained) if word == "RUN" else word for word in command]
    assert cli.main([*named, "--seed", seed]) == 2
    assert f"error: seed is {seed}, expected a whole number from 0 to 9223372036854775807" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["ppo", "--hidden", "1000000", "1000000"],
        ["ppo", "--hidden", "1000000", "1000000", "--backend", "threads"],
        ["ppo", "--hidden", "8", "--memory", "lstm", "--memory-size", "1000000"],
        ["dqn", "--hidden", "1000000", "1000000"],
    ],
    ids=["ppo", "threads", "memory", "dqn"],
)
def test_networks_that_no_machine_can_hold(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before any memory is allocated."""
    assert cli.main(["train", command[0], *SMALL, *command[1:], "--output-dir", str(tmp_path / "run"), "--quiet"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and " weights, which take " in error
    assert " GiB of memory are available\nhint: use fewer units\n" in error
    assert not (tmp_path / "run").exists()


# ---- user-defined networks ----

NETWORKS = """
from torch import nn

class Seven(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layer = nn.Linear(7, 8)
    def forward(self, observation):
        return self.layer(observation)

class NoSpace(nn.Linear):
    def __init__(self):
        super().__init__(4, 8)

class Two(nn.Linear):
    def __init__(self, space):
        super().__init__(4, 8)
    def forward(self, observation, mask):
        return super().forward(observation)

class Rows(nn.Linear):
    def __init__(self, space):
        super().__init__(4, 8)
    def forward(self, observation):
        return super().forward(observation).flatten()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_networks.py").write_text(NETWORKS)
    (tmp_path / "own_mistake.py").write_text("import there_is_no_such_thing\n")
    yield tmp_path
    sys.modules.pop("own_networks", None)


@pytest.mark.parametrize("backend", ["sequential", "threads", "processes"])
def test_a_network_that_does_not_fit(own: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--network", "own_networks:Seven", "--backend", backend]
    assert train(own / "run", *flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: network 'own_networks:Seven' raised RuntimeError for 2 observations: mat1 and mat2")
    assert f'File "{own / "own_networks.py"}", line 9, in forward' in error
    assert "hint: its forward is called with a tensor (2, 4)" in error
    assert "Traceback" not in error
    assert not (own / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (["--network", "own_networks:NoSpace"], "raised TypeError while it was built", "Class(observation_space)"),
        (["--policy", "own_networks:Two"], "raised TypeError while it was built", "(observation_space, action_space)"),
        (["--network", "own_networks:Two"], "missing 1 required positional argument: 'mask'", "and nothing else"),
        (["--network", "own_networks:Rows"], "gave (16,) for 2 observations, expected features (2, n)", "flatten"),
        (["--network", "own_mistake:Net"], "module 'own_mistake' needs 'there_is_no_such_thing'", "install it"),
        (["--network", "nowhere:Net"], "there is no module 'nowhere'", "installed packages"),
    ],
)
def test_what_is_wrong_with_a_network(
    own: Path, flags: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(own / "run", *flags) == 2
    error = capsys.readouterr().err
    assert message in error and "hint: " in error and hint in error
    assert "Traceback" not in error


# ---- edited settings ----


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_envs", 8, "n_envs: 8, but the run was trained with 4"),
        ("env", "Pendulum-v1", "env: 'Pendulum-v1', but the run was trained with 'CartPole-v1'"),
        ("hidden", [16], "hidden: [16], but the run was trained with [64, 64]"),
        ("seed", 2, "seed: 2, but the run was trained with 1"),
    ],
)
def test_an_edited_run_is_not_resumed(
    run: Path, name: str, value: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**content, name: value}))
    assert cli.main(["resume", str(run), "--steps", "640"]) == 2
    error = capsys.readouterr().err
    assert f"config.yaml was changed, and a run cannot be resumed with other settings:\n  {message}\n" in error
    assert "hint: put them back" in error


def test_harmless_edits_are_taken(run: Path) -> None:
    content = yaml.safe_load((run / "config.yaml").read_text())
    changes = {"steps": 640, "backend": "threads", "output_dir": "elsewhere"}
    (run / "config.yaml").write_text(yaml.safe_dump({**content, **changes}))
    assert cli.main(["resume", str(run), "--quiet"]) == 0
    assert (run / "checkpoints" / "step-640").is_dir()
