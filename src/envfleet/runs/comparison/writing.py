"""The files of a comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from envfleet.runs.comparison.checks import Check
from envfleet.runs.comparison.comparison import RunComparison
from envfleet.runs.comparison.curves import panels_of
from envfleet.runs.comparison.page import page_of
from envfleet.runs.comparison.picture import picture_of
from envfleet.runs.comparison.report import explanations_of, report_of, table_rows, title_of
from envfleet.runs.durable import write_whole, writing

__all__ = ["write_comparison"]


def write_comparison(comparison: RunComparison, checks: Sequence[Check], folder: str | Path) -> list[Path]:
    """Write comparison.png, comparison_report.txt, comparison.html and comparison.json. Returns their paths."""
    folder = Path(folder)
    panels = panels_of(comparison)
    labels = [group.label for group in comparison.groups]
    title = title_of(comparison)
    explanations, rows = explanations_of(comparison), table_rows(comparison)
    page = page_of(title, labels, rows, panels, checks, explanations, comparison.notes)
    figures = {**comparison.to_json(), "checks": [check.to_json() for check in checks]}
    contents = {
        "comparison.png": picture_of(panels, labels, title),
        "comparison_report.txt": report_of(comparison, checks).encode(),
        "comparison.html": page.encode(),
        "comparison.json": (json.dumps(figures, indent=2, allow_nan=False) + "\n").encode(),
    }
    with writing("the comparison", folder, "or give another place with --output-dir"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_whole(folder / name, content)
    return [folder / name for name in contents]
