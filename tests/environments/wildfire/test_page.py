"""The page shows what was measured, and the settings as they are."""

from __future__ import annotations

from benchmarks import wildfire


def test_tables_are_made_from_the_measured_file() -> None:
    assert wildfire.main(["--check"]) == 0


def test_a_changed_figure_is_noticed() -> None:
    import json

    result = json.loads(wildfire.RESULTS.read_text())
    page = wildfire.PAGE.read_text()
    for name, table in wildfire.tables(result).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in page
    result["comparison"][0]["ours"] += 1
    assert wildfire.tables(result)["comparison"] not in page
