"""The page shows what was measured, and the settings as they are."""

from __future__ import annotations

import json

import pytest

from benchmarks import wildfire, wildfire_agent


def test_tables_are_made_from_the_measured_file() -> None:
    assert wildfire.main(["--check"]) == 0


def test_a_changed_figure_is_noticed() -> None:
    result = json.loads(wildfire.RESULTS.read_text())
    page = wildfire.PAGE.read_text()
    for name, table in wildfire.tables(result).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in page
    result["comparison"][0]["ours"] += 1
    assert wildfire.tables(result)["comparison"] not in page


def test_the_published_agent_beats_the_plain_ways_on_enough_landscapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the command compares on by default, and the 95 % interval of each difference lies above 0."""
    published = json.loads(wildfire.AGENT_RESULTS.read_text())["comparison"]
    asked: list[int] = []
    monkeypatch.setattr(wildfire_agent, "trained", lambda folder: None)
    monkeypatch.setattr(wildfire_agent, "figures_of", lambda run, landscapes: asked.append(landscapes) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        wildfire_agent.main(["somewhere"])
    assert published["landscapes"] == asked[0] >= 50
    assert published["held_out"]
    for way in ("no breaks", "random", "centrality"):
        low, high = published["ways"][way]["more_than_agent_interval"]
        assert 0 < low < high, way
