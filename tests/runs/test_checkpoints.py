"""Checkpoints are restored exactly, survive kills and damage, and never run code."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envfleet.errors import CheckpointError, StateError
from envfleet.runs import checkpoints as module
from envfleet.runs.checkpoints import Checkpoints

FILES = ["digest.json", "policy.safetensors", "state.json", "state.safetensors"]


def policy(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"body.weight": torch.full((2, 3), value), "head.bias": torch.arange(3, dtype=torch.bfloat16)}


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


# ---- saving and loading ----


def test_weights_and_state_come_back_exactly(checkpoints: Checkpoints) -> None:
    generator = np.random.default_rng(3)
    state = {"counters": {"steps": 2**70, 5: (1, None)}, "replay": np.arange(6.0).reshape(2, 3), "rng": generator}
    path = checkpoints.save(2048, policy(), {**state, "adam": [torch.ones(2)]})
    assert path == checkpoints.folder / "step-2048"
    assert names(path) == FILES
    loaded = checkpoints.load()
    assert (loaded.step, loaded.path) == (2048, path)
    assert {name: (t.dtype, t.tolist()) for name, t in loaded.policy.items()} == {
        name: (t.dtype, t.tolist()) for name, t in policy().items()
    }
    assert loaded.state["counters"] == state["counters"]
    assert loaded.state["replay"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded.state["rng"].random() == generator.random()
    assert loaded.state["adam"][0].tolist() == [1, 1]


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path / "a").save(1, policy(), {"time": 1.0})
    reordered = dict(reversed(policy().items()))
    second = Checkpoints(tmp_path / "b").save(999, reordered, {"time": 2.0, "more": np.zeros(3)})
    content = (first / "policy.safetensors").read_bytes()
    assert (second / "policy.safetensors").read_bytes() == content
    # Pinned: later versions must read today's weights, and read them unchanged.
    assert hashlib.sha256(content).hexdigest() == "67e17730d9ac0822a84314ced8ec53b364f1e0d6451d5b60d3af73878e121026"


def test_tied_and_turned_weights_are_kept(checkpoints: Checkpoints) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    checkpoints.save(1, {"in": shared, "out": shared, "turned": shared.T, "part": shared[0]}, {})
    loaded = checkpoints.load().policy
    assert torch.equal(loaded["in"], shared) and torch.equal(loaded["out"], shared)
    assert torch.equal(loaded["turned"], shared.T) and torch.equal(loaded["part"], shared[0])


def test_an_empty_policy_and_state_can_be_kept(checkpoints: Checkpoints) -> None:
    checkpoints.save(0, {}, {})
    assert (checkpoints.load().policy, checkpoints.load().state) == ({}, {})


def test_a_state_that_cannot_be_kept_writes_nothing(checkpoints: Checkpoints) -> None:
    with pytest.raises(StateError, match=r"state\['bad'\] is of type object"):
        checkpoints.save(1, policy(), {"bad": object()})
    assert not checkpoints.folder.exists()


# ---- retention ----


def test_old_ones_go_but_never_those_that_are_pointed_to(checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30, 40, 50, 1000):
        checkpoints.save(step, policy(step), {"step": step})
        if step == 20:
            checkpoints.mark("best", 20)
    assert checkpoints.steps() == [20, 40, 50, 1000]
    assert names(checkpoints.folder) == ["best", "last", "step-1000", "step-20", "step-40", "step-50"]
    assert [checkpoints.step_of(name) for name in ("last", "best", "final")] == [1000, 20, None]
    assert checkpoints.load("best").state == {"step": 20}
    checkpoints.mark("best", 50)
    assert checkpoints.steps() == [40, 50, 1000]


def test_the_final_weights_are_a_file_at_a_known_place(checkpoints: Checkpoints) -> None:
    from safetensors.torch import load_file

    checkpoints.save(8, policy(8), {})
    checkpoints.mark("final", 8)
    assert load_file(checkpoints.folder / "final" / "policy.safetensors")["body.weight"].unique().tolist() == [8]
    assert checkpoints.load("final").step == checkpoints.load("step-8").step == checkpoints.load(8).step == 8


def test_what_is_not_there_is_named_with_what_is(checkpoints: Checkpoints) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint last .*\nhint: there are: none"):
        checkpoints.load()
    checkpoints.save(5, policy(), {})
    for name in ("best", "step-6", 7, "../step-5"):
        with pytest.raises(CheckpointError, match=r"there is no checkpoint .*\nhint: there are: last, step-5"):
            checkpoints.load(name)
    with pytest.raises(CheckpointError, match="there is no checkpoint of step 6"):
        checkpoints.mark("best", 6)


def test_a_link_leads_nowhere_else(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoints.save(5, policy(), {})
    (checkpoints.folder / "best").symlink_to(tmp_path)
    assert checkpoints.step_of("best") is None


def test_without_symlinks_text_files_and_a_copy_do(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no symlinks here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for step in (1, 2):
        checkpoints.save(step, policy(step), {})
        checkpoints.mark("final", step)
    assert (checkpoints.folder / "last").read_text() == "step-2"
    assert (checkpoints.folder / "final" / "policy.safetensors").is_file()
    assert checkpoints.load("final").policy["body.weight"][0, 0] == 2
    assert names(checkpoints.folder) == ["final", "last", "step-1", "step-2"]


# ---- damage ----


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_found_and_the_one_before_is_used(
    checkpoints: Checkpoints, name: str, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        checkpoints.save(step, policy(step), {"x": np.arange(50)})
    damage(checkpoints.folder / "step-2" / name)
    with pytest.raises(CheckpointError, match="step-2"):
        checkpoints.load()
    with caplog.at_level(logging.WARNING, "envfleet"):
        assert checkpoints.load_newest_sound().step == 1
    assert len(caplog.records) == 1
    assert "step-2" in caplog.text
    assert checkpoints.load("last").step == 1
    assert names(checkpoints.folder) == ["damaged-step-2", "last", "step-1"]
    checkpoints.save(2, policy(3), {})
    assert checkpoints.load_newest_sound().policy["body.weight"][0, 0] == 3


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_that_cannot_be_read_now_is_not_called_damaged(
    checkpoints: Checkpoints, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        checkpoints.save(step, policy(step), {"x": step})
    before, read = names(checkpoints.folder), Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(CheckpointError, match=r"step-2 cannot be read: Input/output error\nhint: it may be intact"):
            checkpoints.load_newest_sound()
    assert names(checkpoints.folder) == before
    assert checkpoints.load_newest_sound().step == 2


def test_a_folder_that_cannot_be_read_is_named(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(CheckpointError, match=f"{checkpoints.folder} cannot be read: Permission denied"):
        checkpoints.load(7)


def test_no_sound_checkpoint_at_all_is_an_error(checkpoints: Checkpoints) -> None:
    with pytest.raises(CheckpointError, match="there is no sound checkpoint"):
        checkpoints.load_newest_sound()
    cut(checkpoints.save(1, policy(), {}) / "state.json")
    with pytest.raises(CheckpointError, match="there is no sound checkpoint"):
        checkpoints.load_newest_sound()


def test_another_format_is_refused(checkpoints: Checkpoints) -> None:
    digest = checkpoints.save(1, policy(), {}) / "digest.json"
    digest.write_text(digest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="has format 2; this version reads format 1"):
        checkpoints.load()
    with pytest.raises(CheckpointError, match="has format 2; this version reads format 1"):
        checkpoints.load_newest_sound()
    assert checkpoints.steps() == [1]  # not damaged: the version that saved it can still resume it


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("name", FILES)
def test_a_malicious_pickle_is_never_run(checkpoints: Checkpoints, tmp_path: Path, name: str) -> None:
    path, marker = checkpoints.save(1, policy(), {}), tmp_path / "ran"
    payload = pickle.dumps(Evil(marker))
    (path / name).write_bytes(payload)
    if name != "digest.json":  # a matching digest, so that the file itself is read
        digest = json.loads((path / "digest.json").read_text())
        digest["files"][name] = {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
        (path / "digest.json").write_text(json.dumps(digest))
    with pytest.raises(CheckpointError):
        checkpoints.load()
    assert not marker.exists()
    pickle.loads(payload)
    assert marker.exists()  # the payload works if it is loaded


# ---- interruption ----


def test_saving_a_step_again_keeps_or_replaces_it(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(1, policy(1), {})
    before = path.stat().st_ino
    checkpoints.save(1, policy(1), {})
    assert path.stat().st_ino == before
    checkpoints.save(1, policy(2), {})
    assert checkpoints.load().policy["body.weight"][0, 0] == 2
    flip(path / "policy.safetensors")
    checkpoints.save(1, policy(2), {})
    assert checkpoints.load().policy["body.weight"][0, 0] == 2
    assert names(checkpoints.folder) == ["last", "step-1"]


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_full_disk_keeps_the_last_good_one_and_leaves_nothing_half_written(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    checkpoints.save(1, policy(1), {"x": 1})
    calls = 0

    def write(path: Path, content: bytes) -> None:
        nonlocal calls
        calls += 1
        path.write_bytes(content[: len(content) // 2] if calls == failing else content)
        if calls == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_file", write)
    with pytest.raises(CheckpointError, match=r"step 2 .*: No space left on device\nhint: step-1 is kept; free some"):
        checkpoints.save(2, policy(2), {"x": 2})
    assert names(checkpoints.folder) == ["last", "step-1"]
    assert checkpoints.load_newest_sound().state == {"x": 1}


@pytest.mark.parametrize("broken", ["rename", "replace", "symlink_to"])
def test_a_rename_or_link_that_fails_leaves_the_old_state(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    checkpoints.save(1, policy(1), {})

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, broken, fail)
        with pytest.raises(CheckpointError, match="Input/output error"):
            checkpoints.save(2, policy(2), {})
    assert [name for name in names(checkpoints.folder) if name.startswith(".")] == []
    assert checkpoints.load("last").step == 1
    assert checkpoints.load_newest_sound().step in {1, 2}  # 2 is complete once it has its name


def test_a_folder_that_is_read_only_is_named(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised by hand, because root, who runs tests in containers, can write anywhere."""
    checkpoints.save(1, policy(1), {})
    make = Path.mkdir

    def refuse(path: Path, *arguments: Any, **named: Any) -> None:
        if path.parent == checkpoints.folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        make(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(CheckpointError, match=r"step 2 .*: Permission denied\nhint: step-1 is kept; .* writable"):
            checkpoints.save(2, policy(2), {})
    assert names(checkpoints.folder) == ["last", "step-1"]
    assert checkpoints.load().step == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written to .*file"):
        Checkpoints(tmp_path / "file").save(1, policy(), {})


def test_leftovers_go_unless_their_process_lives(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, policy(), {})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f".writing-step-2-{gone.pid}", f".removing-step-0-{gone.pid}", f".writing-step-3-{os.getppid()}"):
        (checkpoints.folder / name).mkdir()
    (checkpoints.folder / f".linking-last-{gone.pid}").symlink_to("step-1")
    assert checkpoints.load_newest_sound().step == 1
    assert names(checkpoints.folder) == [f".writing-step-3-{os.getppid()}", "last", "step-1"]


