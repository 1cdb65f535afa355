"""Damaged or malicious files are reported, and other runs are not affected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.errors import CheckpointError, ResourceError, SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.listing import runs_in
from envfleet.runs.metrics import MetricsWriter, read_metrics
from envfleet.runs.plot import plot_runs
from envfleet.settings import read_settings_file
from envfleet.training.environment import keyword_arguments
from tests.runs.full_disk import full_disk

DEEP = 1_500  # Python's own limit is 1,000
SOUND = [{"step": 10, "time": 1.0, "rollout/ep_rew_mean": 1.5}, {"step": 20, "time": 2.0, "eval/mean_reward": 2.5}]
BAD = [
    '{"step": null, "rollout/ep_rew_mean": 3.0}',
    '{"step": "many", "eval/mean_reward": 3.0}',
    '{"step": 30, "rollout/ep_rew_mean": "high"}',
    '{"step": 30, "rollout/ep_rew_mean": [3.0], "eval/mean_reward": {"a": 1}}',
    '{"step": 30, "eval/mean_reward": 1' + 400 * "0" + "}",
    '{"step": 1' + 400 * "0" + "}",
    '{"step": true}',
    '"eval/mean_reward"',
    DEEP * '[' + '"eval/mean_reward"' + DEEP * "]",
    "\udcff\udcfe",
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "runs" / "run", env="X-v0", algorithm="ppo", seed=1)
    folder.write_config({"algorithm": "ppo", "steps": 100})
    return folder


def write(run: RunFolder, *bad: str) -> None:
    """Write the bad lines between two valid ones."""
    lines = [json.dumps(SOUND[0]), *bad, json.dumps(SOUND[1])]
    run.metrics.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_bad_line_of_metrics_is_named_and_left_out(
    run: RunFolder, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(run, bad)
    RunFolder.create(run.path.with_name("other"), env="Y-v0", algorithm="ppo", seed=1)
    found = {summary.path.name: summary for summary in runs_in(run.path.parent)}
    assert set(found) == {"run", "other"}
    assert (found["run"].steps, found["run"].last_return, found["run"].best_evaluation) == (20, 1.5, 2.5)
    assert f"{run.metrics}, line 2 is damaged and left out" in caplog.text
    caplog.clear()
    assert read_metrics(run.metrics) == SOUND
    assert plot_runs([run.path], run.path / "curve.png").exists()
    assert caplog.text.count("line 2 is damaged and left out") == 2


def test_metrics_that_cannot_be_read(
    run: RunFolder, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run.metrics.mkdir()  # a permission would not stop root
    message = f"{run.metrics} cannot be read: Is a directory"
    RunFolder.create(run.path.with_name("other"), env="Y-v0", algorithm="ppo", seed=1)
    assert [summary.path.name for summary in runs_in(run.path.parent)] == ["other"]
    assert message in caplog.text
    for command in ("runs", "plot"):
        assert cli.main([command, str(run.path)]) == 2
        assert f"error: {message}\n" in capsys.readouterr().err
    with pytest.raises(ResourceError, match=r"the metrics cannot be written to .*: Is a directory"):
        MetricsWriter(run.metrics)


@pytest.mark.parametrize("name", ["manifest.json", "config.yaml"])
@pytest.mark.parametrize("content", [DEEP * "[" + DEEP * "]", "{" * DEEP], ids=["closed", "open"])
def test_a_run_that_is_nested_too_deeply_is_left_out(
    run: RunFolder, name: str, content: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (run.path / name).write_text(content)
    RunFolder.create(run.path.with_name("other"), env="Y-v0", algorithm="ppo", seed=1)
    assert cli.main(["runs", str(run.path.parent), "--json"]) == 0
    assert [Path(listed["path"]).name for listed in json.loads(capsys.readouterr().out)] == ["other"]
    assert f"{run.path} is left out" in caplog.text
    assert cli.main(["resume", str(run.path)]) == 2
    assert name in capsys.readouterr().err


def test_a_checkpoint_that_is_nested_too_deeply(tmp_path: Path) -> None:
    for name in ("digest.json", "state.json"):
        folder = tmp_path / name
        Checkpoints(folder).save(7, {}, {"a": 1})
        if name == "digest.json":
            (folder / "step-7" / name).write_text(DEEP * "[")
        else:
            nested = json.dumps({"format": 1, "memory": [], "state": json.loads(400 * "[" + 400 * "]")})
            (folder / "step-7" / name).write_text(nested)
            _sign(folder / "step-7")
        with pytest.raises(CheckpointError, match=r"the checkpoint .* (is incomplete|cannot be read): "):
            Checkpoints(folder).load(7)


def _sign(checkpoint: Path) -> None:
    """Update the digest, as an attacker would."""
    import hashlib

    content, digest = (checkpoint / "state.json").read_bytes(), json.loads((checkpoint / "digest.json").read_text())
    digest["files"]["state.json"] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (checkpoint / "digest.json").write_text(json.dumps(digest))


@pytest.mark.parametrize("where", [5, ["a"]])
def test_a_place_of_checkpoints_that_is_no_path(run: RunFolder, where: object) -> None:
    run.manifest.write_text(json.dumps({**run.read_manifest(), "checkpoint_dir": where}))
    with pytest.raises(SettingsError, match=r"says checkpoint_dir: .*, expected a path"):
        RunFolder.open(run.path)


# ---- settings ----


@pytest.mark.parametrize("depth", [60, 900, DEEP])
@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_settings_that_are_nested_too_deeply(tmp_path: Path, name: str, depth: int) -> None:
    path = tmp_path / name
    path.write_text('{"env_kwargs": ' + depth * "[" + depth * "]" + "}")
    with pytest.raises(SettingsError, match=rf"{name} is nested too deeply, expected at most 50 levels"):
        read_settings_file(path)
    path.write_text('{"env_kwargs": ' + 40 * "[" + 40 * "]" + "}")
    assert "env_kwargs" in read_settings_file(path)


def test_settings_that_hold_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("env_kwargs: &a\n  again: [*a]\n")
    with pytest.raises(SettingsError, match=r"line 1: .* recursive"):
        read_settings_file(tmp_path / "a.yaml")


def test_arguments_that_are_nested_too_deeply() -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        keyword_arguments([f"size={100_000 * '-'}1"])
    brackets = DEEP * "["
    assert keyword_arguments([f"name={brackets}"]) == {"name": brackets}  # not a Python value, so it is text


# ---- a full disk ----


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_a_picture_that_cannot_be_written_whole(run: RunFolder, name: str) -> None:
    write(run)
    output = run.path / name
    output.write_bytes(b"the picture of before")
    with full_disk(4096), pytest.raises(ResourceError, match=rf"the picture cannot be written to {output}: "):
        plot_runs([run.path], output)
    assert output.read_bytes() == b"the picture of before"
