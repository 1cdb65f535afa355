"""The fork server: a clean process that has imported what workers need and forks them on request.

There is one per calling process. It starts with the first worker and ends with the caller. A fork takes milliseconds,
while a new interpreter imports for 0.4 s, or for 2 s with torch. Workers share the memory of what the server has
imported. The server has one thread and runs no environment, so forking it is safe.

A worker gets the caller's current environment variables, working folder and output streams; they travel with each
request. It inherits the rest from the server: limits, usable cores, priority, session, ignored signals and what a
program does with variables such as LD_PRELOAD. If the caller's have changed since the server was started, a new one is
started.

The caller is not the parent of such a worker, so only the server learns how it ended. It writes every ending to a pipe.
"""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from envfleet.fleet.backends.entry import SINGLE_THREADED, Links, live
from envfleet.fleet.backends.launch import Process, new_interpreter
from envfleet.fleet.backends.output import original_streams, streams_of_workers
from envfleet.fleet.os_compat import die_with_parent, name_process, open_pidfd, wait_ready
from envfleet.signals import ENDING, blocked, leave_to_caller

__all__ = ["ForkServer", "fork_server", "serve", "start_forked"]

_LENGTH, _ENDING = struct.Struct("q"), struct.Struct("qq")
_MOST_FDS = 16
REPORT_SECONDS = 1.0  # the server reports an ending at once; it may be waiting for a core
_READ_AT_START = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "PYTHON")  # variables that only a new program reads
_LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


