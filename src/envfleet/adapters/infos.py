"""Infos in the form that other libraries use: one dictionary per environment."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["info_rows"]

Info = dict[str, Any]


def info_rows(infos: Info, count: int) -> list[Info]:
    """Split the batched infos of Gymnasium's vector API into one dictionary per environment."""
    rows: list[Info] = [{} for _ in range(count)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:  # the mask of another key
            continue
        present = np.flatnonzero(infos[f"_{key}"]) if f"_{key}" in infos else range(count)
        each = info_rows(values, count) if isinstance(values, dict) else values
        for row in present:
            rows[row][key] = each[row]
    return rows
