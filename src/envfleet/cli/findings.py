"""A line of the diagnosis of `envfleet doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Severity"]

Severity = Literal["ok", "warn", "problem"]  # problem: no fleet can run, here or on the cluster


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis; `advice` is empty if there is nothing to do."""

    severity: Severity
    subject: str
    text: str
    advice: str = ""