def save_for_ever(folder: Path, step: int, saving: Connection) -> None:
    """Save one checkpoint after the other; write to `saving` after the first."""
    checkpoints = Checkpoints(folder, keep=2)
    torch.set_num_threads(1)
    for number in itertools.count(step + 1):
        checkpoints.save(number, {"w": torch.full((50_000,), float(number))}, {"step": number})
        if number % 3 == 0:
            checkpoints.mark("best", number)
        if number == step + 1:
            saving.send_bytes(b".")


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.proof)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns about leftover threads
def test_killed_at_random_moments_there_is_always_a_sound_one(checkpoints: Checkpoints, start_method: str) -> None:
    random, step = np.random.default_rng(1), 0
    context = multiprocessing.get_context(start_method)
    for _ in range(4):
        reader, saving = context.Pipe(duplex=False)
        child = context.Process(target=save_for_ever, args=(checkpoints.folder, step, saving))
        child.start()
        saving.close()
        assert reader.recv_bytes() == b"."
        time.sleep(float(random.uniform(0, 0.15)))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        loaded = checkpoints.load_newest_sound()
        assert loaded.step > step
        assert loaded.state == {"step": loaded.step}
        assert loaded.policy["w"].unique().tolist() == [loaded.step]
        assert not any(name.startswith((".", "damaged")) for name in names(checkpoints.folder))
        step = loaded.step
