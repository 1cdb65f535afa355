"""An environment that starts processes of its own. Importable by workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time

from envfleet.signals import ENDING
from tests.fleet.simulators import Counter

SECONDS = 100.0  # far more than needed
# Popen waits for its pipe to close, and a process forked by another thread meanwhile would hold it open.
STARTING = threading.Lock()


class HasChildren(Counter):
    """Starts one process by fork and one by exec, and terminates both as most simulators do."""

    def children(self) -> list[int]:
        """Return the exit codes of both after SIGTERM."""
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
        with STARTING:
            forked.start()
            program = subprocess.Popen(["sleep", "600"])
        forked.terminate()
        program.terminate()
        forked.join(SECONDS)
        forked.kill()
        return [forked.exitcode or 0, program.wait(SECONDS)]

    def signals_of_a_program(self) -> dict[str, str]:
        """Return the signal masks that a program started by the environment inherits."""
        text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        lines = dict(line.split(":\t") for line in text.splitlines() if line.startswith("Sig"))
        return {name: lines[name] for name in ("SigBlk", "SigIgn")}

    def handlers_of_a_fork(self) -> list[str]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, "\n".join(repr(signal.getsignal(number)) for number in ENDING).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        text = os.read(reader, 4096).decode()
        os.close(reader)
        os.close(writer)
        return text.split("\n")
