"""Start-up cost: import time, seconds until workers are ready, and memory per worker.

Memory is private memory (USS: what would be freed if the process ended). The memory of the environments is the growth
of a process that has already imported Gymnasium, while it builds and steps the same 32 CartPole environments. A
worker's memory *beyond its environments* is all its private memory, interpreter and libraries included, minus that
growth. A stricter figure is reported too: how much more a worker takes than that whole process, which is a plain loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import psutil

from benchmarks.interleave import Report, quartiles
from benchmarks.sessions import ROOT

MEGABYTE = 1e6
_TIMED = "from time import perf_counter as now; start = now(); {}; print(now() - start)"
_THEIRS, _BARE, _OURS = "import gymnasium", "import envfleet", "from envfleet import make"


def measure_startup(*, repeats: int, report: Report) -> dict[str, Any]:
    """Measure import time, seconds until ready and megabytes per worker."""
    report("import time")
    # `import envfleet` loads almost nothing until a name is used, so the fair figure imports a name.
    seconds: dict[str, list[float]] = {_THEIRS: [], _BARE: [], _OURS: []}
    for statement in seconds:
        _import_seconds(statement)  # fill the file cache and write the byte code
    for _ in range(repeats):
        for statement, values in seconds.items():
            values.append(_import_seconds(statement))
    more = [ours - theirs for ours, theirs in zip(seconds[_OURS], seconds[_THEIRS], strict=True)]
    report("seconds until ready")
    ready = {
        f"{script}, {fleet} fleet": list(seconds)
        for script, flags in _SCRIPTS.items()
        for fleet, seconds in zip(
            ("first", "second"), zip(*(_ready_seconds(*flags) for _ in range(repeats)), strict=True), strict=True
        )
    }
    report("memory of a worker")
    return {
        "import_seconds": {statement: quartiles(values) for statement, values in seconds.items()},
        "import_seconds_more": quartiles(more),
        "ready_seconds": {name: quartiles(values) for name, values in ready.items()},
        "memory_mb": _memory(),
    }


_SCRIPTS: dict[str, list[str]] = {"plain script": [], "script imports torch": ["--torch"]}


def _import_seconds(statement: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(statement)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=_environment()).stdout)


def _ready_seconds(*flags: str) -> list[float]:
    with _probe("ready", *flags) as probe:
        return [float(seconds) for seconds in _answer(probe)["seconds"]]


def _memory() -> dict[str, Any]:
    with ExitStack() as stack:
        # Two at once, like the two workers, so that both share the pages of the libraries they map.
        probes = [stack.enter_context(_probe("environments")) for _ in range(2)]
        imported = [_private_memory(probe) for probe in probes]
        for probe in probes:
            _go_on(probe)
        loop = [_private_memory(probe) for probe in probes]
    environments = median(loop) - median(imported)
    figures: dict[str, Any] = {"plain loop": median(loop), "environments": environments, "workers": {}}
    for name, flags in _SCRIPTS.items():
        with _probe("workers", *flags) as probe:
            worker = _private_memory(probe)
        figures["workers"][name] = {
            "worker": worker,
            "beyond_environments": worker - environments,
            "beyond_plain_loop": worker - median(loop),
        }
    return figures


def _private_memory(probe: subprocess.Popen[str]) -> float:
    """Return the private megabytes of the largest process that the probe reports."""
    return float(max(psutil.Process(pid).memory_full_info().uss for pid in _answer(probe)["pids"])) / MEGABYTE


@contextmanager
def _probe(name: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.probes", name, *flags]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=_environment(), cwd=ROOT, **pipes) as probe:  # type: ignore[call-overload]
        yield probe


def _go_on(probe: subprocess.Popen[str]) -> None:
    assert probe.stdin is not None
    print(file=probe.stdin, flush=True)


def _answer(probe: subprocess.Popen[str]) -> dict[str, Any]:
    assert probe.stdout is not None
    line = probe.stdout.readline()
    if not line:
        raise RuntimeError(f"the probe ended with code {probe.wait()}; its message is above")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
