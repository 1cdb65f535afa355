"""`metrics.jsonl`, the single source of a run's metrics: one line of JSON per update."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.runs.durable import write_whole, writing
from envfleet.settings.files import parse_json

__all__ = [
    "EPISODES",
    "EVALUATION",
    "RETURN",
    "SHARES",
    "SPEED",
    "MetricsWriter",
    "elapsed_seconds",
    "iterate_metrics",
    "latest_metrics",
    "points",
    "read_metrics",
]

# Metrics that several commands read.
RETURN = "rollout/ep_rew_mean"  # mean of the last 100 episodes
EVALUATION = "eval/mean_reward"
EPISODES = "rollout/episodes"  # since the run began
SPEED = "time/fps"  # environment steps per second, over all the time since the previous update
SHARES = ("environment", "acting", "learning", "waiting", "rest")  # of the time, as time/...
_BITS = 64  # limit for integers
_LOG = logging.getLogger("envfleet")


class MetricsWriter:
    """Appends lines to a metrics file. First removes a line that was cut off by a kill."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists():
            _drop_torn_line(self.path)
        self._file = self._open()

    def _open(self) -> Any:
        with writing("the metrics", self.path):
            return open(self.path, "ab", buffering=0)  # unbuffered, so that every line reaches the system at once

    def write(self, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """Append one line and return its content. Values that are not finite become null."""
        row: dict[str, Any] = {"step": int(step), "time": round(time.time(), 3)}
        row |= {name: _number(value) for name, value in values.items() if name not in row}
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        size = self._file.tell()
        with writing("the metrics", self.path):
            try:
                if self._file.write(line) != len(line):
                    raise OSError("no space left for the whole line")
            except OSError:
                with suppress(OSError):  # readers skip an incomplete line
                    os.ftruncate(self._file.fileno(), size)  # leave nothing half-written
                raise
        return row

    def cut_after(self, step: int) -> None:
        """Remove lines after `step`, because a resumed run writes them again."""
        self.close()
        kept = [line for line, row in _rows(self.path) if row["step"] <= step]
        with writing("the metrics", self.path):
            write_whole(self.path, b"".join(line + b"\n" for line in kept))
        self._file = self._open()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics file, with NaN for null. A missing file has no rows."""
    return list(iterate_metrics(path))


def iterate_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows one by one: the file of a long run has tens of thousands."""
    for _, row in _rows(Path(path)) if Path(path).exists() else ():
        yield {name: math.nan if value is None else value for name, value in row.items()}


def points(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Steps and finite values of a metric. The later value wins if a step has two."""
    found = {row["step"]: row[name] for row in rows if math.isfinite(row.get(name, math.nan))}
    return list(found), list(found.values())


def elapsed_seconds(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds of training up to each row.

    Computed from the speed of each update, not from the clock, so the time between a kill and a resume does not count.
    """
    elapsed: list[float] = []
    seconds, step = 0.0, 0
    for row in rows:
        speed = row.get(SPEED, math.nan)
        if math.isfinite(speed) and speed > 0 and row["step"] > step:
            seconds += (row["step"] - step) / speed
            step = row["step"]
        elapsed.append(seconds)
    return elapsed


def latest_metrics(metrics: Path) -> tuple[int, float | None, float | None]:
    """Steps, last return and best evaluation. Parses only the lines it needs."""
    with _reading(metrics):
        lines = metrics.read_bytes().split(b"\n") if metrics.exists() else []
    parsed: dict[int, dict[str, Any]] = {}

    def row(index: int) -> dict[str, Any]:
        if index not in parsed:
            found = _row_of(lines[index])
            parsed[index] = found or {}
            if found is None and lines[index].strip() and index + 1 < len(lines):  # the last may be incomplete
                _tell_damaged(metrics, index + 1)
        return parsed[index]

    steps, last_return = 0, None
    for index in reversed(range(len(lines))):
        steps = steps or row(index).get("step", 0)
        last_return = _finite(row(index).get(RETURN))
        if last_return is not None:
            break
    evaluated = [index for index, line in enumerate(lines) if EVALUATION.encode() in line]
    scores = [_finite(row(index).get(EVALUATION)) for index in evaluated]
    return steps, last_return, max((score for score in scores if score is not None), default=None)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an OSError into a SettingsError that names the file."""
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error


def _rows(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each intact line and its content."""
    with _reading(path), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            row = _row_of(line)
            if row is not None:
                yield line.rstrip(b"\n"), row
            elif line.strip() and line.endswith(b"\n"):  # otherwise it may still be incomplete
                _tell_damaged(path, number)


def _row_of(line: bytes) -> dict[str, Any] | None:
    """Parse a line: a step and named metrics, each a number or null. None if it is damaged."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or not all(map(_is_metric, row.values())):
        return None
    return row


def _is_metric(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() < _BITS  # longer ones fit neither a float nor a TensorBoard step
    return value is None or isinstance(value, float)


def _tell_damaged(path: Path, number: int) -> None:
    """Warn about a skipped line of a metrics file."""
    _LOG.warning("%s, line %d is damaged and left out", path, number)


def _drop_torn_line(path: Path) -> None:
    with writing("the metrics", path), open(path, "r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _number(value: Any) -> float | int | None:
    if isinstance(value, int):
        return int(value)
    number = float(value)  # NumPy and torch scalars too
    return number if math.isfinite(number) else None
