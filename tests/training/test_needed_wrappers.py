"""An algorithm names the wrappers that it needs; the run applies and keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.algorithms.settings import PPO
from envfleet.environments.meta import History
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.assembly import resolve
from envfleet.training.evaluating import evaluate_run
from tests.training.running import weights
from tests.training.test_rates import StopsAfter

SMALL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "n_envs": 4,
    "rollout_steps": 16,
    "steps": 256,
    "memory": "gru",
    "memory_size": 8,
    "hidden": (8,),
    "sequence_length": 8,
    "minibatch_size": 32,
    "seed": 1,
    "backend": "sequential",
    "eval_every": 0,
    "checkpoint_every": 64,
}


@dataclass(frozen=True, kw_only=True)
class Remembers(PPO):
    """An algorithm with a memory that wants to see the previous action and reward."""

    def needed_wrappers(self, env: EnvFacts) -> dict[str, str]:
        return {} if env.history else {"history": "the memory sees the previous action and reward"}


def test_a_run_gets_the_wrapper_that_its_algorithm_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(Remembers(**SMALL, output_dir=tmp_path / "whole"))
    said = " ".join(capsys.readouterr().err.split())
    assert "notice: the wrapper history was added: the memory sees the previous action and reward" in said
    train(Remembers(**SMALL, output_dir=tmp_path / "run"), callbacks=[StopsAfter(2)])
    loaded = Run.load(tmp_path / "run")
    assert loaded.settings["wrappers"] == ["history"]
    capsys.readouterr()
    resume(tmp_path / "run", trust=True)
    assert "was added" not in capsys.readouterr().err
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert evaluate_run(tmp_path / "run", episodes=1, trust=True).lengths == (200,)
    env = History(gymnasium.make("Pendulum-v1"))
    assert env.action_space.contains(loaded.policy.act(env.reset(seed=0)[0]))


def test_a_trial_needs_no_wrapper() -> None:
    resolved = resolve(Remembers(**{**SMALL, "env": "envfleet/Wind-v0"}))
    resolved.stage.close()
    assert resolved.settings.wrappers == () and resolved.notices == ()
