"""The end of a run: what is said, what is kept, and which weights count afterwards."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from envfleet.algorithms.settings import PPO
from envfleet.errors import EnvError, SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.listing import runs_in
from envfleet.runs.run import Run
from envfleet.training import loop, resume
from envfleet.training.assembly import DEFAULT_STEPS, resolve
from envfleet.training.summary import next_command
from tests.rollout.envs import Counter
from tests.training.running import StopAfter, run, small, weights

UPDATE = 12 * 32  # steps


class Raises(Counter):
    """Raises in its 50th step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 50:
            raise ValueError("it broke")
        return super().step(action)


def test_no_budget_means_the_default(tmp_path: Path) -> None:
    resolved = resolve(small(tmp_path, steps=None))
    resolved.stage.close()
    assert resolved.settings.steps == DEFAULT_STEPS


def test_an_extended_run_that_was_stopped_counts_with_its_last_weights(tmp_path: Path) -> None:
    """Its old `final` checkpoint is kept, but is no longer the default."""
    folder = tmp_path / "run"
    run(folder, steps=UPDATE)
    assert Run.load(folder).checkpoint().step == UPDATE
    resume(folder, quiet=True, steps=10 * UPDATE, callbacks=[StopAfter(1)])
    assert Checkpoints(folder / "checkpoints").step_of("final") == UPDATE
    assert Run.load(folder).checkpoint().step == 2 * UPDATE
    assert [each.state for each in runs_in(tmp_path)] == ["stopped"]


def test_weights_that_do_not_fit_are_refused_with_a_sentence(tmp_path: Path) -> None:
    """The environment or the network was edited after the run was saved."""
    folder = tmp_path / "run"
    run(folder, callbacks=[StopAfter(1)])
    for name in ("config.yaml", "manifest.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("CartPole-v1", "Acrobot-v1"))
    with pytest.raises(SettingsError, match="the weights of the checkpoint do not fit"):
        resume(folder, quiet=True)


def test_time_that_is_over_before_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random play or demonstrations may take all of it."""
    monkeypatch.setattr(loop.Progress, "_shares", lambda self, steps=None: {"duration": 1.0})
    with pytest.raises(SettingsError, match="were over before the first update"):
        run(tmp_path / "run", steps=None, duration=1.0)
    assert not (tmp_path / "run").exists()


def test_a_stop_before_the_first_update_saves_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "demonstrate", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert "stopped before the first update; nothing is saved" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_environment_that_raises_leaves_the_command_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EnvError, match="it broke"):
        run(tmp_path / "run", env=Raises, checkpoint_every=1)
    assert f"the last checkpoint is at step {UPDATE}; resume with: envfleet" in capsys.readouterr().err


def test_the_command_to_resume_on_a_cluster_has_what_a_run_does_not_record() -> None:
    settings = PPO(env="CartPole-v1", backend="ray", address="auto", runtime_env="my env.yaml")
    command = next_command("resume", Path("run"), settings)
    assert command == "envfleet resume run --address auto --runtime-env 'my env.yaml'"
    assert next_command("evaluate", Path("run"), settings) == "envfleet evaluate run"


@pytest.mark.parametrize("spent", [{"steps": UPDATE}, {"steps": None, "num_episodes": 1}])
def test_a_spent_run_names_the_budget_to_raise(
    tmp_path: Path, spent: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", **spent)
    resume(tmp_path / "run", quiet=False)
    flag = "--num-episodes" if "num_episodes" in spent else "--steps"
    assert f"its budget is spent at step {UPDATE}: {flag} gives it more" in " ".join(capsys.readouterr().err.split())


def test_a_run_killed_in_its_first_checkpoint_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of a replay buffer are written first."""

    def killed(checkpoints: Checkpoints, *_: Any) -> None:
        (checkpoints.folder / "pieces").mkdir()
        raise KeyboardInterrupt

    run(tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoints, "save", killed)
        run(tmp_path / "killed")
    assert (tmp_path / "killed" / "checkpoints" / "pieces").is_dir()
    resume(tmp_path / "killed", quiet=True)
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_filming_does_not_count_as_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asides = []
    aside = loop.Progress.aside
    monkeypatch.setattr(loop.Progress, "aside", lambda self: asides.append("aside") or aside(self))
    monkeypatch.setattr(loop, "refuse_unfilmable", lambda resolved: None)
    filmed: list[int] = []

    def film(self: Any, policy: Any, steps: int, stopped: Any) -> bool:
        filmed.append(len(asides))
        return True

    monkeypatch.setattr(loop.Reporter, "film", film)
    run(tmp_path / "run", video_every=UPDATE, checkpoint_every=10**9, checkpoint_minutes=1e9)
    assert filmed == [1, 2, 3]
