"""Every fault of a simulator, a worker or a caller, on every backend where it can happen."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

import envfleet
from envfleet.fleet import watch
from envfleet.fleet.backends.processes import ProcessesBackend
from envfleet.fleet.supervisor import Supervisor
from envfleet.fleet.worker import Worker
from tests.fleet.backends import BACKENDS, same, use
from tests.fleet.simulators import (
    Bad,
    Counter,
    DiesAlways,
    DiesOnce,
    DiesTwice,
    EngineError,
    EngineFails,
    HangsOnce,
    Nested,
    Raises,
    RaisesOnce,
    Talks,
)
from tests.hanging import hang, take_long
from tests.waiting import gone, wait_until

ACTIONS = np.arange(4)


def make(env: Any, backend: dict[str, Any], **settings: Any) -> envfleet.Fleet:
    return envfleet.make(env, 4, group_size=2, seed=10, **{**backend, **settings})


def cut_step(fleet: envfleet.Fleet, most: int = 12) -> tuple[int, Any]:
    """Step until a result has `restarted`; return the number of that step and its result."""
    for step in range(most):
        result = fleet.step(ACTIONS)
        if "restarted" in result[4]:
            return step, result
    raise AssertionError("nothing was restarted")


# --- an environment raises


def test_error_says_which_environment_when_and_why(backend: dict[str, Any]) -> None:
    fleet = make(Raises, backend)
    fleet.reset(tasks=["a", "b", "c", "d"])
    with pytest.raises(envfleet.EnvError, match="the engine exploded") as caught:
        for _ in range(5):
            fleet.step(ACTIONS)
    context = caught.value.context
    assert (context.env_index, context.operation, context.seed, context.task) == (0, "step", 10, "a")
    assert (context.step, int(context.action)) == (3, 0)
    assert 'raise ValueError("the engine exploded")' in caught.value.original  # the user's own line
    assert "envfleet/fleet" not in caught.value.original  # and none of ours
    fleet.reset()  # the fleet is still usable
    assert fleet.step(ACTIONS)[0].shape == (4, 3)
    fleet.close()


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_attributes_of_the_environments_exception_are_kept(on_error: str, backend: dict[str, Any]) -> None:
    with make(EngineFails, backend, on_error=on_error, restarts=envfleet.Restarts(0)) as fleet:
        fleet.reset()
        with pytest.raises(EngineError, match="EngineError: code 7") as caught:
            fleet.step(ACTIONS)
    assert (caught.value.code, caught.value.parts) == (7, ["valve", "pump"])
    assert not hasattr(caught.value, "lock")  # it cannot be pickled


@pytest.mark.parametrize("where", ["make", "reset"])
def test_error_in_make_and_reset(where: str, backend: dict[str, Any]) -> None:
    with pytest.raises(envfleet.EnvError, match=f"during {where}") as caught:
        fleet = make(lambda: Raises(where=where), backend)
        try:
            fleet.reset()
        finally:
            fleet.close()
    assert caught.value.context.env_index == 0


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_on_error_restart_truncates_the_episode(mode: str, backend: dict[str, Any], tmp_path: Path) -> None:
    fleet = make(
        [lambda: Counter(), lambda: RaisesOnce(str(tmp_path / "flag")), lambda: Counter(), lambda: Counter()],
        backend,
        on_error="restart",
        autoreset=mode,
    )
    fleet.reset()
    step, (observations, rewards, terminated, truncated, infos) = cut_step(fleet)
    assert step == 3
    assert infos["restarted"].tolist() == [False, True, False, False]
    assert not terminated.any()
    assert truncated.tolist() == [False, True, False, False]
    assert rewards[1] == 0.0
    if mode == "same_step":
        assert infos["final_obs"][1][0] == 3  # the last observation before the lost step
        assert observations[:, 0].tolist() == [4, 0, 4, 4]
    else:
        assert observations[:, 0].tolist() == [4, 3, 4, 4]
    if mode == "disabled":
        fleet.reset(options={"reset_mask": truncated})
    else:
        fleet.step(ACTIONS)
    assert fleet.get_attr("count") == (
        (5, 0, 5, 5) if mode == "next_step" else (5, 1, 5, 5) if mode == "same_step" else (4, 0, 4, 4)
    )
    fleet.close()


def test_an_environment_that_always_fails_ends_in_an_error(backend: dict[str, Any]) -> None:
    fleet = make(Raises, backend, on_error="restart", restarts=envfleet.Restarts(limit=2, backoff=0.01))
    fleet.reset()
    with pytest.raises(envfleet.EnvError, match="restarted 2 times within 300 s"):
        for _ in range(40):
            fleet.step(ACTIONS)
    fleet.close()


# --- a worker dies


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_killed_worker_is_restarted_and_the_rest_untouched(
    mode: str, processes: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(env: Any, backend: dict[str, Any]) -> tuple[list[Any], envfleet.FleetStatistics]:
        fleet = make([env, Counter, Counter, Counter], backend, autoreset=mode)
        fleet.reset()
        results = [fleet.step(ACTIONS) for _ in range(4)]
        statistics = fleet.statistics()
        fleet.close()
        return results, statistics

    with caplog.at_level(logging.WARNING, "envfleet"):
        results, statistics = run(lambda: DiesOnce(str(tmp_path / "flag")), processes)
    untouched, _ = run(Counter, {"backend": "sequential"})
    observations, rewards, terminated, truncated, infos = results[3]
    assert infos["restarted"].tolist() == [True, True, False, False]  # the group of the dead worker
    assert infos["_count"].tolist() == [False, False, True, True]  # the dead worker's infos are gone
    assert truncated.tolist() == [True, True, False, False]
    assert not terminated.any()
    assert rewards[:2].tolist() == [0.0, 0.0]
    last = [final[0] for final in infos["final_obs"][:2]] if mode == "same_step" else observations[:2, 0].tolist()
    assert last == [3, 3]
    assert same(observations[2:], untouched[3][0][2:])
    assert same(rewards[2:], untouched[3][1][2:])
    assert statistics.restarts == 1
    assert "worker 0 is restarted" in caplog.text
    assert "SIGKILL" in caplog.text


def test_worker_killed_from_outside_between_steps_and_during_reset(processes: dict[str, Any]) -> None:
    fleet = make(Counter, processes)
    fleet.reset()
    fleet.step(ACTIONS)
    kill_worker(fleet, 1)
    result = fleet.step(ACTIONS)
    assert result[4]["restarted"].tolist() == [False, False, True, True]
    assert result[3].tolist() == [False, False, True, True]
    assert fleet.step(ACTIONS)[0][:, 0].tolist() == [3, 3, 0, 0]
    kill_worker(fleet, 0)
    observations, infos = fleet.reset(seed=10)
    assert observations[:, 0].tolist() == [0, 0, 0, 0]
    assert "restarted" not in infos  # a reset loses nothing
    fleet.close()


def test_worker_killed_while_an_episode_wants_a_reset(processes: dict[str, Any]) -> None:
    """The lost step was only a reset, so no episode is truncated or invented."""
    fleet = make(lambda: Counter(length=2), processes)
    fleet.reset()
    fleet.step(ACTIONS)
    assert fleet.step(ACTIONS)[2].all()
    kill_worker(fleet, 0)
    observations, _, terminated, truncated, infos = fleet.step(ACTIONS)
    assert infos["restarted"].tolist() == [True, True, False, False]
    assert not terminated.any() and not truncated.any()
    assert observations[:, 0].tolist() == [0, 0, 0, 0]
    fleet.close()


def test_worker_killed_while_groups_stream(processes: dict[str, Any]) -> None:
    fleet = make(Counter, processes)
    fleet.reset()
    fleet.send(ACTIONS[:2], [0, 1])
    assert fleet.recv(2)[4]["env_id"].tolist() == [0, 1]
    kill_worker(fleet, 0)  # hosts environments 0 and 1, which have no pending step
    fleet.send(ACTIONS[2:], [2, 3])
    assert "restarted" not in fleet.recv(2)[4]
    fleet.send(ACTIONS[:2], [0, 1])
    observations, _, _, truncated, infos = fleet.recv(2)
    assert truncated.all() and infos["restarted"].all()
    assert observations[:, 0].tolist() == [1, 1]
    fleet.close()


def test_worker_that_always_dies_ends_in_an_error(processes: dict[str, Any]) -> None:
    fleet = make(DiesAlways, processes, restarts=envfleet.Restarts(limit=2, backoff=0.01))
    fleet.reset()
    with pytest.raises(envfleet.WorkerError, match="died 3 times within 300 s"):
        for _ in range(20):
            fleet.step(ACTIONS)
    with pytest.raises(envfleet.ProtocolError, match="broken"):
        fleet.step(ACTIONS)
    fleet.close()


def test_a_reset_that_always_kills_its_worker_ends_in_an_error(processes: dict[str, Any]) -> None:
    """However far apart the deaths are."""
    fleet = make(DiesInReset, processes, restarts=envfleet.Restarts(limit=2, within=1e-9, backoff=0.0))
    with pytest.raises(envfleet.WorkerError, match="died 3 times during the same Reset"):
        fleet.reset()
    with pytest.raises(envfleet.ProtocolError, match="the fleet is broken\n"):
        fleet.step(ACTIONS)
    fleet.close()


class DiesInReset(Counter):
    def reset(self, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def test_worker_killed_while_actions_are_objects(processes: dict[str, Any]) -> None:
    with make(Talks, processes) as fleet:
        fleet.reset()
        fleet.step(("hello",) * 4)
        kill_worker(fleet, 0)
        _, _, _, truncated, infos = fleet.step(("hello",) * 4)
        assert truncated.tolist() == infos["restarted"].tolist() == [True, True, False, False]
        assert fleet.step(("hello",) * 4)[0]["n"][:, 0].tolist() == [0, 0, 3, 3]


def test_worker_killed_before_a_reset_of_some(processes: dict[str, Any]) -> None:
    with make(Counter, processes) as fleet:
        fleet.reset()
        for _ in range(2):
            fleet.step(ACTIONS)
        kill_worker(fleet, 0)
        observations, _ = fleet.reset(options={"reset_mask": np.array([True, False, False, False])})
        assert observations[:, 0].tolist() == [0, 2, 2, 2]
        _, _, _, truncated, infos = fleet.step(ACTIONS)
        assert truncated.tolist() == infos["restarted"].tolist() == [True, True, False, False]
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [0, 0, 4, 4]


def test_worker_that_dies_again_while_it_is_restarted(processes: dict[str, Any], tmp_path: Path) -> None:
    restarts = envfleet.Restarts(limit=2, backoff=0.01)
    flag = str(tmp_path / "flag")
    fleet = make([lambda: DiesTwice(flag), Counter, Counter, Counter], processes, restarts=restarts)
    fleet.reset()
    step, result = cut_step(fleet)
    assert step == 3
    assert result[4]["restarted"].tolist() == [True, True, False, False]
    assert fleet.statistics().restarts == 2
    assert fleet.step(ACTIONS)[0][:, 0].tolist() == [0, 0, 5, 5]
    fleet.close()


def test_an_environment_without_a_space_is_a_named_error(backend: dict[str, Any]) -> None:
    with pytest.raises(envfleet.EnvError, match=r"its action_space is None, expected a gymnasium\.Space") as caught:
        make(Spaceless, backend)
    assert caught.value.context.operation == "make" and caught.value.hint == "set self.action_space in __init__"


class Spaceless(Counter):
    def __init__(self) -> None:
        super().__init__()
        del self.action_space


@pytest.mark.parametrize("name", ["threads", "fork"])
def test_any_error_of_a_worker_that_starts_reaches_the_caller(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def attach(*_: Any) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(Worker, "attach", attach)
    with pytest.raises(envfleet.WorkerError, match="a worker failed: OSError: no memory"):
        make(Counter, BACKENDS[name])


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["threads", "fork", "forkserver"])
def test_a_fleet_that_cannot_be_made_closes_its_environments(
    name: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Supervisor.stop
    monkeypatch.setattr(Supervisor, "stop", lambda self, _: stop(self, 60.0))  # on a busy machine too
    environments = [lambda: Closes(tmp_path), lambda: FailsLater(tmp_path)]
    with pytest.raises(envfleet.EnvError, match="no engine"):
        envfleet.make(environments, **{**BACKENDS[name], "workers": workers})
    assert wait_until((tmp_path / "closed").exists)


class Closes(Counter):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        (folder / "built").touch()

    def close(self) -> None:
        (self.folder / "closed").touch()


class FailsLater(Counter):
    def __init__(self, folder: Path) -> None:
        assert wait_until((folder / "built").exists)
        raise RuntimeError("no engine")


def test_worker_that_dies_while_it_builds() -> None:
    def build() -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(envfleet.WorkerError, match=r"died while it built its environments.*SIGSEGV"):
        envfleet.make(build, 2, backend="processes")


def kill_worker(fleet: envfleet.Fleet, index: int) -> None:
    process = psutil.Process(fleet.statistics().workers[index].pid)
    process.kill()
    assert wait_until(lambda: gone([process.pid]))


# --- a step hangs


def test_hung_worker_shows_its_stack_and_is_restarted(
    processes: dict[str, Any], limits_hold: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environments = [lambda: HangsOnce(limits_hold), Counter, Counter, Counter]
    fleet = make(environments, processes, timeout=envfleet.Timeouts(step=1.0))
    fleet.reset()
    with caplog.at_level(logging.WARNING, "envfleet"):
        step, (_, _, terminated, truncated, infos) = cut_step(fleet)
    assert step == 3 and not terminated.any()
    assert same(truncated, infos["restarted"]) and truncated.sum() == 2
    assert "sleep_for_an_hour" in caplog.text  # its Python stack
    fleet.close()


@pytest.mark.parametrize("name", ["sequential", "threads"])
def test_hang_that_cannot_be_killed_is_a_named_error(
    name: str, limits_hold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make(lambda: HangsOnce(limits_hold), use(name, monkeypatch), timeout=envfleet.Timeouts(step=0.3))
    fleet.reset()
    with pytest.raises(envfleet.EnvHungError, match=r"did not return within 0\.3 s") as caught:
        for _ in range(5):
            fleet.step(ACTIONS)
    assert "sleep_for_an_hour" in caught.value.original
    assert caught.value.context.seed == 10 + caught.value.context.env_index
    assert int(caught.value.context.action) == caught.value.context.env_index
    with pytest.raises(envfleet.ProtocolError, match="broken"):
        fleet.step(ACTIONS)
    fleet.close()


def test_hang_is_noticed_in_a_program_that_ignores_ctrl_c(limits_hold: Path) -> None:
    """A shell starts background programs that way."""
    before = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.getsignal(signal.SIGUSR2)]
    try:
        fleet = make(lambda: HangsOnce(limits_hold), {"backend": "sequential"}, timeout=0.3)
        fleet.reset()
        with pytest.raises(envfleet.EnvHungError, match=r"did not return within 0\.3 s"):
            for _ in range(5):
                fleet.step(ACTIONS)
        fleet.close()
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGUSR2, before[1])


def test_hang_in_a_thread_that_is_not_the_main_one(limits_hold: Path) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        fleet = make(lambda: BusyLoop(limits_hold), {"backend": "sequential"}, timeout=0.3)
        fleet.reset()
        try:
            for _ in range(5):
                fleet.step(ACTIONS)
        except envfleet.EnvHungError as error:
            caught.append(error)
        fleet.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(100)
    assert len(caught) == 1


class BusyLoop(HangsOnce):
    def fail(self) -> None:
        with take_long(self.mark):
            while True:
                time.sleep(0.01)


def test_creation_that_hangs_is_a_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, hello = tmp_path / "hangs", ProcessesBackend.hello

    def hello_once_it_hangs(backend: ProcessesBackend, index: int, seconds: float | None) -> Any:
        assert wait_until(mark.exists)  # starting a process takes time
        return hello(backend, index, seconds)

    def build() -> Any:
        hang(mark)

    monkeypatch.setattr(ProcessesBackend, "hello", hello_once_it_hangs)
    with pytest.raises(envfleet.EnvHungError, match=r"did not build its environments within 0\.3 s") as caught:
        envfleet.make(build, 1, backend="processes", timeout=envfleet.Timeouts(start=0.3))
    assert "sleep_for_an_hour" in caught.value.original


def test_creation_that_hangs_in_the_caller_shows_its_stack(limits_hold: Path) -> None:
    def build() -> Any:
        hang(limits_hold)

    with pytest.raises(envfleet.EnvHungError, match=r"did not build its environments within 0\.3 s") as caught:
        envfleet.make(build, 4, backend="sequential", timeout=envfleet.Timeouts(start=0.3), seed=7)
    assert "sleep_for_an_hour" in caught.value.original
    assert "one of environments 0 to 3, during make, seed 7" in str(caught.value)


def test_slow_group_is_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is per environment: eight of them may take eight times as long.

    The watchdog's clock advances 20 s in the step of each environment and never otherwise.
    """
    steps, looks = tmp_path / "steps", tmp_path / "looks"

    def seconds() -> float:
        append(looks)
        return 20.0 * size(steps)

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=seconds))
    monkeypatch.setattr(watch, "LONGEST_GAP", 1000.0)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.005)
    fleet = envfleet.make(lambda: Slow(steps, looks), 8, backend="processes", group_size=8, timeout=60.0)
    fleet.reset()
    assert fleet.step(np.zeros(8, np.int64))[0][:, 0].tolist() == [1] * 8
    assert size(steps) == 8
    fleet.close()


