"""PPO learns with its presets alone: each case states its seed, its step budget and the score to reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import PPO
from envfleet.training import train
from envfleet.training.evaluating import evaluate_run
from tests.training.worlds import STEPS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HERE = "tests.training.worlds"


@dataclass(frozen=True)
class Case:
    """A training run: its settings (the preset chooses the rest) and the score that its policy must reach."""

    env: str
    seed: int
    steps: int
    score: float
    memory: str = "none"
    episodes: int = 100

    def __str__(self) -> str:
        parts = [self.env.rpartition(":")[2], *([] if self.memory == "none" else [self.memory]), self.seed, self.steps]
        return "-".join(map(str, parts))

    def play(self, folder: Path) -> float:
        """Train, then return the mean return of deterministic evaluation episodes."""
        given: dict[str, Any] = {"env": self.env, "seed": self.seed, "steps": self.steps, "memory": self.memory}
        train(PPO(**given, backend="sequential", eval_every=0, quiet=True, output_dir=str(folder)))
        return evaluate_run(folder, episodes=self.episodes, trust=True).mean_reward


CASES = [
    Case("CartPole-v1", 1, 20_000, 150.0, episodes=20),  # halfway; random play gets 22
    # Continuous actions: random play gets 4, the best constant action 5.5, and 10 is perfect.
    Case(f"{HERE}:Aim", 1, 10_000, 7.5),
    Case(f"{HERE}:Masked", 1, 10_000, 0.95 * STEPS),
    Case(f"{HERE}:Nested", 1, 25_000, 0.95 * STEPS),
    # Uses the image preset and its convolutions. A perfect score is 4; random play gets 1.
    Case("tests.training.picture_worlds:Quarters", 1, 8_000, 2.5),
    Case(f"{HERE}:RememberCue", 1, 40_000, 0.95, "gru"),
]
FOR_THE_PROOF = [
    *(Case("CartPole-v1", seed, 100_000, 475.0) for seed in range(1, 6)),  # with 50,000, it depends on rounding
    Case("tests.training.picture_worlds:Quarters", 1, 20_000, 3.6),
    Case("Acrobot-v1", 1, 60_000, -100.0),
    Case("Pendulum-v1", 1, 100_000, -300.0),
    Case(f"{HERE}:RememberCue", 1, 60_000, 0.95, "lstm"),
]


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.proof) for case in FOR_THE_PROOF)], ids=str
)
def test_a_preset_reaches_the_score(case: Case, tmp_path: Path) -> None:
    assert case.play(tmp_path / "run") >= case.score


@pytest.mark.proof
def test_without_memory_a_cue_is_forgotten(tmp_path: Path) -> None:
    """Without memory, no policy can beat always giving the same answer."""
    case = Case(f"{HERE}:RememberCue", 1, 40_000, 0.5)
    assert case.play(tmp_path / "run") == pytest.approx(case.score, abs=0.15)
