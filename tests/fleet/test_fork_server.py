"""One server per process forks all workers; each worker has what a new process of the caller would have."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import envfleet
from envfleet.fleet.backends.fork_server import fork_server
from envfleet.fleet.os_compat import uses_linux
from tests.fleet.simulators import Counter
from tests.waiting import gone, wait_until

ACTIONS = np.zeros(4, np.int64)


class Surroundings(Counter):
    """Reports the process that it lives in."""

    def __init__(self) -> None:
        super().__init__()
        sys.stdout.write("built here\n")
        sys.stdout.flush()

    def seen(self, variable: str) -> tuple[str | None, str, tuple[int, int], int, bool]:
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        threads = int(os.environ["OMP_NUM_THREADS"])
        return os.environ.get(variable), str(Path.cwd()), open_files, threads, "torch" in sys.modules


class Exits(Counter):
    """Ends its process in the first step."""

    def step(self, action: Any) -> Any:
        os._exit(7)


def make(env: Any = Counter, **settings: Any) -> envfleet.Fleet:
    return envfleet.make(env, 4, backend="processes", workers=2, start_method="forkserver", quiet=True, **settings)


def parents(fleet: envfleet.Fleet) -> set[int]:
    return {psutil.Process(worker.pid).ppid() for worker in fleet.statistics().workers}


def test_one_server_for_all_fleets() -> None:
    with make() as one, make() as other:
        assert parents(one) == parents(other)
        (server,) = map(psutil.Process, parents(one))
        assert server.ppid() == os.getpid()
        assert server.num_threads() == 1  # or a fork could copy a lock that nobody releases


def test_a_worker_has_the_current_variables_folder_streams_and_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with make() as fleet:
        before = parents(fleet)
    monkeypatch.setenv("ENVFLEET_TEST", "later \udcff")
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with make(Surroundings) as fleet:
            values = fleet.call("seen", "ENVFLEET_TEST")
            assert {value[:4] for value in values} == {("later \udcff", str(tmp_path), (soft - 1, hard), 1)}
            assert parents(fleet) != before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert capfd.readouterr().out.count("built here") == 4


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "PYTHONWARNINGS"])
def test_variables_that_only_a_new_program_reads_start_a_new_server(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make() as before:
        monkeypatch.setenv(variable, "ignore")
        with make() as fleet:
            assert parents(fleet) != parents(before)
            before.reset()  # it keeps its server
            before.step(ACTIONS)
            assert before.statistics().restarts == 0


def test_a_deleted_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with make() as fleet:
        assert fleet.reset()[0][:, 0].tolist() == [0, 0, 0, 0]


def test_the_exit_code_of_a_worker_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with make(Exits, restarts=1) as fleet:
        fleet.reset()
        with pytest.raises(envfleet.WorkerError, match="it exited with code 7"):
            while True:
                fleet.step(ACTIONS)


def test_a_killed_server_is_replaced_and_its_workers_restart() -> None:
    with make() as fleet:
        fleet.reset()
        (server,) = map(psutil.Process, parents(fleet))
        server.kill()
        old = [worker.pid for worker in fleet.statistics().workers]
        assert wait_until(lambda: gone(old))
        assert fleet.step(ACTIONS)[4]["restarted"].all()
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [0, 0, 0, 0]
        assert parents(fleet).isdisjoint({server.pid})


def test_a_fleet_made_right_after_the_server_was_killed() -> None:
    with make() as fleet:
        (server,) = map(psutil.Process, parents(fleet))
    server.kill()
    with make() as fleet:
        assert parents(fleet).isdisjoint({server.pid})


def test_a_start_that_was_interrupted_does_not_shift_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    make().close()
    receive = socket.recv_fds

    def interrupted(*_: Any) -> Any:
        monkeypatch.setattr(socket, "recv_fds", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(socket, "recv_fds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make()
    with make() as fleet:
        assert set(fleet.apply(lambda _: os.getpid())) == {worker.pid for worker in fleet.statistics().workers}


def test_a_caller_that_is_gone_before_its_answer_ends_the_server_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make().close()
    server = fork_server()
    server._popen.send_signal(signal.SIGSTOP)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(socket, "recv_fds", interrupted)
        make()
    server._socket.close()
    server._popen.send_signal(signal.SIGCONT)
    assert server._popen.wait() == 0
    assert "Traceback" not in capfd.readouterr().err


def test_modules_are_imported_once_by_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the caller's sys.path; later workers inherit it, and the server continues without a missing one."""
    (tmp_path / "heavy_library.py").write_text("import os\nMADE_IN = os.getpid()\n")
    monkeypatch.syspath_prepend(tmp_path)
    fork_server().load(["heavy_library", "there_is_no_such_library"])

    def imported_by(env: Any) -> int:
        return int(sys.modules["heavy_library"].MADE_IN)

    with make() as fleet:
        assert set(fleet.apply(imported_by)) == parents(fleet)


SCRIPT = """
    import os, sys
    sys.path.insert(0, {root!r})
    import psutil
    import envfleet
    from tests.fleet.simulators import Counter

    def parents():
        with envfleet.make(Counter, 2, backend="processes", start_method="forkserver") as fleet:
            return {{psutil.Process(worker.pid).ppid() for worker in fleet.statistics().workers}}

    before = parents()
    child = os.fork()
    theirs = parents()
    if child == 0:
        print("child", theirs.isdisjoint(before), "torch" in sys.modules, flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
    print("parent", theirs == before == parents(), flush=True)
"""


@pytest.mark.skipif(not uses_linux(), reason="other systems spawn")
def test_a_forked_caller_has_a_server_of_its_own() -> None:
    script = textwrap.dedent(SCRIPT).format(root=str(Path(__file__).parents[2]))
    command = [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["child True False", "parent True"], done.stderr
    assert "ResourceWarning" not in done.stderr


@pytest.fixture(autouse=True)
def _no_worker_left() -> Iterator[None]:
    yield
    server = psutil.Process(fork_server()._popen.pid)
    assert wait_until(lambda: not server.children())
