"""Lines of metrics survive kills, cuts and a full disk; other programs can read them."""

from __future__ import annotations

import errno
import json
import logging
import math
import re
import socket
import subprocess
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet.errors import MissingExtraError, ResourceError, SettingsError
from envfleet.runs import metrics as metrics_module
from envfleet.runs.metrics import MetricsWriter, iterate_metrics, read_metrics
from envfleet.runs.records import RecordWriter
from envfleet.runs.trackers import TensorBoardWriter, WandbTracker
from envfleet.training import resume
from tests.training.running import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, *steps: int) -> None:
    with closing(MetricsWriter(path)) as writer:
        for step in steps:
            writer.write(step, {"rollout/ep_rew_mean": step / 4})


def test_a_line_is_strict_json_and_there_at_once(path: Path) -> None:
    writer = MetricsWriter(path)
    row = writer.write(64, {"a/nan": math.nan, "a/inf": -math.inf, "a/float": np.float32(0.5), "a/int": np.int64(3)})
    assert path.read_text().endswith("\n")
    line = json.loads(path.read_text(), parse_constant=pytest.fail)  # NaN is not JSON
    assert line == row
    assert list(line) == ["step", "time", "a/nan", "a/inf", "a/float", "a/int"]
    assert [line[name] for name in ("step", "a/nan", "a/inf", "a/float", "a/int")] == [64, None, None, 0.5, 3]
    assert math.isnan(read_metrics(path)[0]["a/nan"])
    writer.close()


def test_a_torn_last_line_is_passed_over_and_then_cut_off(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, 1, 2)
    with open(path, "ab") as file:
        file.write(b'{"step": 3, "ti')
    assert [row["step"] for row in read_metrics(path)] == [1, 2]
    write(path, 4)
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 4]
    assert caplog.text == ""


def test_a_damaged_line_in_the_middle_is_left_out_with_a_word(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b'{"step": 1}\n{"st\x00ep": 2}\n[3]\n{"step": 4}\n')
    with caplog.at_level(logging.WARNING, "envfleet"):
        assert [row["step"] for row in read_metrics(path)] == [1, 4]
    assert "line 2 is damaged" in caplog.text
    assert "line 3 is damaged" in caplog.text


def test_cutting_drops_what_lies_beyond_and_writing_goes_on(path: Path) -> None:
    writer = MetricsWriter(path)
    for step in (10, 20, 30):
        writer.write(step, {"x": step})
    first_lines = path.read_bytes().splitlines()[:2]
    writer.cut_after(20)
    assert path.read_bytes().splitlines() == first_lines  # unchanged
    writer.write(25, {"x": 0})
    writer.close()
    assert [row["step"] for row in read_metrics(path)] == [10, 20, 25]
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_cut_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, 10, 20)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics_module, "write_whole", full)
    with pytest.raises(ResourceError, match=r"cannot be written .* No space left on device\nhint: free some space"):
        MetricsWriter(path).cut_after(10)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    write(path, 1)
    before = path.read_bytes()
    writer = MetricsWriter(path)
    real = writer._file

    class Full:
        tell, fileno, close = real.tell, real.fileno, real.close

        def write(self, line: bytes) -> int:
            return int(real.write(line[:5]))

    writer._file = Full()
    with pytest.raises(ResourceError, match="no space left"):
        writer.write(2, {"x": 1})
    writer.close()
    assert path.read_bytes() == before


def test_there_are_no_rows_where_there_is_no_file(path: Path) -> None:
    assert read_metrics(path) == []


def test_only_what_is_asked_for_is_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text('{"step": 1, "x": null}\ndamaged\n')
    assert math.isnan(next(iterate_metrics(path))["x"])
    assert not caplog.records  # the second line has not been read
    assert len(read_metrics(path)) == 1 and len(caplog.records) == 1


def test_a_folder_that_is_not_there_gives_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot be written"):
        MetricsWriter(tmp_path / "nowhere" / "metrics.jsonl")


# ---- TensorBoard ----


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_tensorboard_reads_what_the_metrics_say(path: Path, tmp_path: Path) -> None:
    board = TensorBoardWriter(tmp_path / "logs")
    with closing(MetricsWriter(path)) as writer:
        for step in (100, 200):
            board.write(writer.write(step, {"rollout/ep_rew_mean": step / 8, "train/approx_kl": math.nan}))
    board.close()
    found = scalars(tmp_path / "logs")
    assert found["rollout/ep_rew_mean"] == [(100, 12.5), (200, 25.0)]
    assert [step for step, _ in found["train/approx_kl"]] == [100, 200]
    assert math.isnan(found["train/approx_kl"][0][1])
    assert board.path.name.startswith("events.out.tfevents.")


def test_on_resume_tensorboard_is_written_again_from_the_metrics(path: Path, tmp_path: Path) -> None:
    write(path, 1, 2, 3)
    TensorBoardWriter(tmp_path / "logs", read_metrics(path)).close()
    with closing(MetricsWriter(path)) as writer:
        writer.cut_after(2)
        board = TensorBoardWriter(tmp_path / "logs", read_metrics(path))
        board.write(writer.write(4, {"rollout/ep_rew_mean": 9.0}))
        board.flush()
        assert scalars(tmp_path / "logs") == {"rollout/ep_rew_mean": [(1, 0.25), (2, 0.5), (4, 9.0)]}
        board.close()