class ForkServer:
    """The caller's side: starts workers, and knows how they ended."""

    def __init__(self) -> None:
        self._inherited = _inherited()
        self._starting, self._reading = threading.Lock(), threading.Lock()
        self._loaded: set[str] = set()  # modules that the server was asked to import
        self._numbers = itertools.count()
        self._endings: dict[int, int] = {}  # exit codes of workers, by their number: pids are reused
        self._lost = False  # this process can no longer speak with it
        self._socket, theirs = socket.socketpair()
        self._endings_fd, writer = os.pipe()
        os.set_blocking(self._endings_fd, False)
        fds = [theirs.fileno(), writer]
        streams = {**({} if _is_open(2) else {2: subprocess.DEVNULL}), **original_streams(), 1: subprocess.DEVNULL}
        self._popen = new_interpreter(["envfleet-forks", "forks", *map(str, fds), str(os.getpid())], fds, streams)
        theirs.close()
        os.close(writer)
        self.close = weakref.finalize(self, _close, self._socket, self._endings_fd, self._popen)

    @property
    def usable(self) -> bool:
        """Whether it still runs, and a worker would inherit what the caller has now."""
        return not self._lost and self._popen.poll() is None and self._inherited == _inherited()

    def retire(self) -> None:
        """Let the server end with its last worker."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # it has ended already
            pass

    def abandon(self) -> None:
        """Leave the server to the parent of this forked process."""
        self._lost = True
        self.close.detach()
        self._socket.close()
        self._popen.returncode = 0  # or it would warn about a child that still runs

    def load(self, modules: Sequence[str]) -> None:
        """Let the server import modules before it forks the next worker; does not wait for it."""
        with self._starting:
            missing = [name for name in modules if name not in self._loaded]
            if missing:
                self._loaded.update(missing)
                try:
                    self._send({"load": missing, "sys_path": sys.path}, [])
                except BaseException as error:
                    self._lost = True
                    if not isinstance(error, ConnectionError):  # Ctrl-C; otherwise it has ended
                        raise

    def start(self, links: Links) -> Process:
        """Fork a worker; raise ConnectionError if the server has ended."""
        streams = {stream: stream for stream in (1, 2) if _is_open(stream)} | streams_of_workers()
        folder = _working_folder()
        request = {"links": asdict(links), "fds": links.fds, "streams": [*streams], "environ": dict(os.environ)}
        try:
            with self._starting:
                number = next(self._numbers)
                self._send({**request, "number": number}, [*links.fds, *streams.values(), *folder])
                answer, received, _, _ = socket.recv_fds(self._socket, 65536, 1)
            if not answer:
                raise ConnectionError("the process that starts workers has ended")
        except BaseException:  # also Ctrl-C: the next worker would get the answer for this one
            self._lost = True
            raise
        finally:
            for fd in folder:
                os.close(fd)
        pid = json.loads(answer)
        if not isinstance(pid, int):
            raise OSError(f"a worker could not be started: {pid}")
        pidfd = received[0] if received else None
        return Process(pid, pidfd, functools.partial(self._exit_code, number, pidfd))

    def _send(self, request: dict[str, Any], fds: list[int]) -> None:
        body = json.dumps(request).encode()
        socket.send_fds(self._socket, [_LENGTH.pack(len(body))], fds)
        self._socket.sendall(body)

    def _exit_code(self, number: int, pidfd: int | None) -> int | None:
        with self._reading:
            if number not in self._endings and pidfd is not None and wait_ready(pidfd, 0):
                wait_ready(self._endings_fd, REPORT_SECONDS)  # it has ended, and the server is about to say how
            while number not in self._endings:
                if self.close.alive is False:
                    raise ChildProcessError("only the parent of this forked process learns how its workers end")
                try:
                    record = os.read(self._endings_fd, _ENDING.size)  # written whole, so read whole
                except BlockingIOError:
                    return None
                if not record:  # the server has ended, and its workers end with it
                    return -signal.SIGKILL
                ended, code = _ENDING.unpack(record)
                self._endings[ended] = code
            return self._endings[number]


def _close(requests: socket.socket, endings_fd: int, popen: subprocess.Popen[bytes]) -> None:
    requests.close()
    try:
        popen.wait(2.0)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    os.close(endings_fd)


_servers: list[ForkServer] = []  # of this process: one, or none yet
_choosing = threading.Lock()


def start_forked(links: Links) -> Process:
    """Fork a worker from the server; if that was killed just now, from a new one."""
    try:
        return fork_server().start(links)
    except ConnectionError:
        return fork_server().start(links)


def fork_server() -> ForkServer:
    """The fork server of this process."""
    with _choosing:
        if _servers and not _servers[0].usable:
            _servers.pop().retire()
        if not _servers:
            _servers.append(ForkServer())
        return _servers[0]


def _in_forked_child() -> None:
    """The server belongs to the parent, and the lock may be held by a thread that was not copied."""
    global _choosing  # noqa: PLW0603 (replaced like the rest)
    while _servers:
        _servers.pop().abandon()
    _choosing = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)


def _inherited() -> tuple[Any, ...]:
    """What a worker inherits from the server that does not travel with a request."""
    cores = frozenset(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else None
    ignored = [number for number in ENDING if signal.getsignal(number) is signal.SIG_IGN]
    limits = [resource.getrlimit(number) for number in _LIMITS]
    read_at_start = {name: value for name, value in os.environ.items() if name.startswith(_READ_AT_START)}
    priority = os.getpriority(os.PRIO_PROCESS, os.getpid())
    return os.getsid(0), os.getpgrp(), priority, cores, ignored, limits, read_at_start


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _working_folder() -> list[int]:
    """A descriptor of the working folder, in a list; empty if the folder cannot be read or was deleted."""
    try:
        return [os.open(".", os.O_RDONLY | os.O_CLOEXEC)]
    except OSError:
        return []


# ------------------------------------------------------------------------------------------- in the server


@dataclass(frozen=True)
class _Request:
    """A worker to fork: its links, and the state of the caller that it takes over."""

    number: int
    links: Links
    streams: dict[int, int]
    folder: int | None
    environ: dict[str, str]

    @classmethod
    def read(cls, message: dict[str, Any], fds: list[int]) -> _Request:
        linked = len(message["fds"])
        streams = dict(zip(message["streams"], fds[linked:], strict=False))
        folder = fds[linked + len(streams) :]
        links = Links.load(json.dumps(message["links"])).renamed(dict(zip(message["fds"], fds, strict=False)))
        return cls(message["number"], links, streams, folder[0] if folder else None, message["environ"])

    def become(self) -> NoReturn:
        """Turn this forked process into the worker."""
        try:
            self._take_over()
            live(replace(self.links, parent_pid=os.getppid()))
        finally:
            os._exit(1)  # `live` does not return; an error before it must not return to the server's loop

    def _take_over(self) -> None:
        for stream in (1, 2):
            if stream in self.streams:
                os.dup2(self.streams[stream], stream)
                os.close(self.streams[stream])
        for output in (sys.stdout, sys.stderr):  # made for the server's streams
            output.reconfigure(line_buffering=output is sys.stderr or output.isatty())  # type: ignore[union-attr]
        if self.folder is not None:
            os.fchdir(self.folder)
            os.close(self.folder)
        os.environ.clear()
        os.environ.update(self.environ | SINGLE_THREADED)


def serve(requests_fd: int, endings_fd: int, parent_pid: int) -> None:
    """Run the server until the caller is gone and all workers have ended."""
    leave_to_caller()
    die_with_parent(parent_pid)
    name_process("envfleet-forks")
    _load(["envfleet.fleet.makers"], sys.path)  # every worker unpickles one
    requests = socket.socket(fileno=requests_fd)
    bell, ring = os.pipe()
    for end in (bell, ring):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    workers: dict[int, int] = {}  # their numbers, by pid
    poll = select.poll()
    for fd in (requests_fd, bell):
        poll.register(fd, select.POLLIN)
    listening = True
    while listening or workers:
        ready = {fd for fd, _ in poll.poll()}
        if bell in ready:
            os.read(bell, 4096)
            _report_endings(workers, endings_fd)
        if requests_fd not in ready:
            continue
        message, fds = _receive(requests)
        if message is None:
            listening = False
            poll.unregister(requests_fd)
        elif "load" in message:
            _load(message["load"], message["sys_path"])
        else:
            _answer(requests, _Request.read(message, fds), workers, [requests_fd, endings_fd, bell, ring])
        for fd in fds:
            os.close(fd)


def _receive(requests: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    try:
        header, fds, _, _ = socket.recv_fds(requests, _LENGTH.size, _MOST_FDS)
    except ConnectionResetError:  # the caller is gone, and has not read the last answer
        return None, []
    if len(header) < _LENGTH.size:
        return None, fds
    (left,) = _LENGTH.unpack(header)
    body = bytearray()
    while len(body) < left:
        piece = requests.recv(left - len(body))
        if not piece:
            return None, fds
        body += piece
    return json.loads(body), fds


def _load(modules: list[str], sys_path: list[str]) -> None:
    before, sys.path[:] = list(sys.path), list(sys_path)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # the worker reports it when it imports the module itself
            pass
    sys.path[:] = before
    gc.collect()
    gc.freeze()  # or collections in workers would copy the memory that they share


def _answer(requests: socket.socket, request: _Request, workers: dict[int, int], own: list[int]) -> None:
    pidfd = None
    try:
        with blocked():  # until the worker has its own handlers
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.detach()
                for fd in own:
                    os.close(fd)
                request.become()
        workers[pid] = request.number
        answer, pidfd = json.dumps(pid), open_pidfd(pid)
    except OSError as error:
        answer = json.dumps(str(error))
    with suppress(ConnectionError):  # the caller is gone
        socket.send_fds(requests, [answer.encode()], [] if pidfd is None else [pidfd])
    if pidfd is not None:
        os.close(pidfd)


def _report_endings(workers: dict[int, int], endings_fd: int) -> None:
    while workers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        os.write(endings_fd, _ENDING.pack(workers.pop(pid), os.waitstatus_to_exitcode(status)))
