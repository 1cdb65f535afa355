"""Settings that resume accepts and refuses, damaged checkpoints, and simulators that cannot be saved."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import CheckpointError, SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.training import resume
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.evaluating import evaluate_run
from tests.training.envs import Goal, Stateless
from tests.training.running import SMALL, StopAfter, run, weights

ROLLOUT = SMALL["n_envs"] * SMALL["rollout_steps"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder)
    return weights(folder)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run stopped after two of its three updates, with a checkpoint after each."""
    run(tmp_path / "run", [StopAfter(2)], checkpoint_every=1)
    return tmp_path / "run"


def test_it_goes_on_to_the_same_bytes(stopped: Path, whole: bytes) -> None:
    assert Checkpoints(stopped / "checkpoints").step_of("final") is None
    resume(stopped, quiet=True)
    assert weights(stopped) == whole


@pytest.mark.parametrize(
    "changes",
    [
        {"backend": "threads", "workers": 3},
        {"backend": "processes", "workers": 1},
        {"checkpoint_every": 10**6, "eval_every": 100, "eval_episodes": 1, "keep_checkpoints": 1},
    ],
    ids=["threads", "processes", "checkpoints"],
)
def test_under_other_harmless_settings_too(stopped: Path, whole: bytes, changes: dict[str, Any]) -> None:
    resume(stopped, quiet=True, **changes)
    assert weights(stopped) == whole


def test_with_more_steps_it_is_the_run_that_had_them_from_the_start(tmp_path: Path) -> None:
    constant = {"learning_rate_schedule": "constant", "clip_range_schedule": "constant"}  # others depend on the budget
    run(tmp_path / "long", steps=5 * ROLLOUT, **constant)
    run(tmp_path / "short", **constant)
    resume(tmp_path / "short", steps=5 * ROLLOUT, quiet=True)
    assert weights(tmp_path / "short") == weights(tmp_path / "long")


@pytest.mark.parametrize("name", ["n_envs", "gamma", "seed", "schedule", "env", "memory", "learner_threads", "lam"])
def test_what_would_make_another_run_of_it_is_refused(stopped: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"another {name}") as refusal:
        resume(stopped, **{name: 1})
    assert "init-from" in str(refusal.value)


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    run(tmp_path / "run")
    before = weights(tmp_path / "run")
    resume(tmp_path / "run", quiet=True)
    assert weights(tmp_path / "run") == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_where_the_newest_checkpoint_is_damaged_the_one_before_is_used(
    stopped: Path, whole: bytes, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = stopped / "checkpoints" / f"step-{2 * ROLLOUT}" / "state.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:-100])
    else:
        file.unlink()
    with caplog.at_level(logging.WARNING, "envfleet"):
        resume(stopped, quiet=True)
    assert "the checkpoint before it is used" in caplog.text
    assert weights(stopped) == whole


def test_a_run_without_any_sound_checkpoint_is_not_guessed(stopped: Path) -> None:
    for folder in stopped.glob("checkpoints/step-*"):
        (folder / "digest.json").unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="no sound checkpoint"):
            resume(stopped, quiet=True)
    assert len(list(stopped.glob("checkpoints/damaged-step-*"))) == 2


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(
    stopped: Path, whole: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "checkpoints" / ".writing-step-384-999999").mkdir(parents=True)
    with caplog.at_level(logging.WARNING, "envfleet"):
        resume(stopped, quiet=True)
    assert "begins again" in caplog.text
    assert weights(stopped) == whole


def test_beginning_again_keeps_to_the_checkpoint_folder_that_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run(tmp_path / "run", checkpoint_dir="kept")
    shutil.rmtree(tmp_path / "here" / "kept")
    monkeypatch.chdir(tmp_path / "there")
    resume(tmp_path / "run", quiet=True)
    assert (tmp_path / "here" / "kept" / "final").is_dir()
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_simulators_that_cannot_be_saved_start_fresh_with_a_word(
    tmp_path: Path, acting: str, schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"env": Stateless, "acting": acting, "schedule": schedule, "memory": "gru"}
    run(tmp_path / "run", [StopAfter(1)], **options)
    capsys.readouterr()
    done = resume(tmp_path / "run", trust=True)
    said = capsys.readouterr()
    assert "start fresh episodes" in said.out + said.err
    assert "secret" in said.out + said.err  # names the attribute
    assert done.metrics[-1]["step"] == 3 * ROLLOUT
    assert weights(tmp_path / "run")


def test_arguments_of_the_environment_are_the_same_in_training_evaluation_and_resume(tmp_path: Path) -> None:
    goals: list[set[Any]] = []
    for play in (
        lambda: run(tmp_path / "run", [StopAfter(1)], env=Goal, env_kwargs={"goal": [1, (2.5, "a"), {"b": [None]}]}),
        lambda: evaluate_run(tmp_path / "run", episodes=1, env=Goal),
        lambda: resume(tmp_path / "run", env=Goal, quiet=True),
    ):
        Goal.goals.clear()
        play()
        goals.append(set(map(repr, Goal.goals)))
    assert goals == [{"(1, (2.5, 'a'), {'b': (None,)})"}] * 3


def test_code_that_the_run_names_is_not_imported_without_trust(tmp_path: Path) -> None:
    run(tmp_path / "run", [StopAfter(1)], env=Stateless)
    with pytest.raises(SettingsError, match="Stateless") as refusal:
        resume(tmp_path / "run", quiet=True)
    assert "--trust" in str(refusal.value)
    resume(tmp_path / "run", env=Stateless, quiet=True)
    assert weights(tmp_path / "run")


def test_a_run_that_is_being_trained_is_left_alone(tmp_path: Path) -> None:
    class Second(Callback):
        said = ""

        def on_update(self, moment: Moment) -> None:
            with pytest.raises(SettingsError) as refusal:
                resume(tmp_path / "run", quiet=True)
            self.said = str(refusal.value)

    second = Second()
    run(tmp_path / "run", [second])
    assert "process" in second.said