class Slow(Counter):
    """Advances the watchdog's clock in its step, and returns once the watchdog has looked."""

    def __init__(self, steps: Path, looks: Path) -> None:
        super().__init__()
        self.steps, self.looks = steps, looks

    def step(self, action: Any) -> Any:
        append(self.steps)
        before = size(self.looks)
        assert wait_until(lambda: size(self.looks) > before + 1)
        return super().step(action)


def append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b".")


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


# --- the caller exits

SCRIPT = """
import sys, time, os, numpy as np
sys.path.insert(0, {root!r})
import envfleet
from tests.fleet.simulators import Counter
if __name__ == "__main__":
    fleet = envfleet.make(Counter, 4, backend="processes", workers=2, group_size=2, start_method={method!r})
    fleet.reset()
    fleet.step(np.zeros(4, np.int64))
    print(*[worker.pid for worker in fleet.statistics().workers], flush=True)
    {then}
"""


def run_script(method: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    root = str(Path(__file__).parents[2])
    script = SCRIPT.format(root=root, method=method, then=textwrap.dedent(then))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    servers = [child.pid for child in psutil.Process(process.pid).children() if child.name() == "envfleet-forks"]
    return process, [*map(int, line.split()), *servers]


NEW_INTERPRETERS = pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.proof)])


