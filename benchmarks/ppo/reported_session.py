"""A session that trains as `envfleet.train` does: console in a terminal, metrics and TensorBoard files.

The training runs in the main thread, where its signal handlers belong; a second thread talks to the benchmark
and hands it the turn for some updates at a time. Between measurements one checkpoint is written and timed.
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
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

from benchmarks.stepping import Stepper, serve
from envfleet.algorithms.settings import PPO
from envfleet.training.assembly import Parts, assemble, resolve
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.loop import Training
from envfleet.training.reporting import Reporter

UPDATES_AT_ONCE = 10  # per turn: a change of threads costs some microseconds
NEVER = 10**12


@dataclass
class Turns(Callback):
    """Lets the training go on for some updates, then waits."""

    updates: int = 0  # left of this turn
    ended: bool = False
    errand: Callable[[], None] | None = None  # to be done by the training's thread, between updates
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
        """Called by the thread that talks: waits until the updates, or the errand, are done."""
        self.updates, self.errand = updates, errand
        self.done.clear()
        self.go.set()
        self.done.wait()


class Reporting:
    """Times what a run says and keeps, and its checkpoints."""

    def __init__(self, training: Training, parts: Parts, reporter: Reporter) -> None:
        self._training, self._parts = training, parts
        self._seconds, self.sampling_seconds, self.checkpoint_seconds = 0.0, 0.0, 0.0
        told, sampled = reporter.update, reporter.sampler.sample

        def timed(*args: Any) -> None:
            began = perf_counter()
            told(*args)
            self._seconds += perf_counter() - began

        def sample(workers: Any) -> dict[str, float]:
            began = perf_counter()
            figures = sampled(workers)
            self.sampling_seconds += perf_counter() - began
            return figures

        reporter.update = timed  # type: ignore[method-assign]  # nothing else sees every figure on its way
        reporter.sampler.sample = sample  # type: ignore[method-assign]

    def save(self) -> None:
        """One checkpoint; the rollout that a checkpoint waits for is collected before, as it is not lost."""
        self._parts.schedule.settle()
        began = perf_counter()
        self._training._save()
        self.checkpoint_seconds = perf_counter() - began

    def take_seconds(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def in_a_terminal() -> None:
    """Lets standard error be a terminal that somebody reads, so that the live view is drawn."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    subprocess.Popen(["cat"], stdin=master, stdout=os.dup(sys.stderr.fileno()))
    os.close(master)
    os.dup2(slave, sys.stderr.fileno())
    os.close(slave)
    os.environ["TERM"] = "xterm-256color"


def train(settings: dict[str, Any]) -> None:
    """As `envfleet.training.loop.start` does, with a hand on the parts."""
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
            talk = Thread(
                target=_talk, args=(turns, reporting, settings["n_envs"] * settings["rollout_steps"]), daemon=True
            )
            talk.start()
            training.run()
            talk.join()


def _talk(turns: Turns, reporting: Reporting, steps_per_update: int) -> None:
    seconds, whole = 0.0, 0.0  # of the last turn, and of all

    def advance() -> int:
        nonlocal seconds, whole
        reporting.take_seconds()  # of the turn that is measured last, the whole of it counts
        began = perf_counter()
        turns.take(UPDATES_AT_ONCE)
        seconds = perf_counter() - began
        whole += seconds
        return UPDATES_AT_ONCE * steps_per_update

    def facts() -> dict[str, Any]:
        share = reporting.take_seconds() / seconds
        turns.take(errand=reporting.save)
        return {
            "reporting": share,
            "sampling": reporting.sampling_seconds / whole,
            "checkpoint_seconds": reporting.checkpoint_seconds,
        }

    def build() -> Stepper:
        turns.done.wait()  # until the first update
        advance()
        return Stepper(advance, facts=facts)

    try:
        serve(build)
    finally:
        turns.ended = True
        turns.go.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=json.loads, required=True, help="of envfleet.PPO, as JSON")
    options = parser.parse_args()
    # What is printed goes to standard error, and that to a terminal; answers have a descriptor of their own.
    in_a_terminal()
    train(options.settings)


if __name__ == "__main__":
    main()
