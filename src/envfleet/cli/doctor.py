"""`envfleet doctor`: inspect the machine and advise how to run fleets on it."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import tyro

from envfleet import machine
from envfleet.cli.doctor_cluster import cluster_findings
from envfleet.cli.findings import Finding

__all__ = ["Doctor", "Extra", "Facts", "Finding", "diagnose", "gather"]

# The packages of each extra in pyproject.toml; a test keeps the two in sync.
EXTRAS = {
    "atari": ("ale-py", "opencv-python-headless"),
    "box2d": ("box2d",),
    "gameboy": ("pyboy",),
    "metaworld": ("metaworld", "imageio", "packaging"),
    "mujoco": ("mujoco",),
    "ray": ("ray",),
    "sb3": ("stable-baselines3",),
    "video": ("imageio", "imageio-ffmpeg"),
    "wildfire": ("rasterio",),
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

_GIB, _MIB = 2**30, 2**20
_FILES_PER_WORKER = 8  # doorbells, pipes and pidfds, generously
_SCARCE_MEMORY = 512 * _MIB
_SHM = Path("/dev/shm")
_SMALL_SHM = 256 * _MIB  # containers have 64 MiB by default


@dataclass(frozen=True)
class Extra:
    """An optional extra of Envfleet: the installed version of each package, or None if it is missing."""

    name: str
    packages: dict[str, str | None]

    @property
    def missing(self) -> bool:
        """Whether any of its packages is not installed."""
        return None in self.packages.values()

    @property
    def command(self) -> str:
        """The pip command that installs it."""
        return f'pip install "envfleet[{self.name}]"'


@dataclass(frozen=True)
class Facts:
    """Facts about the machine, as seen by this process."""

    physical_cores: int | None
    logical_cores: int
    affinity_cores: int
    quota_cores: float | None
    usable_cores: int
    memory_total: int
    memory_available: int
    shared_memory: str | None  # how shared memory is allocated; None: it is not possible
    shm_total: int | None  # of /dev/shm, in bytes
    shm_free: int | None
    open_files: int
    open_file_limit: int
    start_methods: tuple[str, ...]
    threads: dict[str, str | None] = field(default_factory=dict)
    torch: str | None = None  # its version; None if it cannot be imported
    devices: tuple[str, ...] = ()  # devices torch can use, the best first


@dataclass(frozen=True)
class Doctor:
    """Inspect this machine, and a cluster if its address is given: cores, memory, limits, extras, with advice.

    The exit code is 1 if no fleet can run here, or none on the cluster.
    """

    json: bool = False
    """Print one JSON object instead of the table."""

    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Inspect a Ray cluster too: auto on one of its nodes, or HOST:PORT."""

    def run(self) -> int:
        """Print the diagnosis; return 1 if no fleet can run here or on the cluster, else 0."""
        facts = gather()
        local = diagnose(facts)
        cluster = [] if self.address is None else cluster_findings(self.address)
        findings = [*local, *cluster]
        extras = [Extra(name, {each: _version(each) for each in packages}) for name, packages in EXTRAS.items()]
        if self.json:
            sys.stdout.write(json.dumps(_as_json(facts, findings, extras), indent=2) + "\n")
        else:
            _show(findings, extras, _summary(local, cluster))
        return 1 if any(finding.severity == "problem" for finding in findings) else 0


def gather() -> Facts:
    """Collect the facts about this machine."""
    shm = shutil.disk_usage(_SHM) if _SHM.is_dir() else None
    torch, devices = _torch()
    return Facts(
        physical_cores=machine.physical_cores(),
        logical_cores=os.cpu_count() or 1,
        affinity_cores=machine.affinity_cores(),
        quota_cores=machine.quota_cores(),
        usable_cores=machine.usable_cores(),
        memory_total=machine.total_memory(),
        memory_available=machine.available_memory(),
        shared_memory=_shared_memory(),
        shm_total=None if shm is None else shm.total,
        shm_free=None if shm is None else shm.free,
        open_files=machine.open_files(),
        open_file_limit=machine.open_file_limit(),
        start_methods=tuple(multiprocessing.get_all_start_methods()),
        threads={name: os.environ.get(name) for name in THREAD_VARIABLES},
        torch=torch,
        devices=devices,
    )


def diagnose(facts: Facts) -> list[Finding]:
    """Return what the facts mean for a fleet."""
    return [
        _cores(facts),
        _memory(facts),
        _sharing(facts),
        *_shm(facts),
        _files(facts),
        Finding("ok", "start methods", ", ".join(facts.start_methods)),
        _threads(facts),
        _learner(facts),
    ]


def _shared_memory() -> str | None:
    from envfleet.fleet.os_compat import nameless_file, uses_linux

    try:
        os.close(nameless_file("envfleet-doctor"))
    except OSError:
        return None
    return "memfd" if uses_linux() else "temporary file"


def _torch() -> tuple[str | None, tuple[str, ...]]:
    try:
        import torch
    except (ImportError, OSError):  # OSError: a shared library is missing or built for another machine
        return None, ()
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return torch.__version__, tuple(name for name, there in found.items() if there)


def _cores(facts: Facts) -> Finding:
    physical = "" if facts.physical_cores is None else f", {facts.physical_cores} physical"
    quota = "no quota" if facts.quota_cores is None else f"quota {facts.quota_cores:g}"
    text = f"{facts.usable_cores} usable: {facts.logical_cores} logical{physical}, "
    text += f"{facts.affinity_cores} by affinity, {quota}"
    if facts.usable_cores == 1:
        advice = "with one core, worker processes isolate faults but gain no speed"
        return Finding("warn", "cores", text, advice)
    if facts.quota_cores is not None and facts.quota_cores < facts.usable_cores:
        advice = "the quota is not a whole number of cores: the last worker runs for a part of the time"
        return Finding("warn", "cores", text, advice)
    return Finding("ok", "cores", text)


