"""The cores, memory and open files that this process may actually use.

Containers and schedulers give a process less than the machine has. So cores are counted by affinity and by
the CPU quota of every control group (version 1 and 2) above this process, and memory by what those groups
still allow. Every function that reads such files takes `root`, so that tests can provide their own files.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

__all__ = [
    "affinity_cores",
    "available_memory",
    "cpu_model",
    "describe",
    "keep_freed_memory",
    "open_file_limit",
    "open_files",
    "physical_cores",
    "private_memory",
    "quota_cores",
    "return_freed_memory",
    "simulator_versions",
    "total_memory",
    "usable_cores",
]

ROOT = Path("/")
_CGROUP_MOUNT = "sys/fs/cgroup"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # as <malloc.h> numbers them
_DESCRIBED_LIBRARIES = ("gymnasium", "numba", "numpy", "torch")
# Environments whose simulator is a separate package: module of the environment -> possible package names.
_SIMULATORS = {
    "envfleet.environments.gameboy": ("pyboy",),
    "envfleet.environments.procgen": ("procgen-mirror", "procgen-gym"),
    "gymnasium.envs.box2d": ("Box2D", "box2d-py"),
    "gymnasium.envs.mujoco": ("mujoco",),
}


# ---------------------------------------------------------------------------------------------------- cores


def usable_cores(*, root: Path = ROOT) -> int:
    """The number of cores that this process may keep busy; at least 1."""
    quota = quota_cores(root=root)
    # Rounded up: a quota of 1.5 cores is used in full only by two workers.
    cores = affinity_cores() if quota is None else min(affinity_cores(), math.ceil(quota))
    return max(1, cores)


def affinity_cores() -> int:
    """The number of logical cores that the scheduler lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores() -> int | None:
    """The number of physical cores, or None if the system does not report it."""
    cores: int | None = psutil.cpu_count(logical=False)
    return cores


def quota_cores(*, root: Path = ROOT) -> float | None:
    """CPU quota set by the control groups, in cores; None without a quota."""
    quotas = []
    for group in _unified_groups(root):
        quota, _, period = (_read(group / "cpu.max") or "max").partition(" ")
        quotas.append(_ratio(quota, period))
    for group in _legacy_groups(root, "cpu"):
        quotas.append(_ratio(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota is not None), default=None)


def _ratio(quota: str | None, period: str | None) -> float | None:
    quota_us, period_us = _number(quota), _number(period)
    if quota_us is None or quota_us <= 0 or not period_us:  # version 1 writes -1 for 'no quota'
        return None
    return quota_us / period_us


# --------------------------------------------------------------------------------------------------- memory


def total_memory(*, root: Path = ROOT) -> int:
    """Bytes of memory that this process could use if nothing else ran."""
    limits = [limit for limit, _ in _memory_groups(root)]
    return min([int(psutil.virtual_memory().total), *limits])


def available_memory(*, root: Path = ROOT) -> int:
    """Bytes of memory that this process can still allocate without swapping or being killed."""
    rooms = [max(0, limit - used) for limit, used in _memory_groups(root)]
    return min([int(psutil.virtual_memory().available), *rooms])


