"""`overwrite` replaces an old run only once the new one has saved a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import EnvError, SettingsError
from envfleet.runs.run import Run
from envfleet.training import resume
from envfleet.training.callbacks import Callback
from tests.training.envs import FailsAtOnce
from tests.training.running import run, weights


class Interrupted(Callback):
    """Simulates a second Ctrl-C in the first rollout."""

    def on_rollout(self, moment: Any, rollout: Any) -> None:
        raise KeyboardInterrupt


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize(
    ("changes", "callbacks", "error", "apart"),
    [
        ({"policy": "json:Nonsense"}, (), SettingsError, False),
        ({"env": FailsAtOnce, "backend": "sequential"}, (), EnvError, False),
        ({"env": FailsAtOnce, "backend": "sequential"}, (), EnvError, True),
        ({"env": FailsAtOnce, "backend": "threads"}, (), EnvError, False),
        ({"env": FailsAtOnce, "backend": "processes", "workers": 1}, (), EnvError, False),
        ({"env": FailsAtOnce, "acting": "central"}, (), EnvError, False),
        ({}, (Interrupted(),), KeyboardInterrupt, False),
    ],
)
def test_a_new_run_that_fails_leaves_the_old_one_as_it_was(
    tmp_path: Path, changes: dict[str, Any], callbacks: Any, error: type[BaseException], apart: bool
) -> None:
    options = {"checkpoint_dir": str(tmp_path / "states")} if apart else {}
    run(tmp_path / "run", steps=12 * 32, **options)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = files(tmp_path)
    with pytest.raises(error):
        run(tmp_path / "run", callbacks, overwrite=True, **{**options, **changes})
    assert files(tmp_path) == before
    assert Run.load(tmp_path / "run").checkpoint().step == 12 * 32


def test_a_run_that_saves_replaces_the_old_one(tmp_path: Path) -> None:
    run(tmp_path / "run", steps=12 * 32)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    run(tmp_path / "run", overwrite=True, seed=6)
    run(tmp_path / "other", seed=6)
    assert weights(tmp_path / "run") == weights(tmp_path / "other")
    assert {entry.name for entry in (tmp_path / "run").iterdir()} == {
        *(entry.name for entry in (tmp_path / "other").iterdir()),
        "notes.txt",
    }
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 1


def test_a_run_that_fails_after_its_first_checkpoint_stays(tmp_path: Path) -> None:
    class Fails(Callback):
        def on_update(self, moment: Any) -> None:
            if moment.steps > 12 * 32:
                raise RuntimeError("too late")

    run(tmp_path / "run", steps=12 * 32)
    with pytest.raises(RuntimeError, match="too late"):
        run(tmp_path / "run", [Fails()], overwrite=True, seed=6, checkpoint_every=1)
    assert Run.load(tmp_path / "run").settings["seed"] == 6


def test_a_run_that_never_saved_can_be_resumed_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stops(Callback):
        def on_update(self, moment: Any) -> None:
            if moment.steps > 12 * 32:  # the first update's metrics are written
                raise KeyboardInterrupt

    caplog.set_level(logging.WARNING, "envfleet")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", [Stops()], checkpoint_every=10**9)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "run", callbacks=[Stops()], quiet=True)
    resume(tmp_path / "run", quiet=True)
    run(tmp_path / "whole", checkpoint_every=10**9)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert Run.load(tmp_path / "run").checkpoint().step == 12 * 32 * 3