def test_a_run_folder_does_not_have_the_name_of_the_host(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cloud it is an address. A resumed run also removes the file of an earlier version, which has the name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "ip-10-0-0-5")
    (logs := tmp_path / "logs").mkdir()
    (logs / "events.out.tfevents.1700000000.ip-10-0-0-5.77").write_bytes(b"")
    write(path, 1, 2)
    TensorBoardWriter(logs, read_metrics(path)).close()
    (file,) = logs.iterdir()
    assert re.fullmatch(r"events\.out\.tfevents\.\d+\.envfleet\.\d+", file.name)
    assert b"ip-10-0-0-5" not in file.read_bytes()
    assert scalars(logs) == {"rollout/ep_rew_mean": [(1, 0.25), (2, 0.5)]}


def test_a_disk_that_is_full_for_tensorboard_is_reported_in_a_sentence(tmp_path: Path) -> None:
    board = TensorBoardWriter(tmp_path / "logs")
    board._records.close()
    board._records = RecordWriter(open("/dev/full", "wb"))  # noqa: SIM115  # closed with the writer
    with pytest.raises(ResourceError, match=r"TensorBoard cannot be written to .*: No space left on device"):
        for step in range(1000):  # more than the buffer holds
            board.write({"step": step, "time": 0.0, "rollout/ep_rew_mean": 1.0})
    board.close()  # no error: the metrics are complete without it


def test_neither_metrics_nor_tensorboard_need_torch(tmp_path: Path) -> None:
    program = (
        "import sys, envfleet.runs, envfleet.runs.folder, envfleet.runs.console, envfleet.runs.evaluation\n"
        f"from envfleet.runs.trackers import TensorBoardWriter as T; T({str(tmp_path)!r}).close()\n"
        "print('torch' in sys.modules, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# ---- Weights & Biases ----


class Recorded(types.ModuleType):
    """A stand-in for the wandb package."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.calls: list[tuple[str, Any]] = []

    def init(self, **arguments: Any) -> Recorded:
        self.calls.append(("init", arguments))
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.calls.append(("log", (step, values)))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_rows_go_to_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    tracker = WandbTracker(tmp_path, project="envfleet", name="run-1", config={"seed": 3}, resume=True)
    tracker.write({"step": 5, "time": 1.0, "a": 2.0, "b": None})
    tracker.close()
    begun = dict(wandb.calls[0][1])
    assert begun.pop("id").startswith("run-1-")
    assert begun == {
        "dir": str(tmp_path), "project": "envfleet", "name": "run-1", "config": {"seed": 3}, "resume": "allow",
    }  # fmt: skip
    assert wandb.calls[1:] == [("log", (5, {"a": 2.0})), ("finish", None)]


def test_a_run_that_is_tracked_sends_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    options = {"n_envs": 4, "steps": 4 * 32 * 2, "eval_every": 4 * 32 * 2, "eval_episodes": 1}
    done = run(tmp_path / "run", **options, track=True)
    (_, begun), *sent, last = wandb.calls
    assert (begun["project"], begun["name"], begun["resume"]) == ("envfleet", "run", None)
    assert begun["config"]["n_envs"] == 4
    assert "address" not in begun["config"], "the address of a cluster is sent nowhere"
    assert [step for _, (step, _) in sent] == [row["step"] for row in done.metrics] == [128, 256, 256]
    assert sent[-1][1][1]["eval/mean_reward"] == done.metrics[-1]["eval/mean_reward"]
    assert last == ("finish", None)
    wandb.calls.clear()
    resume(tmp_path / "run", steps=4 * 32 * 3, quiet=True)
    assert (wandb.calls[0][1]["id"], wandb.calls[0][1]["resume"]) == (begun["id"], "allow")
    assert [step for _, (step, _) in wandb.calls[1:-1]] == [384, 384]


def test_runs_of_the_same_name_in_other_folders_have_pages_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for folder in ("a", "b"):
        WandbTracker(tmp_path / folder / "seed0", project="envfleet", name="seed0", config={})
    first, second = (begun["id"] for _, begun in wandb.calls)
    assert first != second


def test_without_wandb_the_error_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match="hint: pip install wandb"):
        WandbTracker(tmp_path, project="envfleet", name="run-1", config={})


def test_wandb_that_cannot_be_started_is_reported_with_the_ways_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoKey(Recorded):
        def init(self, **arguments: Any) -> Recorded:
            raise RuntimeError("api_key not configured (no-tty)\ncall wandb.login()")

    monkeypatch.setitem(sys.modules, "wandb", NoKey())
    expected = r"cannot be started: api_key not configured .*\nhint: `wandb login`, or WANDB_MODE=offline"
    with pytest.raises(SettingsError, match=expected):
        WandbTracker(tmp_path, project="envfleet", name="run-1", config={})
