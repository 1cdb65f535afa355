"""Rows of the fleet tables, and how to start the session of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.install import python_of, reason_of_absence
from benchmarks.sessions import Limit, Measurable, Session, SessionError


@dataclass(frozen=True)
class Row:
    """One way to step environments.

    `lasting` rows keep their processes for all rounds of a table, because some libraries take many seconds to start.
    The others are rebuilt every few rounds.
    """

    name: str
    title: str
    start: Callable[[str, int], Measurable]
    lasting: bool = False
    library: str | None = None  # the library whose virtual environment it runs in; None: ours


def _fleet(mode: str) -> Callable[[str, int], Session]:
    def start(workload: str, n_envs: int) -> Session:
        return Session("benchmarks.fleet_session", ["--mode", mode, "--workload", workload, "--envs", n_envs])

    return start


def _plain_loop(workload: str, n_envs: int) -> Session:
    return Session("benchmarks.plain_loop", ["--workload", workload, "--envs", n_envs])


def _in_step(workload: str, n_envs: int) -> Limit:
    from envfleet.machine import usable_cores

    return Limit(workload, n_envs, usable_cores(), in_step=True)


def _peer(library: str, peer: str) -> Callable[[str, int], Session]:
    def start(workload: str, n_envs: int) -> Session:
        reason = reason_of_absence(library)
        if reason is not None:
            raise SessionError(reason)
        python: Path = python_of(library)
        arguments = ["--peer", peer, "--workload", workload, "--envs", n_envs]
        return Session("benchmarks.peers.peer", arguments, python=python)

    return start


def _peer_row(name: str, title: str, library: str) -> Row:
    return Row(name, title, _peer(library, name), lasting=True, library=library)


ROWS = {
    row.name: row
    for row in (
        Row("fleet-step", "Envfleet, `step`", _fleet("step")),
        Row("fleet-half-batches", "Envfleet, `send`/`recv` of half batches", _fleet("half-batches")),
        Row("fleet-trusted", "Envfleet, `step`, `trusted=True`", _fleet("trusted")),
        Row("fleet-threads", 'Envfleet, `step`, `backend="threads"`', _fleet("threads")),
        Row("in-step", "the limit in lockstep: its processes wait for each other after every step", _in_step),
        Row("plain-loop", "one process, plain loop", _plain_loop),
        _peer_row("gymnasium-sync", "Gymnasium SyncVectorEnv", "gymnasium"),
        _peer_row("gymnasium-async", "Gymnasium AsyncVectorEnv, shared memory", "gymnasium"),
        _peer_row("sb3-subproc", "Stable-Baselines3 SubprocVecEnv", "stable-baselines3"),
        _peer_row("tianshou-shmem", "Tianshou ShmemVectorEnv", "tianshou"),
        _peer_row("pufferlib", "PufferLib Multiprocessing", "pufferlib"),
        _peer_row("pufferlib-half-batches", "PufferLib Multiprocessing, half batches", "pufferlib"),
    )
}
TABLE_ROWS = [name for name in ROWS if name != "fleet-threads"]
PEER_ROWS = [row.name for row in ROWS.values() if row.library is not None]
