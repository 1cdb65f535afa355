"""Rows of the PPO tables, and how to start the processes of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.peers.install import python_of, reason_of_absence
from benchmarks.ppo.workloads import Sizes
from benchmarks.sessions import Duration, Limit, Session, SessionError, start_together

LIBRARY = "stable-baselines3"


class Measured(Protocol):
    """One process, or several that are measured at the same time."""

    def wait_until_ready(self) -> None: ...
    def measure(self, duration: Duration) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Together:
    """Independent processes that begin each measurement at the same time; their speeds are added up."""

    def __init__(self, module: str, arguments: Sequence[object], processes: int, *, in_step: bool = False) -> None:
        """With `in_step` they also wait for each other after every cycle."""
        self._sessions = start_together(module, [arguments] * processes, in_step=in_step)

    def wait_until_ready(self) -> None:
        for session in self._sessions:
            session.wait_until_ready()

    def measure(self, duration: Duration) -> dict[str, Any]:
        for session in self._sessions:
            session.request(duration)
        # Each process ends its last cycle at a different time, so speeds are added, not steps.
        speed = sum(session.result(duration) for session in self._sessions)
        return {"steps": speed, "seconds": 1.0}

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class Lockstep(Limit):
    """The limit as a row of a table."""

    def measure(self, duration: Duration) -> dict[str, Any]:
        return {"steps": self.steps_per_second(duration), "seconds": 1.0}


@dataclass(frozen=True)
class Row:
    """One way to do the work of a table."""

    name: str
    title: str
    start: Callable[[], Measured]
    ours: bool = False


def our_row(name: str, title: str, settings: dict[str, Any], *, collect_only: bool = False) -> Row:
    """Return a row for Envfleet with these settings."""
    arguments = ["--settings", json.dumps(settings), *(["--collect-only"] if collect_only else [])]
    return Row(name, title, lambda: Session("benchmarks.ppo.training_session", arguments), ours=True)


def independent_collectors(
    name: str, title: str, settings: dict[str, Any], processes: int, *, in_step: bool = False
) -> Row:
    """Return a row of processes that collect without communication; with `in_step` they wait after each rollout."""
    arguments = ["--settings", json.dumps(settings), "--collect-only"]
    module = "benchmarks.ppo.training_session"
    return Row(name, title, lambda: Together(module, arguments, processes, in_step=in_step))


def stable_baselines3_rows(sizes: Sizes, *, recurrent: bool = False) -> list[Row]:
    library = "sb3-contrib RecurrentPPO, LSTM 128" if recurrent else "Stable-Baselines3"
    flags = ["--recurrent"] if recurrent else []
    return peer_rows("sb3", library, "benchmarks.ppo.peer_session", sizes.as_json(), flags)


def plain_loop_rows(sizes: Sizes) -> list[Row]:
    return peer_rows("plain", "plain PyTorch loop as in CleanRL", "benchmarks.ppo.plain_session", sizes.as_json())


def peer_rows(name: str, title: str, module: str, sizes: dict[str, Any], flags: Sequence[str] = ()) -> list[Row]:
    """Return rows with torch's choice of threads and with one thread; we compare with the faster."""
    arguments = ["--sizes", json.dumps(sizes), *flags]
    return [
        Row(name, f"{title}, torch's choice of threads", lambda: start_peer(module, arguments)),
        Row(f"{name}-1-thread", f"{title}, 1 thread", lambda: start_peer(module, [*arguments, "--threads", "1"])),
    ]


def start_peer(module: str, arguments: Sequence[object]) -> Session:
    """Start a session in the virtual environment of Stable-Baselines3."""
    reason = reason_of_absence(LIBRARY)
    if reason is not None:
        raise SessionError(reason)
    return Session(module, arguments, python=python_of(LIBRARY))


def stepping_row(name: str, title: str, workload: str, n_envs: int) -> Row:
    """Return a row for the fleet's `step` with actions drawn in advance."""
    arguments = ["--mode", "step", "--workload", workload, "--envs", n_envs]
    return Row(name, title, lambda: Session("benchmarks.fleet_session", arguments), ours=True)


def random_rollouts(name: str, title: str, workload: str, n_envs: int, schedule: str = "sync") -> Row:
    """Return a row for rollouts of random actions that the workers choose."""
    arguments = ["--workload", workload, "--envs", n_envs, "--schedule", schedule]
    return Row(name, title, lambda: Session("benchmarks.ppo.random_session", arguments), ours=True)


def lockstep_loops(name: str, title: str, workload: str, n_envs: int, processes: int) -> Row:
    """Return a row like `independent_loops`, but the processes wait for each other after every step."""
    return Row(name, title, lambda: Lockstep(workload, n_envs, processes, in_step=True))


def independent_loops(name: str, title: str, workload: str, n_envs: int, processes: int, stored: int = 0) -> Row:
    """Return a row of independent processes, each stepping its share of the environments in a plain loop.

    Each keeps the observations of the last `stored` steps.
    """
    arguments = ["--workload", workload, "--envs", n_envs // processes, "--store", stored]
    return Row(name, title, lambda: Together("benchmarks.plain_loop", arguments, processes))


def arithmetic_rows(workload: str, cores: int) -> list[Row]:
    """Return rows for the ways to use all cores for arithmetic alone; the fastest is the limit."""
    module = "benchmarks.ppo.arithmetic"
    threads = ["--workload", workload, "--threads", str(cores)]
    layout = ["--channels-last"]
    return [
        Row("arithmetic-threads", f"arithmetic alone, {cores} threads", lambda: Session(module, threads)),
        Row(
            "arithmetic-threads-channels-last",
            f"arithmetic alone, {cores} threads, channels last",
            lambda: Session(module, [*threads, *layout]),
        ),
        Row(
            "arithmetic-processes",
            f"arithmetic alone, {cores} processes, channels last",
            lambda: Together(module, ["--workload", workload, "--threads", "1", *layout], cores),
        ),
    ]
