"""The docs page shows the measured figures and the current settings."""

from __future__ import annotations

import json

from benchmarks import wildfire, wildfire_agent, wildfire_page
from benchmarks.wildfire_agent_page import agent_targets


def test_tables_are_made_from_the_measured_file() -> None:
    assert wildfire.main(["--check"]) == 0


def test_a_changed_figure_is_noticed() -> None:
    result = json.loads(wildfire_page.RESULTS.read_text())
    page = wildfire_page.PAGE.read_text()
    for name, table in wildfire_page.tables(result).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in page
    result["comparison"][0]["ours"] += 1
    assert wildfire_page.tables(result)["comparison"] not in page


def test_targets_that_are_missed_are_said() -> None:
    """Each target depends on its own figure; a missed one comes first."""
    measured = wildfire_page.RESULTS.read_text()
    reached = wildfire_page.tables(json.loads(measured))["targets"].splitlines()[2:]
    assert [row.endswith("| yes |") for row in reached] == [True] * 4
    for number in range(4):
        result = json.loads(measured)
        if number == 0:
            result["times_as_fast"] = 29
        elif number == 1:
            result["threads"]["speedup"] = 1.79
        elif number == 2:
            for row in result["experiences"]:
                row["per_minute"] = 299 * 280
        else:
            result["growth"][-1]["nanoseconds_per_n_log_n"] = 80
        rows = wildfire_page.tables(result)["targets"].splitlines()[2:]
        assert [row.endswith("| **no** |") for row in rows] == [True, False, False, False]
        assert rows[0][:25] == reached[number][:25]  # the end of a name may tell the fastest backend


def test_the_published_agent_beats_the_plain_ways_on_enough_landscapes() -> None:
    """As many as the command's default, and the 95 % interval of each difference lies above 0."""
    published = json.loads(wildfire_page.AGENT_RESULTS.read_text())["first"]
    assert published["landscapes"] == wildfire_agent.LANDSCAPES >= 50
    assert published["held_out"]
    for way in ("no breaks", "random", "centrality"):
        low, high = published["ways"][way]["more_than_agent_interval"]
        assert 0 < low < high, way


def test_targets_of_the_agent_that_are_missed_are_said() -> None:
    """Each target depends on its own figure."""
    measured = wildfire_page.AGENT_RESULTS.read_text()
    reached = [target["reached"] for target in agent_targets(json.loads(measured))]
    search = f"agent, search {wildfire_agent.SEARCH}"
    large = next(name for name in json.loads(measured)["large"]["ways"] if name.startswith("agent, search"))
    worse: list[tuple[tuple[str | int, ...], float]] = [
        (("seeds", "together", search, "more_than_greedy_interval", 0), 0.01),
        (("seeds", "each", search, 0, "seconds_per_landscape"), 1e3),
        (("curves", 0, "seconds"), 3700.0),
        (("large", "ways", "agent", "share_of_centrality"), 0.91),
        (("large", "ways", "agent", "seconds_per_landscape"), 61.0),
        (("large", "ways", large, "share_of_centrality"), 0.91),
        (("large", "ways", large, "seconds_per_landscape"), 61.0),
    ]
    assert len(reached) == len(worse)
    for number, (path, figure) in enumerate(worse):
        result = json.loads(measured)
        place = result
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = figure
        expected = [each and index != number for index, each in enumerate(reached)]
        assert [target["reached"] for target in agent_targets(result)] == expected
