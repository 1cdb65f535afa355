"""Output of environments in their workers does not tear the live view of a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from envfleet.fleet.backends import output
from tests.terminal import all_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals of this kind")

PROGRAM = """
import ctypes, os, sys, threading
from contextlib import closing
import envfleet
from envfleet.fleet.backends import output
from envfleet.runs.console import Console
from tests.fleet.simulators import Counter

class Loud(Counter):
    def reset(self, **kwargs):
        print("Python [/prints]")
        sys.stderr.write("gone\\rPython complains\\n")
        ctypes.CDLL(None).puts(b"C prints")
        os.system("test -t 1 && echo a child prints")
        return super().reset(**kwargs)

enough = threading.Semaphore(0)
print_line = output._print_line
def counted(line):
    print_line(line)
    enough.release()
output._print_line = counted

console = Console("title", budget_steps=100, mode="live")
with output.printed_by_caller(), closing(console):
    with envfleet.make(Loud, 2, backend="processes", workers=2, start_method=sys.argv[1], quiet=True) as fleet:
        console.update(10, {})
        fleet.reset()
        for _ in range(8):
            assert enough.acquire(timeout=60)
        sys.stderr.write("[/half a line]")
        sys.stderr.flush()
        sys.stderr.write("\\n")
print("the end")
"""


def on_terminal(*command: str) -> str:
    """Return everything that a command writes to its own terminal."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # without a buffer, `print` writes a line and its end separately
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = all_of(ours)
    assert process.returncode == 0, written
    return written


def screen(written: str) -> list[str]:
    """Return the lines that a terminal finally shows."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\r|\n|\x1b\[[\d;?]*[A-Za-z]|[^\r\n\x1b]+", written):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece.startswith("\x1b[") and piece.endswith("A"):
            row -= int(piece[2:-1] or 1)
        elif piece[0] != "\x1b":  # ignores colours and cursor visibility
            lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_lines_of_workers_come_above_the_view(method: str) -> None:
    shown = screen(on_terminal(sys.executable, "-c", PROGRAM, method))
    lines = ["Python [/prints]", "Python complains", "C prints", "a child prints"]
    *above, bar, speed, end = shown
    assert sorted(above) == sorted([*lines, *lines, "[/half a line]"])
    assert "10 of 100 steps" in bar and "speed" in speed and end == "the end"


def test_elsewhere_workers_have_the_streams_of_the_caller() -> None:
    with output.printed_by_caller():  # pytest's streams are not a terminal
        assert output.streams_of_workers() == {}
