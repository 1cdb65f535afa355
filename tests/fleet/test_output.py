"""Output of environments does not tear the live view of a terminal, wherever they run."""

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
    where = {"backend": sys.argv[1]}
    if sys.argv[1] in ("spawn", "fork", "forkserver"):
        where = {"backend": "processes", "workers": 2, "start_method": sys.argv[1]}
    with envfleet.make(Loud, 2, **where, quiet=True) as fleet:
        console.update(10, {})
        fleet.reset()
        for _ in range(int(sys.argv[2])):
            assert enough.acquire(timeout=60)
        sys.stderr.write("[/half a line]")
        sys.stderr.flush()
        sys.stderr.write("\\n")
print("the end")
"""


def on_terminal(*command: str, code: int = 0) -> str:
    """Return everything that a command writes to its own terminal; it has to end with `code`."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # without a buffer, `print` writes a line and its end separately
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = all_of(ours)
    assert process.returncode == code, written
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


@pytest.mark.parametrize(
    ("where", "through_the_terminal"),  # in this process, the view itself gets what Python prints
    [("spawn", 8), ("fork", 8), ("forkserver", 8), ("sequential", 4), ("threads", 4)],
)
def test_lines_of_environments_come_above_the_view(where: str, through_the_terminal: int) -> None:
    shown = screen(on_terminal(sys.executable, "-c", PROGRAM, where, str(through_the_terminal)))
    lines = ["Python [/prints]", "Python complains", "C prints", "a child prints"]
    *above, bar, speed, end = shown
    assert sorted(above) == sorted([*lines, *lines, "[/half a line]"])
    assert "10 of 100 steps" in bar and "speed" in speed and end == "the end"


MUCH = """
import ctypes, os
from envfleet.fleet.backends import output

with output.printed_by_caller():
    text = b"".join(b"line %d\\n" % number for number in range(20_000))
    ctypes.PyDLL(None).write(1, text, len(text))  # holds the GIL, as an extension module may
print("the end")
"""


def test_c_code_that_holds_the_gil_may_print_much() -> None:
    written = on_terminal(sys.executable, "-c", MUCH)
    lines = written.split("\r\n")  # on a busy machine the end may come earlier, and some lines twice
    assert {f"line {number}" for number in range(20_000)} | {"the end"} <= set(lines)


CRASH = """
import os, sys
from envfleet.fleet.backends import output
from envfleet.runs.console import Console

with output.printed_by_caller():
    Console("title", budget_steps=100, mode="live").update(10, {})
    os.write(2, b"last words of a simulator\\n")
    os.abort() if sys.argv[1] == "abort" else os._exit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("abort", -6), ("exit", 3)])
def test_the_last_words_of_a_crashed_process_are_shown(how: str, code: int) -> None:
    assert "last words of a simulator" in on_terminal(sys.executable, "-c", CRASH, how, code=code)


KEPT = """
import os, sys
from envfleet.fleet.backends import output

before = sys.stdout, sys.stderr, os.ttyname(1), os.ttyname(2)
with output.printed_by_caller():
    kept = sys.stderr  # as a logging handler does
    assert os.ttyname(2) != before[3]
assert (sys.stdout, sys.stderr, os.ttyname(1), os.ttyname(2)) == before
with open(os.devnull, "w"):  # takes a descriptor that became free
    kept.write("from a kept stream\\n")
"""


def test_a_stream_that_somebody_kept_still_writes_to_the_terminal() -> None:
    assert "from a kept stream" in on_terminal(sys.executable, "-c", KEPT)


def test_elsewhere_workers_have_the_streams_of_the_caller() -> None:
    with output.printed_by_caller():  # pytest's streams are not a terminal
        assert output.streams_of_workers() == {}
