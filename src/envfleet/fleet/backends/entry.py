"""The main program of a worker process, from start to exit.

Spawned workers start here and nowhere else. The user's main module is not imported again, so workers do not pay for a
script that imports torch. Functions and classes of that script are pickled by value.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import NoReturn

import gymnasium
import numpy as np

from envfleet.errors import WorkerError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.channel import ChannelClosed, SocketChannel, load_parts
from envfleet.fleet.memory import Block
from envfleet.fleet.os_compat import Doorbell, die_with_parent, name_process
from envfleet.fleet.spec import WorkerSpec
from envfleet.fleet.worker import Bells, Worker, unexpected
from envfleet.signals import leave_to_caller
from envfleet.streams import error_stream

__all__ = ["SINGLE_THREADED", "Links", "Prelude", "live", "main"]

STACK_SIGNAL = signal.SIGUSR1
# A worker computes with one thread; libraries read these variables when they are loaded.
SINGLE_THREADED = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


@dataclass(frozen=True)
class Links:
    """The file descriptors that connect a worker to its caller."""

    name: str
    parent_pid: int
    channel: int
    bell: tuple[int, int]
    caller_bell: tuple[int, int]
    block: int
    stack: int
    spin: bool

    @property
    def fds(self) -> list[int]:
        return sorted({self.channel, *self.bell, *self.caller_bell, self.block, self.stack})

    def dump(self) -> str:
        return json.dumps(asdict(self))

    def renamed(self, new: Mapping[int, int]) -> Links:
        """The same links under the descriptors of another process."""
        bell, caller_bell = ((new[read], new[write]) for read, write in (self.bell, self.caller_bell))
        channel, block, stack = (new[fd] for fd in (self.channel, self.block, self.stack))
        return replace(self, channel=channel, bell=bell, caller_bell=caller_bell, block=block, stack=stack)

    @classmethod
    def load(cls, text: str) -> Links:
        values = json.loads(text)
        return cls(**{**values, "bell": tuple(values["bell"]), "caller_bell": tuple(values["caller_bell"])})


@dataclass(frozen=True)
class Prelude:
    """Process settings that are needed before the spec can be unpickled."""

    sys_path: list[str]
    argv: list[str]

    @classmethod
    def of_this_process(cls) -> Prelude:
        return cls(list(sys.path), list(sys.argv))


def main(arguments: list[str]) -> None:
    """Run a spawned process: `worker LINKS`, or `forks FDS PARENT` for the server that forks workers."""
    if arguments[0] == "forks":
        from envfleet.fleet.backends.fork_server import serve

        serve(*map(int, arguments[1:]))
    else:
        live(Links.load(arguments[1]))


def live(links: Links, spec: WorkerSpec | None = None) -> NoReturn:
    """Become the worker: receive the spec (unless forked with it), build, serve, and exit."""
    code = 1
    try:
        _prepare_process(links)
        channel = SocketChannel(links.channel)
        code = _work(links, channel, spec)
    except ChannelClosed:
        pass  # the caller is gone
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a forked worker must not run the caller's exit handlers


def _prepare_process(links: Links) -> None:
    leave_to_caller()
    # A forked worker inherits the caller's streams; with a live view around them, each worker would redraw the view.
    sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    sys.stderr = error_stream()  # an environment may still print when the reader is gone
    die_with_parent(links.parent_pid)
    name_process(links.name)
    faulthandler.register(STACK_SIGNAL, file=links.stack, all_threads=True, chain=False)
    faulthandler.enable(file=links.stack)  # writes the stack of a crash


def _work(links: Links, channel: SocketChannel, spec: WorkerSpec | None) -> int:
    forked = spec is not None
    worker: Worker | None = None
    try:
        spec = spec or _receive_spec(channel)
        if forked:
            _one_thread()
        # Environments that use the global generators must not draw the same numbers in every worker.
        random.seed(spec.settings.seed + spec.groups[0].start)
        np.random.seed((spec.settings.seed + spec.groups[0].start) % 2**32)  # noqa: NPY002 (the global one)
        bells = Bells(Doorbell(*links.bell), Doorbell(*links.caller_bell), links.spin)
        worker = Worker(spec, channel, bells)
        channel.send(worker.build())
        shape = channel.receive()
        if shape is None:  # closed before it was attached
            worker.close()
            return 0
        layout = shape.layout()
        gc.freeze()  # the environments stay alive, so the garbage collector need not scan them again
        worker.attach(FleetArrays(shape, layout, Block(links.block).map(layout.size)))
    except ChannelClosed:
        raise
    except Exception as error:
        channel.send(unexpected(error))
        if worker is not None:
            worker.close()
        return 1
    channel.send(None)
    worker.serve()
    return 0


def _receive_spec(channel: SocketChannel) -> WorkerSpec:
    prelude: Prelude = channel.receive()
    sys.path[:] = prelude.sys_path
    sys.argv[:] = prelude.argv
    registrations, parts = channel.receive_parts(), channel.receive_parts()
    # A package that is imported here registers environments that the caller has already sent.
    warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry", UserWarning)
    try:
        for spec in load_parts(registrations):
            gymnasium.registry.setdefault(spec.id, spec)
        spec = load_parts(parts)
    except Exception as error:
        raise WorkerError(
            f"a worker could not load the environment: {type(error).__name__}: {error}\n\n{traceback.format_exc()}",
            hint="the module must be importable in a new Python process (installed, or on sys.path when the "
            "fleet is made); start_method='fork' inherits what is already imported",
        ) from None
    assert isinstance(spec, WorkerSpec)
    return spec


def _one_thread() -> None:
    """Limit a forked worker to one thread: it inherits thread pools sized for the machine, and may create more."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    os.environ.update(SINGLE_THREADED)
