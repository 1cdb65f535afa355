"""The machine module, with control groups and processes that the tests fake or start."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from envfleet import machine

MIB = 2**20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)


@pytest.fixture
def much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()._replace(total=1000 * MIB, available=900 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


# ---------------------------------------------------------------------------------------------------- cores


CPU_QUOTAS = {
    "version 2": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
    "version 2, no quota": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
    "version 2, root group without the file": ({"proc/self/cgroup": "0::/"}, None),
    "version 2, a parent is stricter": (
        {
            "proc/self/cgroup": "0::/slice/job",
            "sys/fs/cgroup/slice/job/cpu.max": "800000 100000",
            "sys/fs/cgroup/slice/cpu.max": "150000 100000",
        },
        1.5,
    ),
    "version 2, the path is the host's": (
        {"proc/self/cgroup": "0::/docker/abc", "sys/fs/cgroup/cpu.max": "200000 100000"},
        2,
    ),
    "version 2, the path leads outside": (
        {"proc/self/cgroup": "0::/../../other", "sys/fs/cgroup/cpu.max": "200000 100000"},
        2,
    ),
    "version 2 in a hybrid mount": (
        {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/unified/job/cpu.max": "300000 100000"},
        3,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:cpu:/docker/abc\n0::/",
            "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "50000",
        },
        5,
    ),
    "version 1, controllers together": (
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        0.5,
    ),
    "version 1, no quota": (
        {
            "proc/self/cgroup": "4:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        None,
    ),
    "no control groups": ({}, None),
    "nonsense": ({"proc/self/cgroup": "what\n0::/", "sys/fs/cgroup/cpu.max": "x y"}, None),
}


@pytest.mark.parametrize(("files", "quota"), CPU_QUOTAS.values(), ids=CPU_QUOTAS.keys())
@pytest.mark.usefixtures("many_cores")
def test_cores_by_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    root = write(tmp_path, files)
    assert machine.quota_cores(root=root) == quota
    assert machine.usable_cores(root=root) == (64 if quota is None else math.ceil(quota))


def test_a_quota_above_the_affinity_adds_no_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    root = write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"})
    assert machine.usable_cores(root=root) == 2


def test_cores_where_there_is_no_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.usable_cores(root=tmp_path) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.usable_cores(root=tmp_path) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_cores_of_a_process_that_is_bound_to_one() -> None:
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from envfleet import machine; "
    program += "print(machine.usable_cores())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


# --------------------------------------------------------------------------------------------------- memory


MEMORY_LIMITS = {
    "no limit": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, 1000, 900),
    "version 2": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": str(500 * MIB),
            "sys/fs/cgroup/memory.current": str(300 * MIB),
        },
        500,
        200,
    ),
    "version 2, cached files can be dropped": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": str(500 * MIB),
            "sys/fs/cgroup/memory.current": str(300 * MIB),
            "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {100 * MIB}\nactive_file 7",
        },
        500,
        300,
    ),
    "version 2, a parent is fuller": (
        {
            "proc/self/cgroup": "0::/slice/job",
            "sys/fs/cgroup/slice/job/memory.max": str(500 * MIB),
            "sys/fs/cgroup/slice/job/memory.current": str(100 * MIB),
            "sys/fs/cgroup/slice/memory.max": str(800 * MIB),
            "sys/fs/cgroup/slice/memory.current": str(750 * MIB),
        },
        500,
        50,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "3:memory:/job",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(400 * MIB),
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(150 * MIB),
            "sys/fs/cgroup/memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {50 * MIB}",
        },
        400,
        300,
    ),
    "version 1, no limit": (
        {
            "proc/self/cgroup": "3:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(150 * MIB),
        },
        1000,
        900,
    ),
    "more used than allowed": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": str(100 * MIB),
            "sys/fs/cgroup/memory.current": str(101 * MIB),
        },
        100,
        0,
    ),
}


@pytest.mark.parametrize(("files", "total", "available"), MEMORY_LIMITS.values(), ids=MEMORY_LIMITS.keys())
@pytest.mark.usefixtures("much_memory")
def test_memory(tmp_path: Path, files: dict[str, str], total: int, available: int) -> None:
    root = write(tmp_path, files)
    assert machine.total_memory(root=root) == total * MIB
    assert machine.available_memory(root=root) == available * MIB


def test_private_memory_counts_what_is_not_shared(tmp_path: Path) -> None:
    rollup = "55-7f ---p [rollup]\nRss: 900 kB\nShared_Dirty: 800 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 16 kB"
    assert machine.private_memory(7, root=write(tmp_path, {"proc/7/smaps_rollup": rollup})) == 20 * 1024


@pytest.mark.parametrize("portable", [False, True])
def test_private_memory_grows_with_what_a_process_holds(tmp_path: Path, portable: bool) -> None:
    program = "held = bytearray(b'x') * {size}; print(flush=True); input()"
    root = tmp_path if portable else machine.ROOT  # without smaps_rollup, psutil is used
    sizes = []
    for held in (1, 64 * MIB):
        child = subprocess.Popen(
            [sys.executable, "-c", program.format(size=held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        sizes.append(machine.private_memory(child.pid, root=root))
        child.communicate(b"\n")
    assert sizes[0] > 0
    assert 60 * MIB < sizes[1] - sizes[0] < 70 * MIB


def test_private_memory_of_a_process_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert machine.private_memory(child.pid) == 0  # a zombie
    child.wait()
    assert machine.private_memory(child.pid) == 0


def test_private_memory_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(pid: int) -> None:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", refuse)
    assert machine.private_memory(1, root=tmp_path) == 0


# ----------------------------------------------------------------------------------------------- open files


def test_open_files_are_counted() -> None:
    before = machine.open_files()
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        assert machine.open_files() == before + 5
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert machine.open_files() == before


def test_the_limit_of_open_files_is_that_of_this_process() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = soft - 1 if soft != resource.RLIM_INFINITY else 4096
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        assert machine.open_file_limit() == lower
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: unlimited)
    assert machine.open_file_limit() == sys.maxsize
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert machine.open_file_limit() == sys.maxsize


# ---------------------------------------------------------------------------------------------- description


def test_the_description_says_what_benchmarks_need_and_not_where_they_ran(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Quick 9000 @ 5 GHz"})
    described = machine.describe(root=tmp_path)
    assert described["cpu"] == "Quick 9000 @ 5 GHz"
    assert described["python"].endswith(platform.python_version())
    assert {"numpy", "gymnasium"} <= described["libraries"].keys()
    assert machine.describe()["cpu"]
    text = json.dumps(described)
    assert platform.node() not in text
    assert str(Path.home()) not in text
    assert sys.prefix not in text


def test_the_description_leaves_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_DESCRIBED_LIBRARIES", ("numpy", "no-such-library"))
    assert list(machine.describe()["libraries"]) == ["numpy"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_that_is_freed_is_kept_in_threads_too() -> None:
    """Without this, every round requests its 120 MiB from the system again, with a page fault for each 4 KiB."""
    script = """
import resource, threading
import numpy as np
from envfleet.machine import keep_freed_memory
keep_freed_memory()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def rounds():
    [np.ones(15 * 2**17) for _ in range(8)]
    before = faults()
    for _ in range(5): [np.ones(15 * 2**17) for _ in range(8)]
    print(faults() - before)
rounds()
thread = threading.Thread(target=rounds)
thread.start()
thread.join()
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(int(faults) < 1000 for faults in output.split()), output


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("gymnasium.envs.mujoco.half_cheetah_v5", "mujoco"),
        ("gymnasium.envs.classic_control.cartpole", "gymnasium"),
        ("envfleet.environments.gameboy.environment", "pyboy"),
        ("ale_py.env", "ale_py"),
    ],
)
def test_the_version_of_a_simulator(module: str, package: str) -> None:
    assert machine.simulator_versions(module) == {package: metadata.version(package)}


def test_an_environment_of_a_script_has_no_version() -> None:
    assert machine.simulator_versions("__main__") == machine.simulator_versions("my_module") == {}
