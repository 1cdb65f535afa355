"""Benchmark side of a session: start the measured process, request measurements, end it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parent.parent
STARTING_SECONDS = 600.0
SPARE_SECONDS = 60.0  # grace period after the expected end of a measurement


class SessionError(Exception):
    """A measured process failed; the message is the last error it wrote."""


@dataclass(frozen=True)
class Duration:
    """How long a measurement lasts."""

    seconds: float
    warmup: float = 0.2

    def shorter(self, factor: float) -> Duration:
        return Duration(self.seconds * factor, self.warmup)


class Measurable(Protocol):
    """Anything that can measure its environment steps per second."""

    def wait_until_ready(self) -> None: ...
    def steps_per_second(self, duration: Duration) -> float: ...
    def close(self) -> None: ...


class Session:
    """One measured process, in its own process group so that none of its children outlives it."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[object],
        *,
        python: Path | None = None,
        descriptors: Sequence[int] = (),
        source: Path = ROOT / "src",
    ) -> None:
        # A separate working folder, because some libraries write files to the current one.
        self._folder = tempfile.TemporaryDirectory(prefix="fleet-benchmark-")
        self._errors = open(Path(self._folder.name) / "stderr", "w+", errors="replace")  # noqa: SIM115 (closed below)
        paths = [str(ROOT), str(source)]
        if python is None:  # other libraries see only our code (workloads, Procgen)
            paths += filter(None, [os.environ.get("PYTHONPATH")])
        self._process = subprocess.Popen(
            [str(python or sys.executable), "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._folder.name,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=descriptors,
            start_new_session=True,
        )
        self._received = b""

    def wait_until_ready(self) -> None:
        self._answer(STARTING_SECONDS)

    def request(self, duration: Duration) -> None:
        """Request a measurement; `result` waits for it."""
        assert self._process.stdin is not None
        line = json.dumps({"seconds": duration.seconds, "warmup": duration.warmup}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SessionError(self._reason()) from error

    def result(self, duration: Duration) -> float:
        answer = self._answer(duration.seconds + duration.warmup + SPARE_SECONDS)
        return float(answer["steps"] / answer["seconds"])

    def steps_per_second(self, duration: Duration) -> float:
        self.request(duration)
        return self.result(duration)

    def measure(self, duration: Duration, *, patience: float = SPARE_SECONDS) -> dict[str, Any]:
        """Measure, and return everything that the process reports about it."""
        self.request(duration)
        return self._answer(duration.seconds + duration.warmup + patience)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Let the process exit on its own, then kill its process group."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()
        self._folder.cleanup()

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._received:
            readable, _, _ = select.select([descriptor], [], [], seconds)
            if not readable:
                raise SessionError(f"no answer within {seconds:.0f} s")
            piece = os.read(descriptor, 65536)
            if not piece:
                raise SessionError(self._reason())
            self._received += piece
        line, self._received = self._received.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _reason(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        lines = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)] or lines
        return lines[-1][:300] if lines else f"ended with code {self._process.wait()} and no message"


def start_together(module: str, arguments: Sequence[Sequence[object]], *, in_step: bool = False) -> list[Session]:
    """Start a process for each of these arguments; they share a barrier, and with `in_step` one after every step."""
    processes = len(arguments)
    # Memory for the barriers; unnamed, so nothing is left behind.
    with tempfile.TemporaryFile() as shared, tempfile.TemporaryFile() as steps:
        for file in (shared, steps):
            file.truncate(16 * processes)
        waiting = ["--in-step", steps.fileno()] if in_step else []
        return [
            Session(
                module,
                [*own, "--barrier", shared.fileno(), place, processes, *waiting],
                descriptors=[shared.fileno(), steps.fileno()],
            )
            for place, own in enumerate(arguments)
        ]


class Limit:
    """One independent process per core, each stepping its share of the environments in a plain loop.

    With `in_step` they wait for each other after every step. No `step` of all environments can be faster than that.
    With `wait_every` they do so only after that many steps, as workers wait after a rollout.
    """

    def __init__(
        self, workload: str, n_envs: int, processes: int, *, in_step: bool = False, wait_every: int = 1
    ) -> None:
        processes = min(processes, n_envs)
        firsts = [n_envs * index // processes for index in range(processes + 1)]
        shares = [
            [
                *("--workload", workload),
                *("--envs", firsts[place + 1] - firsts[place]),
                *("--first-env", firsts[place]),
                *(("--wait-every", wait_every) if in_step else ()),
            ]
            for place in range(processes)
        ]
        self.sessions = start_together("benchmarks.plain_loop", shares, in_step=in_step)

    def wait_until_ready(self) -> None:
        for session in self.sessions:
            session.wait_until_ready()

    def steps_per_second(self, duration: Duration) -> float:
        for session in self.sessions:
            session.request(duration)
        return sum(session.result(duration) for session in self.sessions)

    def close(self) -> None:
        for session in self.sessions:
            session.close()
