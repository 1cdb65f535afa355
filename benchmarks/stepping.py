"""What runs inside each measured process: the timed loop, and the line-by-line talk with the benchmark.

A *session* is a process that builds its environments, says `ready` and then answers each request for a
measurement with the number of environment steps it took and the seconds they needed. Standard library
alone, because sessions of other libraries run it in virtual environments of their own.
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

Advance = Callable[[], int]  # steps a batch; returns how many environment steps that was


def _nothing() -> None:
    """Stands where a session has nothing to do."""


def _no_facts() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Stepper:
    """Something that can be stepped and timed."""

    advance: Advance
    close: Callable[[], None] = _nothing
    pause: Callable[[], None] = _nothing  # after a measurement: leave the cores to the others
    resume: Callable[[], None] = _nothing
    facts: Callable[[], dict[str, Any]] = _no_facts  # what else there is to say about the last measurement


def timed_steps(advance: Advance, seconds: float) -> tuple[int, float]:
    """Environment steps taken in about `seconds`, and the exact time they took."""
    steps = 0
    start = perf_counter()
    end = start + seconds
    now = start
    while now < end:
        steps += advance()
        now = perf_counter()
    return steps, now - start


def training_options(description: str | None, **flags: str) -> argparse.Namespace:
    """What a session that trains is told: the sizes of its workload, torch's threads, and switches of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", type=json.loads, required=True, help="of the workload, as JSON")
    parser.add_argument("--threads", type=int, help="of torch; by default what torch chooses")
    for name, help_text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser.parse_args()


def serve(build: Callable[[], Stepper], wait_for_others: Callable[[], None] = _nothing) -> None:
    """Answers the benchmark's requests on standard input until it closes.

    `wait_for_others` runs between warm-up and measurement: the processes of the limit meet there.
    """
    # Libraries print to standard output at will; the talk gets a descriptor that they do not know.
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
