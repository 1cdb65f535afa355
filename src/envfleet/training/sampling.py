"""Samples the machine load: CPU time and memory of the run's processes, and CPU time of all others."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import psutil

__all__ = ["Sampler", "interval", "shared_memory_counted_once"]

LEAST_SECONDS = 4.0  # between two samples
MOST_SHARE = 0.003  # of the time may go to sampling: with many processes it samples less often
MOST_SHARE_WITH_LAST = 0.005  # with the last sample of a short run


class Sampler:
    """Takes a sample now and then. CPU use is in percent of one core, over the time since the last sample.

    Includes child processes of the caller and the workers, because a simulator may be a separate process.
    """

    def __init__(self) -> None:
        self._caller = psutil.Process()
        self._next = 0.0
        self._began = self._at = time.perf_counter()
        self._last_cost = self._cost = 0.0  # CPU seconds of the last sample, and of all
        self._spent = self._seconds_of(self._tree())
        self._machine = _machine_seconds()
        self._learner = 0.0  # CPU time of the learner so far
        self._learner_at_last = 0.0

    def add_learner(self, seconds: float) -> None:
        """Add CPU time spent on learning."""
        self._learner += seconds

    def due(self, *, last: bool = False) -> bool:
        """Whether to take a sample now. If it may be the `last` one of the run, it can come sooner than usual."""
        if time.monotonic() >= self._next:
            return True
        most = MOST_SHARE_WITH_LAST * (time.perf_counter() - self._began)
        return last and self._cost + self._last_cost <= most

    def sample(self, workers: Collection[int]) -> dict[str, float]:
        """Return the load since the last sample. `workers` are process ids."""
        now, cpu_began = time.perf_counter(), time.thread_time()
        elapsed = max(now - self._at, 1e-9)
        tree = self._tree()
        spent, machine = self._seconds_of(tree), _machine_seconds()
        used = {pid: max(0.0, seconds - self._spent.get(pid, 0.0)) for pid, seconds in spent.items()}
        caller = used.get(self._caller.pid, 0.0)
        learner = min(caller, self._learner - self._learner_at_last)
        total = sum(used.values())
        metrics = {
            "system/cpu_percent": total,
            "system/cpu_percent_caller": caller - learner,
            "system/cpu_percent_learner": learner,
            "system/cpu_percent_workers": sum(used.get(pid, 0.0) for pid in set(workers) - {self._caller.pid}),
            "system/cpu_percent_others": max(0.0, machine - self._machine - total),
        }
        metrics = {name: 100.0 * seconds / elapsed for name, seconds in metrics.items()}
        metrics["system/memory_mb"] = sum(shared_memory_counted_once(process.pid) for process in tree) / 2**20
        self._at, self._spent, self._machine, self._learner_at_last = now, spent, machine, self._learner
        # CPU time, not the clock: a queue for the core is no cost of sampling.
        self._last_cost = time.thread_time() - cpu_began
        self._cost += self._last_cost
        self._next = time.monotonic() + interval(self._last_cost)
        return metrics

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._caller, *self._caller.children(recursive=True)]
        except psutil.Error:
            return [self._caller]

    @staticmethod
    def _seconds_of(tree: list[psutil.Process]) -> dict[int, float]:
        seconds = {}
        for process in tree:
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has just ended
                continue
            seconds[process.pid] = times.user + times.system
        return seconds


def interval(seconds: float) -> float:
    """Seconds until the next sample, if one takes `seconds`."""
    return max(LEAST_SECONDS, seconds / MOST_SHARE)


def shared_memory_counted_once(pid: int) -> int:
    """Memory of a process in bytes, counting its share of shared memory (PSS). Falls back to resident memory."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _machine_seconds() -> float:
    """CPU time used by all processes of the machine, and by other virtual machines on the same cores."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))