def _memory(facts: Facts) -> Finding:
    text = f"{_size(facts.memory_available)} available of {_size(facts.memory_total)}"
    if facts.memory_available < _SCARCE_MEMORY:
        advice = "use few workers: each takes about 10 MiB (with spawn, 30 MiB) and its environments"
        return Finding("warn", "memory", text, advice)
    return Finding("ok", "memory", text)


def _sharing(facts: Facts) -> Finding:
    if facts.shared_memory is None:
        advice = "make the folder for temporary files writable, or set TMPDIR to one that is"
        return Finding("problem", "shared memory", "a file without a name cannot be made", advice)
    if facts.shared_memory == "memfd":
        return Finding("ok", "shared memory", "memfd: takes memory, not /dev/shm")
    advice = "set TMPDIR to a RAM disk (tmpfs); on a disk, every step waits for it"
    return Finding("warn", "shared memory", facts.shared_memory, advice)


def _shm(facts: Facts) -> list[Finding]:
    if facts.shm_total is None or facts.shm_free is None:
        return []
    text = f"{_size(facts.shm_free)} free of {_size(facts.shm_total)}"
    if facts.shm_free < _SMALL_SHM:
        advice = "a fleet does not use it, but Ray and PyTorch loaders do: docker run --shm-size=1g"
        return [Finding("warn", "/dev/shm", text, advice)]
    return [Finding("ok", "/dev/shm", text)]


def _files(facts: Facts) -> Finding:
    room = facts.open_file_limit - facts.open_files
    limit = "no limit" if facts.open_file_limit == sys.maxsize else f"limit {facts.open_file_limit}"
    text = f"{facts.open_files} open, {limit}"
    advice = "raise the limit in this shell: ulimit -n 4096"
    if room < _FILES_PER_WORKER:
        return Finding("problem", "open files", text, advice)
    if room < _FILES_PER_WORKER * facts.usable_cores + 64:
        return Finding("warn", "open files", text, advice)
    return Finding("ok", "open files", text)


def _threads(facts: Facts) -> Finding:
    # Worker processes always use one thread, so this concerns the process that steps or learns.
    given = {name: value for name, value in facts.threads.items() if value is not None}
    fitting = f"OMP_NUM_THREADS={facts.usable_cores}"
    text = ", ".join(f"{name}={value}" for name, value in given.items())
    if not given:
        text = "1 per worker process; OMP_NUM_THREADS is not set"
        if facts.usable_cores < facts.affinity_cores:
            advice = f"libraries count {facts.affinity_cores} cores and do not see the quota: set {fitting}"
            return Finding("warn", "threads", text, advice)
    elif max((int(value) for value in given.values() if value.isdigit()), default=1) > facts.usable_cores:
        advice = f"more threads than cores slow the caller and the threads backend: set {fitting}"
        return Finding("warn", "threads", text, advice)
    return Finding("ok", "threads", text)


def _learner(facts: Facts) -> Finding:
    if facts.torch is None:
        advice = "fleets run, training does not: pip install torch"
        return Finding("warn", "learner", "torch cannot be imported", advice)
    others = f", also {', '.join(facts.devices[1:])}" if facts.devices[1:] else ""
    text = f"torch {facts.torch} on {facts.devices[0]}{others}; one thread unless batches are large"
    return Finding("ok", "learner", text)


def _as_json(facts: Facts, findings: list[Finding], extras: list[Extra]) -> dict[str, Any]:
    return {
        "envfleet": _version("envfleet"),
        "machine": machine.describe(),
        "facts": asdict(facts),
        "findings": [asdict(finding) for finding in findings],
        "extras": {
            extra.name: {"packages": extra.packages, "install": extra.command if extra.missing else None}
            for extra in extras
        },
    }


def _show(findings: list[Finding], extras: list[Extra], summary: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "warn": "yellow", "problem": "bold red"}
    machine_table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        body = Text(finding.text)
        if finding.advice:
            body.append(f"\nhint: {finding.advice}", style="italic")
        machine_table.add_row(Text(finding.severity, styles[finding.severity]), finding.subject, body)
    extras_table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for extra in extras:
        found = ", ".join(f"{name} {version}" for name, version in extra.packages.items())
        body = Text(f"missing: {extra.command}", "dim") if extra.missing else Text(found)
        extras_table.add_row(extra.name, body)
    console = Console(highlight=False)
    title = f"envfleet {_version('envfleet') or '(not installed)'}, Python {platform.python_version()}"
    console.print(f"{title}, {platform.system()} {platform.machine()}\n", style="bold")
    console.print(machine_table)
    console.print("\nextras", style="bold")
    console.print(extras_table)
    console.print(f"\n{summary}")


def _summary(local: list[Finding], cluster: list[Finding]) -> str:
    """A sentence about this machine, and about the cluster if it has a problem."""
    if any(finding.severity == "problem" for finding in local):
        return "no fleet can run here until the problem is solved"
    if any(finding.severity == "problem" for finding in cluster):
        return "fleets run on this machine, but not on the cluster until its problem is solved"
    if any(finding.severity == "warn" for finding in [*local, *cluster]):
        return "fleets run here; the hints say what could be better"
    return "all is well: fleets run here"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