def private_memory(pid: int, *, root: Path = ROOT) -> int:
    """Bytes that would be freed if process `pid` ended; 0 if it is gone or cannot be inspected."""
    try:
        lines = (root / "proc" / str(pid) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return _private_memory_portable(pid)
    private = ("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(private))


def _private_memory_portable(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def _memory_groups(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, usage) in bytes of each control group that limits memory."""
    for group in _unified_groups(root):
        limit, used = _number(_read(group / "memory.max")), _number(_read(group / "memory.current"))
        if limit is not None and used is not None:
            yield limit, used - _reclaimable(group, "inactive_file")
    for group in _legacy_groups(root, "memory"):
        limit = _number(_read(group / "memory.limit_in_bytes"))
        used = _number(_read(group / "memory.usage_in_bytes"))
        if limit is not None and used is not None:
            yield limit, used - _reclaimable(group, "total_inactive_file")


def _reclaimable(group: Path, key: str) -> int:
    # The kernel counts cached file pages as used, although it drops them when memory gets short.
    for line in (_read(group / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


# ------------------------------------------------------------------------------------------- control groups


def _unified_groups(root: Path) -> Iterator[Path]:
    """The version 2 groups of this process, its own first, then each parent."""
    for identifier, _, path in _memberships(root):
        if identifier == "0":
            for mount in (root / _CGROUP_MOUNT, root / _CGROUP_MOUNT / "unified"):
                yield from _lineage(mount, path)


def _legacy_groups(root: Path, controller: str) -> Iterator[Path]:
    """The version 1 groups of this process under one controller, its own first, then each parent."""
    for identifier, controllers, path in _memberships(root):
        if identifier != "0" and controller in controllers.split(","):
            for name in dict.fromkeys((controllers, controller)):
                if (root / _CGROUP_MOUNT / name).is_dir():
                    yield from _lineage(root / _CGROUP_MOUNT / name, path)
                    break


def _memberships(root: Path) -> list[tuple[str, str, str]]:
    """The lines of /proc/self/cgroup as (hierarchy, controllers, path)."""
    lines = (_read(root / "proc/self/cgroup") or "").splitlines()
    parts = [line.split(":", 2) for line in lines]
    return [(part[0], part[1], part[2]) for part in parts if len(part) == 3]


def _lineage(mount: Path, path: str) -> Iterator[Path]:
    # Inside a container the path may be the host's, which is not mounted here. Skip folders that do not exist:
    # the mount itself is then the container's own group.
    names = [name for name in path.split("/") if name and name != ".."]
    for length in range(len(names), -1, -1):
        group = mount.joinpath(*names[:length])
        if group.is_dir():
            yield group


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:  # "max": no limit
        return None


# ----------------------------------------------------------------------------------------------- open files


def keep_freed_memory() -> None:
    """Make this process keep large freed blocks for reuse instead of returning them to the system.

    By default glibc returns blocks above 128 KiB (a threshold that grows to 32 MiB at most) to the system at once.
    Code that needs tens of megabytes per minibatch then pays a page fault for every 4 KiB, again and again. Threads
    started later share one malloc arena, because blocks in separate arenas would still be returned.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, 2**30)
        library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(_M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Undo `keep_freed_memory`: return freed memory to the system, now and in the future.

    glibc cannot report its settings or turn its automatic adjustment back on. So its thresholds are set to the values
    that the adjustment reaches in a process with large arrays: 32 MiB, and twice that at the end of the heap.
    Threads that already share an arena keep sharing it.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, 2**25)
        library.mallopt(_M_TRIM_THRESHOLD, 2**26)
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def open_file_limit() -> int:
    """The number of files this process may have open at once."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """The number of files, sockets and pipes this process has open now."""
    process = psutil.Process()
    count = getattr(process, "num_fds" if hasattr(process, "num_fds") else "num_handles")
    return int(count())


# ---------------------------------------------------------------------------------------------- description


def describe(*, root: Path = ROOT, libraries: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Description of this machine for benchmark reports; no host names, no paths. `libraries` adds versions."""
    versions = {name: version for name in _DESCRIBED_LIBRARIES if (version := _version(name))}
    return {
        "cores": usable_cores(root=root),
        "cpu": cpu_model(root=root),
        "memory_bytes": total_memory(root=root),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "libraries": {**versions, **(libraries or {})},
    }


def simulator_versions(module: str) -> dict[str, str]:
    """Versions of the installed packages that simulate an environment whose class is in `module`."""
    packages = next((names for start, names in _SIMULATORS.items() if f"{module}.".startswith(f"{start}.")), None)
    names = packages or (module.partition(".")[0],)
    return {name: version for name in names if name != "envfleet" and (version := _version(name))}


def cpu_model(*, root: Path = ROOT) -> str:
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
