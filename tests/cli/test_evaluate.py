"""`envfleet evaluate`: output for people and for programs, videos, refused requests."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envfleet import cli
from envfleet.cli.evaluate import _trial_lines
from envfleet.runs import progress_lines
from envfleet.runs.adaptation import Adaptation
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.evaluation import evaluation_seeds
from tests.cli.conftest import train

SHOWN = """
import gymnasium, numpy as np

class Shown(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.zeros(2, np.float32), 1.0, self.taken == 5, False, {}

    def render(self):
        return np.full((16, 16, 3), 10 * self.taken, np.uint8)

class Windowed(Shown):
    metadata = {"render_modes": ["human"], "render_fps": 10}
    drawn = []  # (the mode, the step) of every call of render

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed)
        self._draw()
        return result

    def step(self, action):
        result = super().step(action)
        self._draw()
        return result

    def _draw(self):
        if self.render_mode == "human":
            self.render()

    def render(self):
        self.drawn.append((self.render_mode, self.taken))

class Hidden(Shown):
    metadata = {"render_modes": []}

    def __init__(self):
        pass
"""


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["evaluate", *arguments, "--json"]) == 0
    output = capsys.readouterr()
    assert output.out.count("\n") == 1  # one object and nothing else
    result: dict[str, Any] = json.loads(output.out)
    return result


def test_one_json_object(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluated(capsys, str(trained), "--episodes", "4")
    assert result["episodes"] == len(result["returns"]) == len(result["lengths"]) == 4
    assert result["mean_reward"] == pytest.approx(sum(result["returns"]) / 4)
    assert result["std_reward"] >= 0
    low, high = result["confidence_interval"]
    assert low <= result["mean_reward"] <= high
    assert (result["checkpoint"], result["step"], result["seeds"], result["env"]) == ("final", 512, [1], "CartPole-v1")
    assert evaluated(capsys, str(trained), "--episodes", "4") == result  # repeatable


def test_several_seeds(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluated(capsys, str(trained), "--episodes", "3", "--seed", "1", "7")
    assert (result["episodes"], result["seeds"]) == (6, [1, 7])
    first, second = (evaluated(capsys, str(trained), "--episodes", "3", "--seed", seed) for seed in "17")
    assert result["returns"] == first["returns"] + second["returns"]
    assert result["mean_reward_per_seed"] == [first["mean_reward"], second["mean_reward"]]


def test_sampled_actions_are_others(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = evaluated(capsys, str(trained), "--episodes", "4")
    sampled = evaluated(capsys, str(trained), "--episodes", "4", "--sampled")
    assert (best["deterministic"], sampled["deterministic"]) == (True, False)
    assert best["returns"] != sampled["returns"]
    assert evaluated(capsys, str(trained), "--episodes", "4", "--sampled") == sampled


def test_a_run_that_samples_in_its_evaluations_is_evaluated_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--eval-sampled") == 0
    assert evaluated(capsys, str(tmp_path / "run"), "--episodes", "2")["deterministic"] is False
    assert evaluated(capsys, str(tmp_path / "run"), "--episodes", "2", "--best-actions")["deterministic"] is True


def test_any_checkpoint(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = Checkpoints(trained / "checkpoints").steps()
    assert len(steps) > 1
    first = evaluated(capsys, str(trained), "--episodes", "2", "--checkpoint", f"step-{steps[0]}")
    assert (first["checkpoint"], first["step"]) == (f"step-{steps[0]}", steps[0])
    best = evaluated(capsys, str(trained), "--episodes", "2", "--checkpoint", "best")
    assert best["step"] == Checkpoints(trained / "checkpoints").step_of("best")
    assert cli.main(["evaluate", str(trained), "--checkpoint", "step-3"]) == 1
    assert "hint: there are: last, best, final, step-" in capsys.readouterr().err


def test_seeds_are_not_those_of_training() -> None:
    """Evaluation seeds never include the seeds of the training environments."""
    first = evaluation_seeds(7, 3)
    assert evaluation_seeds(7, 3, training_seed=5) == first
    assert first[0] not in evaluation_seeds(7, 3, training_seed=first[0] - 10)


def test_for_people(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), "--episodes", "3", "--seed", "1", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"CartPole-v1: final of {trained} (step 512), best actions"
    assert lines[1].startswith("  return  ")
    assert lines[1].endswith(" over 6 episodes")
    assert lines[2].startswith("  95 %    the mean lies between ")
    assert lines[5].startswith("  seeds   1: ")


def test_one_trial_is_not_several() -> None:
    for trials, words in ((1, "1 trial"), (2, "2 trials")):
        result: Any = SimpleNamespace(
            episodes=trials, mean_length=3.0, lost=0, cut=0, success_rate=None, infos={}, seeds=(1,)
        )
        adaptation = Adaptation.of([(1.0, 2.0)] * trials)
        assert adaptation is not None
        assert _trial_lines(result, adaptation, 2)[0] == f"  return of {words}, 3.0 steps each"


def test_a_slow_evaluation_shows_its_progress(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["evaluate", str(trained), "--episodes", "2", "--seed", "1", "2"]
    monkeypatch.setattr(progress_lines, "time", SimpleNamespace(monotonic=lambda: 0.0))
    assert cli.main(command) == 0
    quick = capsys.readouterr()
    assert quick.err == ""
    seconds = itertools.count(step=2)  # each episode takes two seconds
    monkeypatch.setattr(progress_lines, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    assert cli.main(command) == 0
    slow = capsys.readouterr()
    assert (slow.out, slow.err) == (quick.out, "evaluating: 2 of 4 episodes\n")


# ---- the environment's process and its output ----


def test_the_environment_is_built_in_workers_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "pids"
    flags = ["--env", "tests.training.envs:Built", "--env-kwargs", f"log={log}", "--eval-every", "0"]
    assert train(tmp_path / "run", *flags, "--backend", "processes", "--workers", "1") == 0
    log.unlink()
    assert cli.main(["evaluate", str(tmp_path / "run"), "--trust", "--episodes", "1"]) == 0
    built_in = log.read_text().split()
    assert built_in and str(os.getpid()) not in built_in


def test_a_comparison_that_fails_does_not_cost_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--env", "tests.training.envs:ComparesBadly", "--eval-every", "0") == 0
    command = ["evaluate", str(tmp_path / "run"), "--trust", "--episodes", "2"]
    with pytest.raises(RuntimeError, match="no baseline"):
        cli.main(command)
    assert "  return  3.00 ± 0.00 over 2 episodes" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="no baseline"):
        cli.main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["returns"] == [3.0, 3.0]
    assert evaluated(capsys, *command[1:], "--no-comparison")["returns"] == [3.0, 3.0]


def test_json_stays_one_object_if_the_environment_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "tests.training.envs:Printing", "--eval-every", "0"]
    assert train(tmp_path / "here", *flags) == 0
    assert evaluated(capsys, str(tmp_path / "here"), "--trust", "--episodes", "1")["returns"] == [3.0]
    assert train(tmp_path / "worker", *flags, "--backend", "processes", "--workers", "1") == 0
    done = subprocess.run(
        [sys.executable, "-m", "envfleet", "evaluate", "worker", "--trust", "--episodes", "1", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["returns"] == [3.0]
    assert (done.stderr.count("a reset\n"), done.stderr.count("a step\n")) == (1, 3)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shown_env.py").write_text(SHOWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert train(tmp_path / "run", "--env", "shown_env:Shown", "--eval-every", "0") == 0
    return tmp_path / "run"


def test_a_video(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    video = shown.parent / "out.gif"
    assert cli.main(["evaluate", str(shown), "--trust", "--episodes", "2", "--video", str(video)]) == 0
    assert f"video: {video}" in capsys.readouterr().out
    with Image.open(video) as pictures:
        assert pictures.n_frames == 2 * 6  # the reset and five steps, twice
        assert pictures.info["duration"] == 100  # ms: the environment runs at 10 frames per second
    assert cli.main(["evaluate", str(shown), "--trust", "--video", str(video)]) == 0
    assert " over 1 episode\n" in capsys.readouterr().out


def test_an_environment_that_cannot_show_itself(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shown / "config.yaml"
    config.write_text(config.read_text().replace("shown_env:Shown", "shown_env:Hidden"))
    assert cli.main(["evaluate", str(shown), "--trust", "--video", "out.gif"]) == 2
    error = capsys.readouterr().err
    assert 'error: --video needs an environment with render_mode="rgb_array", but it takes no render_mode' in error
    assert not (shown.parent / "out.gif").exists()


def test_a_window(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in Gymnasium, an environment in human mode draws at each reset and step; nobody calls `render`."""
    config = shown / "config.yaml"
    config.write_text(config.read_text().replace("shown_env:Shown", "shown_env:Windowed"))
    drawn = sys.modules["shown_env"].Windowed.drawn
    drawn.clear()
    assert cli.main(["evaluate", str(shown), "--trust", "--episodes", "2"]) == 0
    assert drawn == []
    unseen = capsys.readouterr().out
    assert cli.main(["evaluate", str(shown), "--trust", "--episodes", "2", "--render"]) == 0
    assert drawn == [("human", step) for _ in range(2) for step in range(6)]
    assert capsys.readouterr().out == unseen  # rendering changes no result


