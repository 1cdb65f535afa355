"""Session that trains as `envfleet.train` does: console in a terminal, metrics and TensorBoard files.

Some updates of the training take turns with some of the bare loop, which only collects and learns. Both use the same
process, workers and memory: two processes with the same work can differ by more than what is measured here.

Training runs in the main thread, where its signal handlers belong. A second thread talks to the benchmark and gives the
turns. Between measurements one checkpoint is written and timed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from time import perf_counter
from typing import Any

from benchmarks.stepping import Stepper, serve
from envfleet.algorithms.settings import PPO
from envfleet.training.assembly import Parts, assemble, resolve
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.loop import Training
from envfleet.training.reporting import Reporter
from envfleet.training.sampling import interval

UPDATES_AT_ONCE = 10  # per turn: switching threads costs some microseconds
NEVER = 10**12


@dataclass
class Turns(Callback):
    """Let the training run for some updates, then make it wait."""

    updates: int = 0  # left in this turn
    ended: bool = False
    errand: Callable[[], None] | None = None  # called by the training thread between updates
    go: Event = field(default_factory=Event)
    done: Event = field(default_factory=Event)

    def on_update(self, moment: Moment) -> None:
        self.updates -= 1
        while self.updates <= 0 and not self.ended:
            if self.errand is not None:
                self.errand()
                self.errand = None
            self.done.set()
            self.go.wait()
            self.go.clear()
        moment.stop = self.ended

    def take(self, updates: int = 0, errand: Callable[[], None] | None = None) -> None:
        """Wait until the updates or the errand are done; called by the second thread."""
        self.updates, self.errand = updates, errand
        self.done.clear()
        self.go.set()
        self.done.wait()


def bare_updates(parts: Parts) -> None:
    """Collect and learn, as all tables of the benchmark do."""
    for _ in range(UPDATES_AT_ONCE):
        parts.learner.learn(parts.schedule.next(), 0.0)


class Reporting:
    """Time a run's reporting (console, metrics, TensorBoard), its sampling and its checkpoints."""

    def __init__(self, training: Training, parts: Parts, reporter: Reporter) -> None:
        self._training, self._parts = training, parts
        self._seconds, self.checkpoint_seconds = 0.0, 0.0
        self.samples: list[float] = []  # seconds of each
        update, sampled = reporter.update, reporter.sampler.sample

        def timed(*args: Any) -> None:
            began = perf_counter()
            update(*args)
            self._seconds += perf_counter() - began

        def sample(workers: Any) -> dict[str, float]:
            began = perf_counter()
            figures = sampled(workers)
            self.samples.append(perf_counter() - began)
            return figures

        reporter.update = timed  # type: ignore[method-assign]  # no other hook covers all reporting
        reporter.sampler.sample = sample  # type: ignore[method-assign]

    def save(self) -> None:
        """Write and time one checkpoint; the pending rollout is finished first, since that work is not lost."""
        self._parts.schedule.settle()
        began = perf_counter()
        self._training._save()
        self.checkpoint_seconds = perf_counter() - began

    def take_seconds(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def in_a_terminal() -> None:
    """Make standard error a terminal with a reader, so that the live view is drawn."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    subprocess.Popen(["cat"], stdin=master, stdout=os.dup(sys.stderr.fileno()))
    os.close(master)
    os.dup2(slave, sys.stderr.fileno())
    os.close(slave)
    os.environ["TERM"] = "xterm-256color"


def train(settings: dict[str, Any]) -> None:
    """Train as `envfleet.training.loop.start` does, but with access to the parts."""
    with tempfile.TemporaryDirectory() as folder:
        kept: dict[str, Any] = {
            "output_dir": f"{folder}/run",
            "eval_every": 0,
            "checkpoint_every": NEVER,
            "checkpoint_minutes": NEVER,
        }
        resolved = resolve(PPO(**settings, **kept))
        with closing(Reporter.of_new_run(resolved, Path(folder))) as reporter, closing(assemble(resolved)) as parts:
            turns = Turns()
            training = Training(resolved, parts, reporter, [turns])
            reporting = Reporting(training, parts, reporter)
            talk = Thread(target=_talk, args=(turns, reporting, parts, settings), daemon=True)
            talk.start()
            training.run()
            talk.join()


def _talk(turns: Turns, reporting: Reporting, parts: Parts, settings: dict[str, Any]) -> None:
    seconds: dict[str, list[float]] = {"whole": [], "bare": []}  # of each turn; the first pair is warm-up
    steps = UPDATES_AT_ONCE * settings["n_envs"] * settings["rollout_steps"]

    def timed(name: str, updates: int = 0, errand: Callable[[], None] | None = None) -> None:
        began = perf_counter()
        turns.take(updates, errand)
        seconds[name].append(perf_counter() - began)

    def advance() -> int:
        if len(seconds["whole"]) == 1:
            reporting.take_seconds()
        timed("whole", UPDATES_AT_ONCE)
        timed("bare", errand=partial(bare_updates, parts))
        return 2 * steps

    def facts() -> dict[str, Any]:
        found = {name: steps / fmean(each[1:]) for name, each in seconds.items()}
        found |= {
            "reporting": reporting.take_seconds() / sum(seconds["whole"][1:]),
            "sampling": fmean(seconds / interval(seconds) for seconds in reporting.samples),
            "checkpoint_seconds": reporting.checkpoint_seconds,
        }
        turns.take(errand=reporting.save)
        for each in seconds.values():
            each.clear()
        return found

    def build() -> Stepper:
        turns.done.wait()  # until the first update
        turns.take(UPDATES_AT_ONCE, reporting.save)
        return Stepper(advance, facts=facts)

    try:
        serve(build)
    finally:
        turns.ended = True
        turns.go.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of envfleet.PPO, as JSON")
    options = parser.parse_args()
    # Prints go to standard error, which becomes a terminal; answers have a separate descriptor.
    in_a_terminal()
    train(options.settings)


if __name__ == "__main__":
    main()
