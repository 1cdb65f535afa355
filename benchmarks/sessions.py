"""The benchmark's side of a session: starts measured processes, asks them for measurements, ends them."""

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
SPARE_SECONDS = 60.0  # beyond what a measurement should take


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
    """Whatever gives environment steps per second when asked."""

    def wait_until_ready(self) -> None: ...
    def steps_per_second(self, duration: Duration) -> float: ...
    def close(self) -> None: ...


class Session:
    """One measured process, in a process group of its own so that nothing of it stays behind."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[object],
        *,
        python: Path | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        # A folder of its own to work in: some libraries leave files where they are imported.
        self._folder = tempfile.TemporaryDirectory(prefix="fleet-benchmark-")
        self._errors = open(Path(self._folder.name) / "stderr", "w+", errors="replace")  # noqa: SIM115 (closed below)
        paths = [str(ROOT), str(ROOT / "src")]
        if python is None:  # another library's environment sees the workloads, and our Procgen, and nothing else
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
        """Asks for a measurement; `result` waits for it."""
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
        """A measurement with everything that the process says about it."""
        self.request(duration)
        return self._answer(duration.seconds + duration.warmup + patience)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Lets the process end by itself, then makes sure of it."""
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


class Limit:
    """As many independent processes as cores, each stepping its share of the environments in a plain loop.

    With `in_step` they wait for each other after every step: what no step of all environments can be faster than.
    """

    def __init__(self, workload: str, n_envs: int, processes: int, *, in_step: bool = False) -> None:
        processes = min(processes, n_envs)
        firsts = [n_envs * index // processes for index in range(processes + 1)]
        # The processes' meeting places; nothing with a name stays.
        with tempfile.TemporaryFile() as shared, tempfile.TemporaryFile() as steps:
            for file in (shared, steps):
                file.truncate(16 * processes)
            self.sessions = [
                Session(
                    "benchmarks.plain_loop",
                    [
                        *("--workload", workload),
                        *("--envs", firsts[place + 1] - firsts[place]),
                        *("--first-env", firsts[place]),
                        *("--barrier", shared.fileno(), place, processes),
                        *(("--in-step", steps.fileno()) if in_step else ()),
                    ],
                    descriptors=[shared.fileno(), steps.fileno()],
                )
                for place in range(processes)
            ]

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
