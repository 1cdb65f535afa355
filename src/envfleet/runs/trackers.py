"""Metrics for other programs: TensorBoard's event files, and Weights & Biases where it is installed."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from envfleet.errors import MissingExtraError
from envfleet.runs.durable import writing

__all__ = ["TensorBoardWriter", "WandbTracker"]

_NOT_VALUES = ("step", "time")


class TensorBoardWriter:
    """Writes rows of metrics as a TensorBoard event file; `rows` are those that a resumed run already has.

    Older event files of the folder are removed: they hold what was cut from the metrics on resume. Each row is
    one record, written at once, without the queue and the thread of TensorBoard's own EventFileWriter.
    """

    def __init__(self, folder: str | Path, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder = Path(folder)
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
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
        return writing("the figures for TensorBoard", self.path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row as `MetricsWriter.write` returned it or `read_metrics` read it."""
        values = [
            self._summary.Value(tag=name, simple_value=math.nan if value is None else value)
            for name, value in row.items()
            if name not in _NOT_VALUES
        ]
        event = self._event(wall_time=row.get("time", 0.0), step=row["step"], summary=self._summary(value=values))
        with self._writing():
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """Hands what was written to the system, for a TensorBoard that looks on."""
        with self._writing():
            self._records.flush()

    def close(self) -> None:
        with suppress(OSError):  # a resumed run writes the whole file again, from the metrics
            self._records.close()


class WandbTracker:
    """Sends rows of metrics to Weights & Biases; `WANDB_MODE=offline` keeps them on this machine."""

    def __init__(
        self, folder: str | Path, *, project: str, name: str, config: Mapping[str, Any], resume: bool = False
    ) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("--track needs Weights & Biases", hint="pip install wandb") from None
        # The name of a run folder is unique, so a resumed run finds its page again.
        self._run = wandb.init(
            dir=str(folder),
            project=project,
            name=name,
            id=name,
            config=dict(config),
            resume="allow" if resume else None,
        )

    def write(self, row: Mapping[str, Any]) -> None:
        """Sends a row as `MetricsWriter.write` returned it."""
        values = {name: value for name, value in row.items() if name not in _NOT_VALUES and value is not None}
        self._run.log(values, step=row["step"])

    def close(self) -> None:
        self._run.finish()
