"""Runs are grouped and named by the settings in which they differ."""

from __future__ import annotations

from pathlib import Path

from envfleet.runs.grouping import CHANGES_NO_RESULT, differing_settings, group_runs, run_names
from envfleet.runs.run import Run
from tests.runs.making import make_run


def test_seeds_form_one_group_and_the_difference_names_it(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "a", seed=1, quiet=True),
        make_run(tmp_path / "b", seed=1, backend="processes", workers=2, quiet=False),
        make_run(tmp_path / "c", seed=2, quiet=False, checkpoint_every=7),
    ]
    groups = group_runs([Run.load(path) for path in paths])
    assert [(group.label, [run.path.name for run in group.runs]) for group in groups] == [
        ("sequential", ["a", "c"]),
        ("processes", ["b"]),
    ]


def test_labels_have_as_many_settings_as_it_takes(tmp_path: Path) -> None:
    settings = [
        {"learning_rate": 0.001, "n_envs": 8},
        {"learning_rate": 0.01, "n_envs": 8},
        {"learning_rate": 0.001, "n_envs": 16},
    ]
    runs = [Run.load(make_run(tmp_path / str(at), **each)) for at, each in enumerate(settings)]
    assert [group.label for group in group_runs(runs)] == [
        "n_envs 8, learning_rate 0.001",
        "n_envs 8, learning_rate 0.01",
        "n_envs 16, learning_rate 0.001",
    ]
    assert [group.label for group in group_runs(runs[:2])] == ["learning_rate 0.001", "learning_rate 0.01"]
    assert [group.label for group in group_runs(runs[:1])] == ["ppo on CartPole-v1"]


def test_some_settings_can_be_left_out_of_it(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2, backend="processes", workers=2)]
    (group,) = group_runs([Run.load(path) for path in paths], ignoring=CHANGES_NO_RESULT)
    assert len(group.runs) == 2


def test_arguments_of_the_environment_differ_one_by_one() -> None:
    with_levels = {"env_kwargs": {"num_levels": 200, "start_level": 0}}
    assert differing_settings([with_levels, {"env_kwargs": {"start_level": 0}}]) == {
        "env_kwargs.num_levels": [200, None]
    }


def test_what_is_not_set_is_what_an_older_version_did_not_have() -> None:
    new, old = {"steps": 5, "pin_cores": False, "log_info": [], "eval_every": 0}, {"steps": 5}
    assert differing_settings([new, old]) == {"eval_every": [0, None]}  # 0 is a value


def test_settings_of_one_algorithm_alone_are_no_difference() -> None:
    ppo, dqn = {"algorithm": "ppo", "epochs": 4, "gamma": 0.9}, {"algorithm": "dqn", "tau": 1.0, "gamma": 0.99}
    assert differing_settings([ppo, dqn]) == {"algorithm": ["ppo", "dqn"], "gamma": [0.9, 0.99]}


def test_names_are_as_short_as_they_can_be() -> None:
    assert run_names([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert run_names([Path("seq/1"), Path("par/1"), Path("par/2")]) == ["seq/1", "par/1", "par/2"]
