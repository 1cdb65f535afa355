"""Settings that resume accepts and refuses, damaged checkpoints, and simulators that cannot be saved."""

from __future__ import annotations

import logging
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


class DiesUnsaved(Callback):
    """Ends a run in its second update. Its first metrics are written, so the folder stays."""

    def on_update(self, moment: Moment) -> None:
        if moment.steps > ROLLOUT:
            raise KeyboardInterrupt


def run_unsaved(folder: Path, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder, [DiesUnsaved()], checkpoint_every=10**9, **changes)


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(
    tmp_path: Path, whole: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    run_unsaved(tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / ".writing-step-384-999999").mkdir()
    with caplog.at_level(logging.WARNING, "envfleet"):
        resume(tmp_path / "run", quiet=True)
    assert "begins again" in caplog.text
    assert weights(tmp_path / "run") == whole


def test_beginning_again_keeps_to_the_checkpoint_folder_that_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run_unsaved(tmp_path / "run", checkpoint_dir="kept")
    monkeypatch.chdir(tmp_path / "there")
    resume(tmp_path / "run", quiet=True)
    assert (tmp_path / "here" / "kept" / "final").is_dir()
    assert not list((tmp_path / "there").iterdir())


def test_a_run_whose_checkpoints_are_missing_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "run", checkpoint_dir="kept")
    (tmp_path / "kept").rename(tmp_path / "moved")
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(
        CheckpointError, match=rf"{tmp_path / 'kept'} of the run .*run does not exist\nhint: put it back"
    ):
        resume(tmp_path / "run", quiet=True)
    (tmp_path / "kept").mkdir()  # as the mount point of a disk that is not mounted
    with pytest.raises(CheckpointError, match=rf"{tmp_path / 'kept'} of the run .*run has no checkpoints\nhint: "):
        resume(tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics
    assert "begins again" not in caplog.text
    (tmp_path / "kept").rmdir()
    (tmp_path / "moved").rename(tmp_path / "kept")
    assert resume(tmp_path / "run", quiet=True).checkpoint().step == 3 * ROLLOUT


def test_a_missing_checkpoint_folder_of_an_unsaved_run_is_not_made_again(tmp_path: Path) -> None:
    """Runs of older versions do not record whether they saved."""
    run_unsaved(tmp_path / "run", checkpoint_dir=str(tmp_path / "kept"))
    (tmp_path / "kept").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"kept of the run .* does not exist"):
        resume(tmp_path / "run", quiet=True)


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


def test_a_run_that_is_being_trained_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Second(Callback):
        said = ""

        def on_update(self, moment: Moment) -> None:
            with pytest.raises(SettingsError) as refusal:
                resume(tmp_path / "run", quiet=True)
            self.said = str(refusal.value)

    second = Second()
    run(tmp_path / "run", [second])
    assert "process" in second.said
    assert "begins again" not in caplog.text  # also before its first checkpoint
