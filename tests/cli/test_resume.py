"""`envfleet resume`: continues a run, accepts harmless changes, refuses others with a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from envfleet import cli
from envfleet.cli.resume import Resume
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder
from tests.cli.conftest import train


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "copy", symlinks=True))


def test_more_steps_give_the_weights_of_a_run_that_had_them_from_the_start(tmp_path: Path) -> None:
    # Constant schedules, because a linear one depends on the budget, which differs.
    constant = ["--learning-rate-schedule", "constant", "--clip-range-schedule", "constant"]
    assert train(tmp_path / "whole", *constant, "--steps", "1024") == 0
    assert train(tmp_path / "halves", *constant) == 0
    assert cli.main(["resume", str(tmp_path / "halves"), "--steps", "1024", "--quiet"]) == 0
    files = [tmp_path / name / "checkpoints" / "final" / "policy.safetensors" for name in ("whole", "halves")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_harmless_settings_are_taken_and_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["resume", str(run), "--steps", "640", "--backend", "threads", "--num-workers", "1"]) == 0
    recorded = yaml.safe_load((run / "config.yaml").read_text())
    assert (recorded["steps"], recorded["backend"], recorded["workers"]) == (640, "threads", 1)
    assert Checkpoints(run / "checkpoints").step_of("final") == 640
    error = capsys.readouterr().err  # --quiet of the first run is not restored
    assert "resuming from step 512" in error
    assert "backend       threads" in error


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--seed", "2"], "seed"),
        (["--learning-rate=1", "--env", "Acrobot-v1"], "env, learning_rate"),
        (["--batch-size", "64"], "minibatch_size"),
        (["--overwrite"], "overwrite"),
        (["--random-steps", "5"], "random_steps"),  # a resumed run does not play at random
    ],
)
def test_others_are_refused_with_a_reason(
    run: Path, flags: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "config.yaml").read_bytes()
    assert cli.main(["resume", str(run), *flags]) == 2
    error = capsys.readouterr().err
    assert f"error: a run cannot be resumed with another {names}: it would not be the same run" in error
    assert "--init-from" in error
    assert (run / "config.yaml").read_bytes() == before


def test_a_finished_run_says_so_and_stays_as_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [run / "checkpoints" / "final" / "policy.safetensors", run / "config.yaml", run / "metrics.jsonl"]
    before = [file.read_bytes() for file in files]
    for flags in ([], ["--steps", "100", "--backend", "threads"]):
        assert cli.main(["resume", str(run), *flags]) == 0
        assert "its budget is spent at step 512: --steps gives it more" in capsys.readouterr().err
        assert [file.read_bytes() for file in files] == before


def test_a_bad_value(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["resume", str(run), "--steps", "many", "--workers", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: the command has 2 problems:"
    assert "  --steps: got 'many', expected a whole number or none, at least 1" in lines


def test_a_run_that_does_not_exist(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["resume", str(trained.parent / "cartpol")]) == 2
    error = capsys.readouterr().err
    assert "cartpol does not exist" in error
    assert f"hint: there are {trained}" in error


def test_a_run_in_use(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder.open(run).lock():
        assert cli.main(["resume", str(run), "--steps", "640"]) == 2
    assert "is in use by process" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_passed_over(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = Checkpoints(run / "checkpoints").steps()
    newest = run / "checkpoints" / f"step-{steps[-1]}" / "policy.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    assert cli.main(["resume", str(run), "--steps", "640", "--quiet"]) == 0
    assert "is damaged: policy.safetensors changed; the checkpoint before it is used" in caplog.text


def test_code_that_a_run_names_is_imported_on_trust_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_cartpole.py").write_text(
        "import gymnasium\n\ndef make(render_mode=None):\n    return gymnasium.make('CartPole-v1')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert train(tmp_path / "run", "--env", "own_cartpole:make", "--num-episodes", "100000") == 0
    for command in ("resume", "evaluate"):
        assert cli.main([command, str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert "code that is not part of Envfleet: own_cartpole:make" in error
        assert "--trust" in error
    assert cli.main(["resume", str(tmp_path / "run"), "--trust", "--steps", "640", "--quiet"]) == 0
    assert cli.main(["evaluate", str(tmp_path / "run"), "--trust", "--episodes", "2"]) == 0


def test_checkpoints_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--checkpoint-dir` is found from any directory, by evaluate and by resume."""
    constant = ["--learning-rate-schedule", "constant", "--clip-range-schedule", "constant", "--eval-every", "0"]
    (tmp_path / "somewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert train(tmp_path / "whole", *constant, "--steps", "1024") == 0
    assert train(tmp_path / "run", *constant, "--checkpoint-dir", "weights/v1") == 0
    elsewhere = Checkpoints(tmp_path / "weights" / "v1")
    assert elsewhere.step_of("final") == 512
    monkeypatch.chdir(tmp_path / "somewhere")
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "1"]) == 0
    assert "(step 512)" in capsys.readouterr().out
    assert cli.main(["resume", str(tmp_path / "run"), "--steps", "1024", "--quiet"]) == 0
    assert elsewhere.step_of("final") == 1024
    weights = Path("final") / "policy.safetensors"
    assert (elsewhere.folder / weights).read_bytes() == (tmp_path / "whole" / "checkpoints" / weights).read_bytes()
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert list((tmp_path / "somewhere").iterdir()) == []


def test_switches_before_the_run() -> None:
    command = Resume.parse(["--quiet", "--steps", "7", "runs/x"])
    assert (command.path, command.trust, command.changes) == ("runs/x", False, {"quiet": True, "steps": 7})
