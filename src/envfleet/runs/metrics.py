"""`metrics.jsonl`, the one source of every figure of a run: a line of JSON for each update."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from envfleet.runs.durable import write_whole, writing

__all__ = ["MetricsWriter", "iterate_metrics", "read_metrics"]

_LOG = logging.getLogger("envfleet")


class MetricsWriter:
    """Appends lines to a metrics file; a line that was torn by a kill is cut off first."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists():
            _drop_torn_line(self.path)
        self._file = self._open()

    def _open(self) -> Any:
        with writing("the metrics", self.path):
            return open(self.path, "ab", buffering=0)  # each line reaches the system at once

    def write(self, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """Appends one line and returns its content; what is not a finite number becomes null."""
        row: dict[str, Any] = {"step": int(step), "time": round(time.time(), 3)}
        row |= {name: _number(value) for name, value in values.items() if name not in row}
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        size = self._file.tell()
        with writing("the metrics", self.path):
            try:
                if self._file.write(line) != len(line):
                    raise OSError("no space left for the whole line")
            except OSError:
                with suppress(OSError):  # readers pass over a torn line
                    os.ftruncate(self._file.fileno(), size)  # nothing half-written
                raise
        return row

    def cut_after(self, step: int) -> None:
        """Drops what lies beyond `step`: a resumed run writes it again."""
        self.close()
        kept = [line for line, row in _rows(self.path) if row["step"] <= step]
        with writing("the metrics", self.path):
            write_whole(self.path, b"".join(line + b"\n" for line in kept))
        self._file = self._open()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, with NaN for null; a file that is not there has none."""
    return list(iterate_metrics(path))


def iterate_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """The same one by one: the file of a long run has tens of thousands."""
    for _, row in _rows(Path(path)) if Path(path).exists() else ():
        yield {name: math.nan if value is None else value for name, value in row.items()}


def _rows(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each sound line and what it says."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError:
                row = "damaged"
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                yield line.rstrip(b"\n"), row
            elif row is not None and line.endswith(b"\n"):  # else it may be on its way
                _LOG.warning("%s, line %d is damaged and left out", path, number)


def _drop_torn_line(path: Path) -> None:
    with open(path, "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _number(value: Any) -> float | int | None:
    if isinstance(value, int):
        return int(value)
    number = float(value)  # NumPy's and torch's scalars too
    return number if math.isfinite(number) else None
