"""Every message quoted in docs/troubleshoot.md is real: each problem is reproduced here."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import envfleet
from envfleet import cli, machine
from envfleet.errors import EnvfleetError
from envfleet.fleet import hosting
from envfleet.fleet.auto import StepCost, choose
from envfleet.fleet.statistics import WorkerStatistics
from envfleet.runs import checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.live_view import ConsoleState, plain_line, view
from envfleet.training import assembly, exactness
from tests.cli.conftest import train
from tests.fleet.simulators import Bad, Counter
from tests.inexact_worlds import Handle
from tests.training.running import run as run_small

PAGE = Path(__file__).parents[2] / "docs" / "troubleshoot.md"


def quoted_messages() -> list[str]:
    """Return the quoted messages: code of more than one word in the tables' second column, except commands."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    codes = [code for row in rows for code in re.findall(r"`([^`]+)`", row[1])]
    return list(dict.fromkeys(code for code in codes if " " in code and not code.startswith("envfleet ")))


class Scene:
    """What a problem is reproduced with: a folder, a finished run that may be changed, and a monkeypatch."""

    def __init__(self, folder: Path, trained: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self._trained = trained

    @property
    def run(self) -> Path:
        copy = self.folder / "run"
        if not copy.exists():
            shutil.copytree(self._trained, copy, symlinks=True)
        return copy

    def config(self, before: str, after: str) -> None:
        config = self.run / "config.yaml"
        assert before in config.read_text()
        config.write_text(config.read_text().replace(before, after))


TROUBLES: dict[str, Callable[[Scene], object]] = {}


def shows(*messages: str) -> Callable[[Callable[[Scene], object]], Callable[[Scene], object]]:
    """Register a function that reproduces these messages: it prints, logs, raises or returns them."""

    def note(trouble: Callable[[Scene], object]) -> Callable[[Scene], object]:
        TROUBLES.update(dict.fromkeys(messages, trouble))
        return trouble

    return note


@pytest.mark.parametrize("message", quoted_messages())
def test_the_message_is_what_one_sees(
    message: str,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert message in TROUBLES, "the page quotes a message that no trouble in this file brings about"
    try:
        seen = str(TROUBLES[message](Scene(tmp_path, trained, monkeypatch)))
    except EnvfleetError as error:
        seen = str(error)
    words = " ".join(f"{seen} {capfd.readouterr().err} {caplog.text}".split())
    assert re.search(".*".join(map(re.escape, message.split("..."))), words), words


def test_no_trouble_is_for_nothing() -> None:
    assert set(TROUBLES) == set(quoted_messages())


# --- starting


@shows("the environment cannot be sent to a worker process: ...")
def _cannot_be_sent(scene: Scene) -> None:
    lock = threading.Lock()
    envfleet.make(lambda: Counter(length=id(lock)), 2, backend="processes")


@shows("a worker could not load the environment")
def _cannot_be_loaded(scene: Scene) -> None:
    module: Any = type(sys)("only_here")
    scene.patch.setitem(sys.modules, "only_here", module)
    module.Env = type("Env", (Counter,), {"__module__": "only_here"})
    envfleet.make(module.Env, 2, backend="processes", workers=1)


@shows("there is no environment ...")
def _no_environment(scene: Scene) -> None:
    assert cli.main(["train", "ppo", "--env", "CartPoel-v1", "--output-dir", str(scene.folder / "new")]) == 2


@shows("... exists and is not empty")
def _folder_exists(scene: Scene) -> None:
    assert train(scene.run) == 2


@shows("... workers need ... open files, but only ... are left")
def _too_few_files(scene: Scene) -> None:
    scene.patch.setattr(hosting, "open_file_limit", lambda: machine.open_files() + 10)
    envfleet.make(Counter, 8, workers=2, backend="processes")


@shows("device is ..., which this machine does not have")
def _no_device(scene: Scene) -> None:
    import torch

    scene.patch.setattr(torch.cuda, "is_available", lambda: False)
    assert train(scene.folder / "new", "--device", "cuda") == 2


@shows("... needs an environment with render_mode=...")
def _no_video(scene: Scene) -> None:
    scene.config("env: CartPole-v1", "env: tests.training.worlds:Masked")  # has no __init__
    assert cli.main(["evaluate", str(scene.run), "--trust", "--video", str(scene.folder / "film.gif")]) == 2
    assert cli.main(["evaluate", str(scene.run), "--trust", "--render"]) == 2


# --- speed and memory


@shows("that is too little to be worth waking ... workers")
def _too_cheap(scene: Scene) -> str:
    return choose(StepCost(1e-6, 1e-6), n_envs=4, cores=2).reason


@shows("workers ... MB")
def _memory_of_workers(scene: Scene) -> str:
    state = ConsoleState("t", 4000)
    state.take(1000, 2.0, {}, [WorkerStatistics(0, 11, 0.9, 0, 100.0)])
    return "\n".join(line.plain for line in view(state, 80, verbose=False))


@shows("a rollout of ... steps of ... environments needs ... GiB")
def _rollout_too_large(scene: Scene) -> None:
    scene.patch.setattr(assembly, "available_memory", lambda: 1000)
    assert train(scene.folder / "new") == 1


# --- while it runs


@shows("... worker restart")
def _worker_died(scene: Scene) -> str:
    state = ConsoleState("t", 4000)
    state.take(1000, 2.0, {}, [WorkerStatistics(0, 11, 0.9, 1, 100.0)])
    return plain_line(state, verbose=False)


def step_a_bad_one(what: str) -> None:
    with envfleet.make(lambda: Bad(what), 1, backend="sequential") as fleet:
        fleet.reset()
        for _ in range(3):
            fleet.step(np.zeros(1, np.int64))


@shows("bad observation: ...")
def _bad_observation(scene: Scene) -> None:
    step_a_bad_one("nan")


@shows("bad reward: ...")
def _bad_reward(scene: Scene) -> None:
    step_a_bad_one("reward")


@shows("environment ...: expected ..., received ...; accepted (reported once)")
def _unusual_observation(scene: Scene) -> None:
    step_a_bad_one("dtype")


class Exploding(gymnasium.Env[Any, Any]):
    """Pays a reward that makes any network diverge."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), self.reward, False, False, {}


@shows("the weights are no longer numbers")
def _weights_explode(scene: Scene) -> None:
    with np.errstate(all="ignore"):
        run_small(scene.folder / "new", env=Exploding, env_kwargs={"reward": float("inf")})


@shows("... is no longer a number")
def _loss_explodes(scene: Scene) -> None:
    with np.errstate(all="ignore"):
        run_small(scene.folder / "new", env=Exploding, env_kwargs={"reward": 1e30})


@shows("the checkpoint of step ... cannot be written")
def _disk_full(scene: Scene) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    scene.patch.setattr(checkpoints, "write_file", full)
    assert train(scene.folder / "new") == 1


# --- resuming


@shows("the run folder ... does not exist")
def _no_such_run(scene: Scene) -> None:
    assert cli.main(["resume", str(scene.folder / "nowhere")]) == 2


@shows("the run ... is in use by process ...")
def _in_use(scene: Scene) -> None:
    with RunFolder.open(scene.run).lock():
        assert cli.main(["resume", str(scene.run), "--steps", "640"]) == 2


@shows("the checkpoint ... is damaged: ... changed", "the checkpoint before it is used")
def _damaged(scene: Scene) -> None:
    newest = (scene.run / "checkpoints" / "last" / "policy.safetensors").resolve()
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    assert cli.main(["resume", str(scene.run), "--steps", "640", "--quiet"]) == 0


@shows("the run was trained with code that is not part of Envfleet: ...")
def _own_code(scene: Scene) -> None:
    scene.config("env: CartPole-v1", "env: tests.training.worlds:Masked")
    assert cli.main(["evaluate", str(scene.run)]) == 2


@shows("a resume of this run will begin fresh episodes: ...", "the environments start fresh episodes: ...")
def _inexact(scene: Scene) -> None:
    scene.patch.setattr(exactness, "_known_exact", set())
    small = {"n_envs": 4, "steps": 4 * 32, "quiet": False}
    run_small(scene.folder / "new", env=Handle, **small)
    envfleet.resume(scene.folder / "new", env=Handle, steps=2 * 4 * 32)


@shows("a run cannot be resumed with another ...")
def _other_settings(scene: Scene) -> None:
    assert cli.main(["resume", str(scene.run), "--gamma", "0.5"]) == 2