def test_a_window_that_the_environment_does_not_have(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shown / "config.yaml"
    config.write_text(config.read_text().replace("shown_env:Shown", "shown_env:Hidden"))
    assert cli.main(["evaluate", str(shown), "--trust", "--render"]) == 2
    assert 'error: --render needs an environment with render_mode="human"' in capsys.readouterr().err


def test_a_window_and_a_video(shown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shown / "config.yaml"
    config.write_text(config.read_text().replace("shown_env:Shown", "CartPole-v1"))
    assert cli.main(["evaluate", str(shown), "--render", "--video", "out.gif"]) == 2
    assert "--video and --render were both asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--video", "out.mov"], "expected a name that ends in .mp4 or .gif"),
        (["--episodes", "0"], "got 0 episodes, expected at least 1"),
        (["--sampled", "--best-actions"], "--sampled and --best-actions were both asked for"),
        (["--search", "0"], "--search is 0, expected at least 1"),
        (["--search", "4", "--sampled"], "--search and --sampled were both asked for"),
        (["--search", "4"], "a search was asked for, and CartPole-v1 cannot simulate actions"),
    ],
)
def test_what_cannot_work(trained: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_damaged_checkpoint(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))
    weights = copy / "checkpoints" / "final" / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert cli.main(["evaluate", str(copy)]) == 1
    error = capsys.readouterr().err
    assert "is damaged: policy.safetensors changed" in error
    assert "Traceback" not in error
