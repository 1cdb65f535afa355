"""Comparisons: figures, statistics, and notes about runs that cannot be compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from envfleet.errors import SettingsError
from envfleet.runs.comparison import picture
from envfleet.runs.comparison.comparison import compare_runs
from envfleet.runs.comparison.curves import Line, Panel, panels_of
from envfleet.runs.comparison.report import report_of, table_rows
from envfleet.runs.folder import RunFolder
from tests.runs.making import make_run


def test_speed_and_returns_of_two_groups(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / f"s{seed}", seed=seed, speed=100.0, returns=(10, 20, 30, 40 + seed))
        make_run(
            tmp_path / f"p{seed}", seed=seed, speed=160.0, backend="processes", workers=2, returns=(10, 20, 30, 50)
        )
    # The sequential runs are the baseline even though the parallel ones come first.
    comparison = compare_runs([*tmp_path.glob("p*"), *tmp_path.glob("s*")])
    parallel, sequential = comparison.to_json()["groups"]
    assert (parallel["label"], sequential["label"]) == ("processes", "sequential")
    assert sequential["speedup"] == 1.0 and sequential["efficiency"] == 1.0
    assert parallel["speedup"] == pytest.approx(1.6) and parallel["efficiency"] == pytest.approx(0.8)
    assert parallel["speedup_against"] == "sequential"
    assert sequential["seconds"] == pytest.approx(10.0) and sequential["steps_per_second"] == pytest.approx(100.0)
    assert sequential["episodes"] == 400 and sequential["episodes_per_second"] == pytest.approx(40.0)
    assert sequential["final_return"] == pytest.approx(42.0)
    low, high = sequential["final_return_interval"]
    assert 41.0 <= low < 42.0 < high <= 43.0
    assert parallel["final_return_interval"] == (50.0, 50.0)
    assert parallel["probability_of_improvement"] == 1.0
    assert sequential["probability_of_improvement"] is None
    assert dict(table_rows(comparison))["probability of improvement"] == ["1.00 (1.00 to 1.00)", "-"]
    assert sequential["updates"] == 20 and sequential["time_shares"] == {"learning": pytest.approx(0.25)}


def test_steps_and_time_to_a_score(tmp_path: Path) -> None:
    make_run(tmp_path / "a1", seed=1, returns=(10, 50, 90, 100))
    make_run(tmp_path / "a2", seed=2, returns=(10, 91, 92, 100))
    make_run(tmp_path / "b1", seed=1, returns=(10, 20, 30, 40), learning_rate=0.1)
    (first, second) = compare_runs([tmp_path]).to_json()["groups"]
    assert first["score"] == second["score"] == pytest.approx(90.0)  # 90 % of the best
    assert first["steps_to_score"] == pytest.approx((750 + 500) / 2)
    assert first["seconds_to_score"] == pytest.approx((7.5 + 5.0) / 2)
    assert first["runs_at_score"] == 2
    assert second["steps_to_score"] is None and second["runs_at_score"] == 0
    (first, second) = compare_runs([tmp_path], score=30.0).to_json()["groups"]
    assert (first["steps_to_score"], second["steps_to_score"]) == (500, 750)


def test_a_score_below_zero_is_near_the_best_and_not_beyond_it(tmp_path: Path) -> None:
    make_run(tmp_path / "a", returns=(-900, -500, -210, -200))
    make_run(tmp_path / "b", returns=(-900, -500, -400, -300), learning_rate=0.1)
    first, _ = compare_runs([tmp_path]).to_json()["groups"]
    assert first["score"] == pytest.approx(-220.0) and first["steps_to_score"] == 750


def test_a_lucky_first_episode_is_no_score(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / name, returns=(100, 10, 20, 30), learning_rate=rate) for name, rate in (("a", 1), ("b", 2))
    ]
    for path in paths:  # the first value is the mean of one episode
        lines = (path / "metrics.jsonl").read_text()
        (path / "metrics.jsonl").write_text(lines.replace('"rollout/episodes": 100.0', '"rollout/episodes": 1.0'))
    first, _ = compare_runs(paths).to_json()["groups"]
    assert first["best_return"] == 30.0


def test_returns_at_equal_steps_and_equal_time(tmp_path: Path) -> None:
    make_run(tmp_path / "slow", speed=100.0, returns=(1, 2), duration=0.1, steps=None)
    make_run(
        tmp_path / "fast", speed=200.0, returns=(1, 2, 3, 4), duration=0.1, steps=None, backend="threads", workers=2
    )
    slow, fast = compare_runs([tmp_path / "slow", tmp_path / "fast"]).to_json()["groups"]
    assert fast["common_steps"] == 500 and fast["return_at_common_steps"] == 2.0
    assert fast["common_seconds"] == pytest.approx(5.0) and fast["return_at_common_seconds"] == 4.0
    assert slow["return_at_common_steps"] == slow["return_at_common_seconds"] == 2.0


def test_time_between_a_kill_and_a_resume_does_not_count(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / "a"), make_run(tmp_path / "b", learning_rate=0.1)]
    metrics = tmp_path / "a" / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    lines[2:] = [line.replace('"time": 10', '"time": 19') for line in lines[2:]]  # days later
    metrics.write_text("\n".join(lines) + "\n")
    first, second = compare_runs(paths).to_json()["groups"]
    assert first["seconds"] == second["seconds"] == pytest.approx(10.0)


def test_memory_and_cpu_as_they_were_recorded(tmp_path: Path) -> None:
    shares = {"": 180.0, "_caller": 20.0, "_learner": 40.0, "_workers": 120.0, "_others": 3.0}
    sampled = {"system/memory_mb": 300.0, **{f"system/cpu_percent{of}": share for of, share in shares.items()}}
    workers = {
        f"fleet/worker_{at}/{name}": value
        for at in (0, 1)
        for name, value in (("busy_share", 0.4), ("memory_mb", 50.0))
    }
    make_run(tmp_path / "a", more={**sampled, **workers}, backend="processes", workers=2)
    make_run(tmp_path / "b", more=workers, backend="processes", workers=2, learning_rate=0.1)
    make_run(tmp_path / "c", more=workers, backend="threads", workers=2)
    make_run(tmp_path / "d")
    new, old, threads, bare = compare_runs([tmp_path / name for name in "abcd"]).to_json()["groups"]
    assert (new["peak_memory_mb"], new["memory_covers"]) == (300.0, "all processes")
    assert {of: new[f"cpu_percent{of}"] for of in shares} == pytest.approx(shares)
    assert (old["peak_memory_mb"], old["memory_covers"], old["cpu_percent"]) == (100.0, "the workers only", None)
    assert old["workers_busy_percent"] == pytest.approx(80.0)
    assert threads["peak_memory_mb"] == 50.0  # one process, however many threads report it
    assert bare["peak_memory_mb"] is None
    rows = dict(table_rows(compare_runs([tmp_path / name for name in "abcd"])))
    assert rows["peak memory"] == ["300 MiB", "100 MiB (the workers only)", "50 MiB", "not recorded"]
    assert rows["CPU (100 % is a core)"] == ["180 %", *["not recorded; workers busy 80 %"] * 2, "not recorded"]


def test_runs_of_the_same_seed_are_no_further_evidence(tmp_path: Path) -> None:
    for name, value in (("a", 40), ("b", 60)):
        make_run(tmp_path / name, seed=1, returns=(1, 2, 3, value))
    make_run(tmp_path / "c", seed=1, learning_rate=0.1)
    first, _ = compare_runs([tmp_path]).to_json()["groups"]
    assert first["final_return"] == 50.0 and first["final_return_interval"] is None
    assert first["seeds"] == [1] and len(first["runs"]) == 2


def test_bands_are_over_seeds(tmp_path: Path) -> None:
    for name, seed, value in (("a", 1, 40), ("b", 1, 60)):
        make_run(tmp_path / name, seed=seed, returns=(1, 2, 3, value))
    make_run(tmp_path / "other", learning_rate=0.1)
    for panel in panels_of(compare_runs([tmp_path]))[:3]:
        one, two, whole = (line for line in panel.lines if line.group == 0)
        assert [(line.name, line.kind) for line in (one, two)] == [("a", "run"), ("b", "run")]
        assert whole.low is None and whole.high is None
        assert whole.y[-1] == pytest.approx((one.y[-1] + two.y[-1]) / 2)
    make_run(tmp_path / "c", seed=2, returns=(1, 2, 3, 80))
    returns = panels_of(compare_runs([tmp_path]))[0]
    (whole,) = (line for line in returns.lines if line.group == 0 and line.kind == "group")
    assert whole.low is not None and whole.high is not None
    assert (whole.low[-1], whole.y[-1], whole.high[-1]) == (50.0, 65.0, 80.0)


def test_own_environments_with_the_same_name_are_not_compared(tmp_path: Path) -> None:
    for name, env in (("a", "one:make"), ("b", "two:make")):
        make_run(tmp_path / name, env=env, manifest={"env": "make"})
    comparison = compare_runs([tmp_path])
    assert [group["speedup"] for group in comparison.to_json()["groups"]] == [None, None]
    assert any("different environments (one:make, two:make)" in note for note in comparison.notes)
    assert report_of(comparison, []).startswith("Comparison on make\n")


def test_different_environments_are_compared_each_with_its_own(tmp_path: Path) -> None:
    make_run(tmp_path / "a", speed=100.0)
    make_run(tmp_path / "b", speed=150.0, backend="threads", workers=2)
    make_run(tmp_path / "c", speed=900.0, env="Acrobot-v1", returns=(-500, -400, -300, -200))
    comparison = compare_runs([tmp_path])
    one, two, three = comparison.to_json()["groups"]
    assert two["speedup"] == pytest.approx(1.5) and three["speedup"] is None
    assert (one["score"], three["score"]) == (pytest.approx(36.0), pytest.approx(-220.0))
    assert any("different environments (CartPole-v1, Acrobot-v1)" in note for note in comparison.notes)
    assert "score: 90 % of the best" in report_of(comparison, [])


def test_a_broken_run_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good")
    (make_run(tmp_path / "settings") / "config.yaml").write_text("- no\n")
    (make_run(tmp_path / "manifest") / "manifest.json").write_text("{")
    make_run(tmp_path / "empty", returns=())
    comparison = compare_runs([good, *(tmp_path / name for name in ("settings", "manifest", "empty"))])
    assert [run.name for run in comparison.runs] == ["good"]
    output = "\n".join(comparison.notes)
    assert "settings is left out: " in output and "expected settings as `name: value`" in output
    assert "manifest is left out: " in output
    assert "empty is left out: empty has no update in its metrics yet" in output
    assert "there is nothing to compare with" in output
    with pytest.raises(SettingsError, match="none of the 2 runs can be compared"):
        compare_runs([tmp_path / "settings", tmp_path / "empty"])
    with pytest.raises(SettingsError, match="goood does not exist"):
        compare_runs([good, tmp_path / "goood"])


def test_runs_that_are_not_finished_are_named(tmp_path: Path) -> None:
    make_run(tmp_path / "done", weights=1.0)
    make_run(tmp_path / "stopped", weights=1.0, finished=False, learning_rate=0.1)
    make_run(tmp_path / "going", weights=1.0, finished=False, learning_rate=0.2)
    with RunFolder.open(tmp_path / "going").lock():
        notes = compare_runs([tmp_path]).notes
    assert notes == (
        "going is still running: its figures are those so far (1,000 steps)",
        "stopped was stopped before its end, at step 1,000 of 1,000",
    )


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_whose_metrics_were_cut_is_named(tmp_path: Path, *, finished: bool) -> None:
    make_run(tmp_path / "whole", weights=1.0)
    metrics = make_run(tmp_path / "cut", weights=1.0, finished=finished, learning_rate=0.1) / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    notes = compare_runs([tmp_path]).notes
    assert notes[-1] == (
        "the metrics of cut end at step 500, but its last checkpoint is of step 1,000: the end of metrics.jsonl is "
        "missing, and the figures are those up to there"
    )
    assert notes[:-1] == (() if finished else ("cut was stopped before its end, at step 1,000 of 1,000",))


def test_a_run_in_which_no_episode_ended_is_compared_by_its_speed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", returns=(float("nan"),) * 4)
    make_run(tmp_path / "b", learning_rate=0.1)
    comparison = compare_runs([tmp_path])
    first, second = comparison.to_json()["groups"]
    assert first["final_return"] is None and second["speedup"] == pytest.approx(1.0)
    assert "no episode of a has ended, so there is no return to compare" in comparison.notes


def test_sequential_and_parallel_as_the_user_names_them(tmp_path: Path) -> None:
    make_run(tmp_path / "one", n_envs=8)
    for seed in (1, 2):
        make_run(tmp_path / "many" / str(seed), seed=seed, speed=150.0, n_envs=8 * seed, backend="threads", workers=2)
    comparison = compare_runs(sequential=[tmp_path / "one"], parallel=[tmp_path / "many"])
    first, second = comparison.to_json()["groups"]
    assert (first["label"], second["label"], len(second["runs"])) == ("sequential", "parallel", 2)
    assert second["speedup"] == pytest.approx(1.5)
    assert "the runs of parallel differ in more than their seed: n_envs" in comparison.notes


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", learning_rate=0.1)
    comparison = compare_runs([tmp_path / "a", tmp_path])
    assert len(comparison.runs) == 2
    assert f"{tmp_path / 'a'} was given twice and counts once" in comparison.notes


def test_the_report_says_what_one_seed_proves_and_fits(tmp_path: Path) -> None:
    for at in range(7):
        make_run(tmp_path / f"run-{at}", n_envs=at + 1)
    report = report_of(compare_runs([tmp_path]), [], width=80)
    assert "One seed proves nothing about returns" in report
    assert max(map(len, report.splitlines())) <= 80
    assert report.count("steps/s   ") > 1  # too many groups to fit side by side
    for at in range(7):
        assert f"n_envs {at + 1}" in report


def test_a_curve_of_one_point_is_drawn() -> None:
    """A short run has one sample of memory and CPU, and a line through one point is invisible."""
    lines = [
        Line(0, "a", [1.0], [100.0]),
        Line(0, "a", [1.0], [50.0], axis="right"),
        Line(1, "b", [1.0, 2.0], [1.0, 2.0]),
    ]
    axes = Figure().subplots()
    picture._draw(axes, Panel("Memory and CPU", "s", "MiB", lines, right_label="CPU"))
    markers = [line.get_marker() for each in axes.figure.axes for line in each.lines]
    assert markers == ["o", "None", "D"]
