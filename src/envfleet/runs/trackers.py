"""Metrics for other programs: TensorBoard event files, and Weights & Biases if installed."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from envfleet.errors import MissingExtraError, SettingsError
from envfleet.runs.durable import writing
from envfleet.runs.records import RecordWriter
from envfleet.wording import one_line

__all__ = ["TensorBoardWriter", "WandbTracker"]

_NOT_VALUES = ("step", "time")


class TensorBoardWriter:
    """Writes metrics as a TensorBoard event file. `rows` are those that a resumed run already has.

    Removes older event files in the folder, because they contain metrics that the resume cut off. Writes each row as
    one record at once, without the queue and thread of TensorBoard's own EventFileWriter.
    """

    def __init__(self, folder: str | Path, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder = Path(folder)
        # TensorBoard's own writer adds the name of the host, which may be an address (ip-10-0-0-5).
        self.path = folder / f"events.out.tfevents.{int(time.time())}.envfleet.{os.getpid()}"
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            self._records = RecordWriter(open(self.path, "wb"))  # noqa: SIM115  # closed with the writer
            self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        for row in rows:
            self.write(row)
        self.flush()

    def _writing(self) -> AbstractContextManager[None]:
        return writing("the metrics for TensorBoard", self.path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row, as returned by `MetricsWriter.write` or `read_metrics`."""
        values = [
            self._summary.Value(tag=name, simple_value=math.nan if value is None else value)
            for name, value in row.items()
            if name not in _NOT_VALUES
        ]
        event = self._event(wall_time=row.get("time", 0.0), step=row["step"], summary=self._summary(value=values))
        with self._writing():
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """Flush, so that a running TensorBoard sees the data."""
        with self._writing():
            self._records.flush()

    def close(self) -> None:
        with suppress(OSError):  # a resumed run rewrites the whole file from the metrics
            self._records.close()


class WandbTracker:
    """Sends metrics to Weights & Biases. `WANDB_MODE=offline` keeps them on this machine."""

    def __init__(
        self, folder: str | Path, *, project: str, name: str, config: Mapping[str, Any], resume: bool = False
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("--track needs Weights & Biases", hint="pip install wandb") from None
        # A resumed run continues its page. Two runs may have the same name, in different folders.
        place = hashlib.sha256(str(Path(folder).absolute()).encode()).hexdigest()[:8]
        try:
            self._run = wandb.init(
                dir=str(folder),
                project=project,
                name=name,
                id=f"{name}-{place}",
                config=dict(config),
                resume="allow" if resume else None,
            )
        except Exception as error:  # of many types: no key, no network, a full disk
            raise SettingsError(
                f"Weights & Biases cannot be started: {one_line(str(error) or type(error).__name__)}",
                hint="`wandb login`, or WANDB_MODE=offline",
            ) from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Send a row, as returned by `MetricsWriter.write`."""
        values = {name: value for name, value in row.items() if name not in _NOT_VALUES and value is not None}
        self._run.log(values, step=row["step"])

    def close(self) -> None:
        self._run.finish()
