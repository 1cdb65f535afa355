"""An algorithm outside the package, the one of docs/own-algorithm.md, is trained, killed, resumed and evaluated."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet import cli
from envfleet.errors import SettingsError
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.evaluating import evaluate_run
from tests.test_docs import ROOT, write_files
from tests.training.chained_kills import kill_until_done
from tests.training.running import weights

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 8,
    "rollout_steps": 64,
    "steps": 8 * 64 * 12,
    "seed": 3,
    "backend": "sequential",
    "checkpoint_every": 1,
    "eval_every": 0,
    "quiet": True,
}


@pytest.fixture
def cem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the page, importable as a user's own."""
    folder = tmp_path / "own"
    folder.mkdir()
    write_files(ROOT / "docs" / "own-algorithm.md", folder)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("cem")
    del sys.modules["cem"]


@pytest.mark.slow
def test_it_is_killed_and_resumes_to_the_same_weights(cem: Any, tmp_path: Path) -> None:
    train(cem.CEM(**SMALL, output_dir=str(tmp_path / "whole")))
    broken = tmp_path / "broken"
    kills = kill_until_done(
        broken,
        lambda: train(cem.CEM(**SMALL, output_dir=str(broken))),
        lambda: resume(broken, trust=True, quiet=True),
        kills=3,
        seed=1,
    )
    assert kills == 3
    assert weights(broken) == weights(tmp_path / "whole")


@pytest.mark.slow
def test_its_weights_are_the_same_everywhere(cem: Any, tmp_path: Path) -> None:
    ways = [
        {"backend": "sequential", "acting": "worker"},
        {"backend": "processes", "workers": 2, "acting": "worker"},
        {"backend": "threads", "workers": 2, "acting": "central"},
    ]
    for number, way in enumerate(ways):
        train(cem.CEM(**{**SMALL, **way, "checkpoint_every": None}, output_dir=str(tmp_path / str(number))))
    assert len({weights(tmp_path / str(number)) for number in range(len(ways))}) == 1


@pytest.mark.slow
def test_it_learns(cem: Any, tmp_path: Path) -> None:
    """CartPole, seed 1, 40,000 steps: a mean return of at least 400 over 10 episodes (random: 22)."""
    path = tmp_path / "run"
    train(
        cem.CEM(
            env="CartPole-v1",
            steps=40_000,
            seed=1,
            backend="sequential",
            eval_every=0,
            quiet=True,
            output_dir=str(path),
        )
    )
    assert evaluate_run(path, episodes=10).mean_reward >= 400


def test_a_run_is_resumed_only_if_it_is_trusted_or_given_the_class(cem: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(cem.CEM(**{**SMALL, "steps": 512}, output_dir=str(path)))
    assert Run.load(path).settings["algorithm"] == "cem:CEM"
    with pytest.raises(SettingsError, match=r"code that is not part of Envfleet: cem:CEM.*\n.*--trust"):
        resume(path, steps=1024, quiet=True)
    for step, trusted in ((1024, {"trust": True}), (1536, {"algorithm": cem.CEM})):
        resume(path, steps=step, quiet=True, **trusted)
        assert Run.load(path).summary.steps == step


def test_its_policy_plays_without_its_code(cem: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(cem.CEM(**{**SMALL, "steps": 512}, output_dir=str(path)))
    assert evaluate_run(path, episodes=2).episodes == 2
    assert Run.load(path).policy.act(np.zeros(4, np.float32)) in (0, 1)


def test_a_package_names_it_by_an_entry_point(
    cem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = tmp_path / "own" / "own_algorithms-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: own-algorithms\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[envfleet.algorithms]\ncem = cem:CEM\n")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items() if name not in ("steps", "quiet")]
    path = tmp_path / "run"
    assert cli.main(["train", "cem", *flags, "--steps=512", "--elite=0.5", f"--output-dir={path}", "--quiet"]) == 0
    assert Run.load(path).settings["elite"] == 0.5
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    assert "cem:CEM" in capsys.readouterr().out
    assert cli.main(["train", "cme"]) != 0
    assert "did you mean `envfleet train cem`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cem:CEMLearner", "expected a subclass of TrainingSettings"),
        ("cem:Missing", "has no 'Missing'"),
        ("no_such_module:CEM", "there is no module 'no_such_module'"),
    ],
)
def test_names_that_are_no_algorithm(cem: Any, name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", name, "--env", "CartPole-v1"]) != 0
    assert words in capsys.readouterr().err


def test_a_settings_class_that_does_not_keep_the_contract_is_refused(cem: Any) -> None:
    class Nameless(cem.CEM):  # type: ignore[name-defined, misc]  # made at run time
        algorithm = ""

    with pytest.raises(SettingsError, match="has no name"):
        train(Nameless(env="CartPole-v1"))


def test_the_public_names_are_those_of_the_page() -> None:
    assert envfleet.algorithms.__all__ == ["Learner", "TrainingSettings"]
