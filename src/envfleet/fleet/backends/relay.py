"""A small program that holds what a run prints until the run has shown it. `output.py` starts it.

stdin is the pseudo-terminal that the run and its workers print to, stdout a socket to the run, and stderr the real
terminal. The run answers each piece with the number of bytes that it has shown: whole lines. If the run is gone, all
that it has not shown goes to the real terminal, so the last words of a crashed simulator are not lost.

It only imports what it needs, so that it starts in milliseconds.
"""

import os
import select
import signal

__all__ = ["ANSWER", "PIECE"]

PIECE = 4096  # bytes sent at once
ANSWER = 2  # bytes of an answer
_MOST = 2**24  # bytes held; then writers have to wait


def relay(source: int, run: int, terminal: int) -> None:
    """Pass everything on until the last writer is gone."""
    held, is_open, is_there = b"", True, True
    asked, seen = 0, 0  # bytes that an answer is due for, and those of an unfinished line that the run knows
    while is_open or held:
        if not is_there:
            held = held[os.write(terminal, held) :]
        elif held and not asked and len(held) > seen:
            asked = sent(run, held[:PIECE])
            is_there = asked > 0
            continue
        sources = [source] if is_open and len(held) < _MOST else []
        ready = select.select([*sources, run] if asked else sources, [], [])[0] if asked or is_open else []
        if source in ready:
            piece = read(source, 65536)
            held, is_open = held + piece, bool(piece)
            if not is_open and held and not held.endswith(b"\n"):
                held += b"\n"
        if run in ready:
            answer = read(run, ANSWER)
            shown, is_there = int.from_bytes(answer, "little"), bool(answer)
            held, seen, asked = held[shown:], 0 if shown else asked, 0


def sent(run: int, piece: bytes) -> int:
    """Send a piece and return its size, or 0 if the run is gone."""
    try:
        return os.write(run, piece)
    except OSError:
        return 0


def read(descriptor: int, most: int) -> bytes:
    """Return at least one byte, or none if the other side is gone."""
    try:
        return os.read(descriptor, most)
    except OSError:  # on Linux: the last writer to a pseudo-terminal is gone
        return b""


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends by itself, after the run
        signal.signal(_number, signal.SIG_IGN)
    relay(0, 1, 2)