def named_memory(pid: int) -> list[str]:
    """Return the named shared memory that a process has mapped; it would remain if the process were killed."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/dev/shm/" in line and not line.endswith("(deleted)")]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_no_orphan_when_the_parent_is_killed(method: str) -> None:
    process, pids = run_script(method, "time.sleep(600)")
    assert len(pids) == (3 if method == "forkserver" else 2) and not any(gone([pid]) for pid in pids)
    assert not any(named_memory(pid) for pid in (process.pid, *pids))
    process.kill()
    process.communicate()
    assert wait_until(lambda: gone(pids))


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("raise RuntimeError('mine')", 1),
        ("del fleet; time.sleep(0.5); sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("fleet.close(); fleet.close()", 0),
    ],
    ids=["exception", "del", "exit", "double-close"],
)
@NEW_INTERPRETERS
def test_everything_is_closed_when_the_caller_ends(method: str, then: str, code: int) -> None:
    process, pids = run_script(method, then)
    _, errors = process.communicate()
    assert process.returncode == code
    assert wait_until(lambda: gone(pids))
    ours = [line for line in errors.splitlines() if "envfleet" in line and "RuntimeError" not in line]
    assert len(ours) <= 1, errors


@NEW_INTERPRETERS
def test_ctrl_c_closes_everything_with_one_traceback(method: str) -> None:
    process, pids = run_script(method, "time.sleep(600)")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert wait_until(lambda: gone(pids))
    assert errors.count("Traceback") == 1 and "KeyboardInterrupt" in errors


def test_fleet_made_in_a_short_lived_thread_keeps_its_workers(processes: dict[str, Any]) -> None:
    made: list[envfleet.Fleet] = []
    thread = threading.Thread(target=lambda: made.append(make(Counter, processes)))
    thread.start()
    thread.join()
    fleet = made[0]
    fleet.reset()
    time.sleep(0.2)
    fleet.step(ACTIONS)
    assert fleet.statistics().restarts == 0
    fleet.close()


def test_closing_leaves_no_process_thread_or_descriptor(backend: dict[str, Any]) -> None:
    make(Counter, backend).close()  # a warm-up: the launcher thread, for example, stays
    before = held()
    for _ in range(3):
        fleet = make(Counter, backend)
        fleet.reset()
        fleet.step(ACTIONS)
        fleet.close()
    # Leftovers of earlier tests may end meanwhile, so less is fine. Three leaking fleets would add something each.
    assert wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True))), (held(), before)


def held() -> tuple[int, int, int]:
    """Return the numbers of file descriptors, threads (of any library) and child processes of this process."""
    gc.collect()
    me = psutil.Process()
    return me.num_fds(), me.num_threads(), len(me.children(recursive=True))


# --- bad observations, actions and calls


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shape", r"received shape \(4,\).*\(3,\) was declared"),
        ("dtype", "received dtype float64.*float32 was declared"),
        ("nan", r"received NaN at index \(1,\)"),
        ("bounds", r"received -5.0 at index \(2,\).*outside \[0.0, 1000.0\]"),
        ("type", "received list"),
        ("reward", "bad reward: expected a number, received NaN"),
    ],
)
def test_bad_observation_is_a_named_error(what: str, message: str, backend: dict[str, Any]) -> None:
    if backend.get("start_method") == "spawn" and what not in ("shape", "nan"):
        pytest.skip("the group is the same everywhere; two faults are enough for the slower start")
    fleet = make([Counter, Counter, Counter, lambda: Bad(what)], backend, validate="strict")
    fleet.reset()
    fleet.step(ACTIONS)
    with pytest.raises(envfleet.ObservationError, match=message) as caught:
        fleet.step(ACTIONS)
    assert (caught.value.context.env_index, caught.value.context.seed, caught.value.context.step) == (
        3,
        13,
        1,
    )
    assert int(caught.value.context.action) == 3
    fleet.close()


def test_bad_observation_at_reset_and_in_a_dict() -> None:
    fleet = make(lambda: Bad("nan", at=0), {"backend": "sequential"})
    with pytest.raises(envfleet.ObservationError, match="during reset"):
        fleet.reset()
    fleet.close()
    fleet = make(Forgetful, {"backend": "sequential"})
    with pytest.raises(envfleet.ObservationError, match="expected an entry 'many'"):
        fleet.reset()
    fleet.close()


class Forgetful(Nested):
    def observe(self) -> Any:
        observation = super().observe()
        del observation["many"]
        return observation


def test_bad_observation_with_restart_is_cut_like_an_error(backend: dict[str, Any]) -> None:
    fleet = make([Counter, lambda: Bad("nan"), Counter, Counter], backend, on_error="restart")
    fleet.reset()
    fleet.step(ACTIONS)
    observations, _, _, truncated, infos = fleet.step(ACTIONS)
    assert truncated.tolist() == infos["restarted"].tolist() == [False, True, False, False]
    assert observations[1, 0] == 1 and not np.isnan(observations).any()
    fleet.close()


def test_checks_can_be_switched_off() -> None:
    for off in (False, "off"):
        fleet = make(lambda: Bad("nan"), {"backend": "sequential"}, validate=off)
        fleet.reset()
        fleet.step(ACTIONS)
        assert np.isnan(fleet.step(ACTIONS)[0]).any()
        fleet.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(3, np.int64), r"shape \(3,\), expected \(4,\)"),
        (np.zeros((4, 1), np.int64), r"shape \(4, 1\)"),
        (np.zeros(4), "float64, expected int64"),
        (["a", "b", "c", "d"], "expected int64"),
        (None, "expected"),
        ([[1], [1, 2], [1], [1]], "array"),
    ],
)
def test_wrong_actions_are_refused_and_nothing_is_lost(actions: Any, message: str) -> None:
    fleet = make(Counter, {"backend": "sequential"})
    fleet.reset()
    with pytest.raises(envfleet.ActionError, match=message):
        fleet.step(actions)
    assert fleet.step(ACTIONS)[0][:, 0].tolist() == [1] * 4
    fleet.close()


def test_calls_at_the_wrong_moment(backend: dict[str, Any]) -> None:
    fleet = make(Counter, backend)
    with pytest.raises(envfleet.ProtocolError, match=r"not reset yet\nhint: call reset\(\) first"):
        fleet.step(ACTIONS)
    fleet.reset()
    with pytest.raises(envfleet.ProtocolError, match="step_wait"):
        fleet.step_wait()
    with pytest.raises(envfleet.ProtocolError, match="recv"):
        fleet.recv()
    fleet.step_async(ACTIONS)
    with pytest.raises(envfleet.ProtocolError, match=r"hint: call step_wait\(\) first"):
        fleet.step_async(ACTIONS)
    with pytest.raises(envfleet.ProtocolError, match="reset"):
        fleet.reset()
    with pytest.raises(envfleet.ProtocolError, match="call"):
        fleet.call("render")
    fleet.step_wait()
    fleet.send(ACTIONS[:2], [0, 1])
    with pytest.raises(envfleet.ProtocolError, match="have not answered yet"):
        fleet.send(ACTIONS[:2], [0, 1])
    with pytest.raises(envfleet.SettingsError, match="2 environments are under way"):
        fleet.recv(3)
    fleet.recv()
    fleet.close()
    fleet.close()
    for call in (fleet.reset, fleet.render, fleet.state, lambda: fleet.step(ACTIONS), fleet.recv):
        with pytest.raises(envfleet.ClosedError, match="closed fleet"):
            call()


def test_a_dead_worker_wakes_its_caller_once() -> None:
    """A worker that moved to another host stays dead here; waiting for the others must not spin."""
    with make(Counter, {"backend": "processes"}, workers=2) as fleet:
        fleet.reset()
        backend = fleet._supervisor.backend
        assert isinstance(backend, ProcessesBackend)
        backend.kill(0)
        assert wait_until(lambda: not backend.wait(0.0) and not backend._poll.poll(0))


def test_an_error_of_a_setter_and_a_result_that_cannot_be_sent_are_those_of_the_environment(
    processes: dict[str, Any],
) -> None:
    with make(Stubborn, processes) as fleet:
        fleet.reset()
        with pytest.raises(envfleet.EnvError, match=r"(?s)not today.*during set_attr of 'mood'"):
            fleet.set_attr("mood", 1)
        with pytest.raises(envfleet.EnvError, match="its result cannot be sent to the caller: TypeError") as caught:
            fleet.call("lock")
        assert caught.value.context.operation == "call of 'lock'"
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [1] * 4


class Stubborn(Counter):
    @property
    def mood(self) -> int:
        return 0

    @mood.setter
    def mood(self, value: int) -> None:
        raise ValueError("not today")

    def lock(self) -> Any:
        return threading.Lock()


def test_errors_survive_the_way_from_a_worker() -> None:
    error = envfleet.EnvHungError("late", envfleet.EnvContext(3, "step", 7, "t", 5, 1), original="stack", hint="wait")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.context == error.context
