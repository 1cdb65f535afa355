"""comparison.html: a self-contained page whose curves can be inspected, zoomed and hidden."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from envfleet.runs.comparison.checks import Check
from envfleet.runs.comparison.curves import Panel
from envfleet.runs.comparison.report import Row
from envfleet.runs.grouping import COLOURS

__all__ = ["page_of"]


def page_of(
    title: str,
    labels: Sequence[str],
    rows: Sequence[Row],
    panels: Sequence[Panel],
    checks: Sequence[Check],
    explanations: Sequence[str],
    notes: Sequence[str],
) -> str:
    """The page as HTML."""
    groups = [{"label": label, "colour": COLOURS[at % len(COLOURS)]} for at, label in enumerate(labels)]
    data = json.dumps({"groups": groups, "panels": [panel.to_json() for panel in panels]}, allow_nan=False)
    parts = {
        "title": escape(title),
        "table": _table(labels, rows),
        "explanations": "".join(f"<p>{escape(line)}</p>" for line in explanations),
        "checks": "".join(map(_check, checks)),
        "notes": _notes(notes),
        "data": data.replace("<", "\\u003c"),  # so that no name can end the script
    }
    template = files("envfleet.runs.comparison").joinpath("page.html").read_text(encoding="utf-8")
    before, *pieces = template.split("{{")
    filled = [before]
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _table(labels: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in labels)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, cells in rows
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _check(check: Check) -> str:
    answer = f'<strong class="{check.answer}">{check.answer}</strong>'
    return f"<li>{answer}<div>{escape(check.question)}</div><span>{escape(check.facts)}</span></li>"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<h2>Notes</h2><ul class="notes">{items}</ul>'
