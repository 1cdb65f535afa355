"""Code inside each measured process: the timed loop, and the line protocol to the benchmark.

A *session* is a process that builds its environments, reports `ready`, and then answers each request for a measurement
with the number of environment steps and the seconds they took. Only the standard library is used, because sessions of
other libraries run this file in their own virtual environments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

Advance = Callable[[], int]  # steps a batch; returns the number of environment steps


def _nothing() -> None:
    """Do nothing: the default hook."""


def _no_facts() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Stepper:
    """Something that can be stepped and timed."""

    advance: Advance
    close: Callable[[], None] = _nothing
    pause: Callable[[], None] = _nothing  # after a measurement: leave the cores to the others
    resume: Callable[[], None] = _nothing
    facts: Callable[[], dict[str, Any]] = _no_facts  # further results of the last measurement


def timed_steps(advance: Advance, seconds: float) -> tuple[int, float]:
    """Step for about `seconds`; return the environment steps taken and their exact time."""
    steps = 0
    start = perf_counter()
    end = start + seconds
    now = start
    while now < end:
        steps += advance()
        now = perf_counter()
    return steps, now - start


def training_options(description: str | None, **flags: str) -> argparse.Namespace:
    """Parse the options of a training session: workload sizes, torch threads, and its own switches."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", type=json.loads, required=True, help="workload sizes, as JSON")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    for name, help_text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser.parse_args()


def serve(build: Callable[[], Stepper], wait_for_others: Callable[[], None] = _nothing) -> None:
    """Answer the benchmark's requests on standard input until it closes.

    `wait_for_others` runs between warm-up and measurement: there the processes of the limit wait for each other.
    """
    # Libraries may print to standard output, so the answers get a separate descriptor.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    stepper = build()
    stepper.pause()
    print(json.dumps({"ready": os.getpid()}), file=answers)
    try:
        for line in sys.stdin:
            request: dict[str, Any] = json.loads(line)
            stepper.resume()
            timed_steps(stepper.advance, request["warmup"])
            wait_for_others()
            steps, seconds = timed_steps(stepper.advance, request["seconds"])
            stepper.pause()
            print(json.dumps({"steps": steps, "seconds": seconds, **stepper.facts()}), file=answers)
    finally:
        stepper.resume()
        stepper.close()
