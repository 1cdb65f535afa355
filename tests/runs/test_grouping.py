"""Runs are grouped and named by the settings in which they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(("given", "shown"), [(False, False), (None, "none"), ([], [])])
def test_an_argument_of_the_environment_that_is_off_differs_from_none_given(
    tmp_path: Path, given: Any, shown: Any
) -> None:
    settings = [{"env_kwargs": {"a": given}}, {"env_kwargs": {}}]
    assert differing_settings(settings) == {"env_kwargs.a": [shown, None]}
    runs = [Run.load(make_run(tmp_path / str(at), **each)) for at, each in enumerate(settings)]
    groups = group_runs(runs)
    assert [len(group.runs) for group in groups] == [1, 1]
    assert groups[0].label != groups[1].label == "a default"


def test_any_algorithm_can_have_an_argument_of_the_environment() -> None:
    ppo, dqn = {"algorithm": "ppo", "env_kwargs": {"a": False}}, {"algorithm": "dqn", "env_kwargs": {}}
    assert differing_settings([ppo, dqn]) == {"algorithm": ["ppo", "dqn"], "env_kwargs.a": [False, None]}


def test_a_setting_of_one_algorithm_tells_its_groups_apart(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"lam": 0.9}, {"lam": 0.95}, {"algorithm": "dqn", "tau": 1.0}]
    runs = [Run.load(make_run(tmp_path / str(at), **each)) for at, each in enumerate(settings)]
    assert [group.label for group in group_runs(runs)] == ["ppo, lam 0.9", "ppo, lam 0.95", "dqn"]
    assert differing_settings([run.settings for run in runs]) == {
        "algorithm": ["ppo", "ppo", "dqn"],
        "lam": [0.9, 0.95, None],
    }


def test_values_that_are_cut_alike_are_shown_in_full(tmp_path: Path) -> None:
    limits = [[{"TimeLimit": {"max_episode_steps": steps}}] for steps in (50, 100)]
    runs = [Run.load(make_run(tmp_path / str(at), wrappers=each)) for at, each in enumerate(limits)]
    assert [group.label for group in group_runs(runs)] == [
        'wrappers [{"TimeLimit": {"max_episode_steps": 50}}]',
        'wrappers [{"TimeLimit": {"max_episode_steps": 100}}]',
    ]


def test_values_too_long_to_be_shown_in_full_get_a_number(tmp_path: Path) -> None:
    texts = ["x" * 100 + end for end in "abc"]
    runs = [Run.load(make_run(tmp_path / end, env_kwargs={"text": end})) for end in (*texts, "short")]
    cut = f"text {'x' * 59}…"
    assert [group.label for group in group_runs(runs)] == [f"{cut} (1)", f"{cut} (2)", f"{cut} (3)", "text short"]


def test_settings_of_one_algorithm_alone_are_no_difference() -> None:
    ppo, dqn = {"algorithm": "ppo", "epochs": 4, "gamma": 0.9}, {"algorithm": "dqn", "tau": 1.0, "gamma": 0.99}
    assert differing_settings([ppo, dqn]) == {"algorithm": ["ppo", "dqn"], "gamma": [0.9, 0.99]}


def test_names_are_as_short_as_they_can_be() -> None:
    assert run_names([Path("runs/a"), Path("runs/b")]) == ["a", "b"]
    assert run_names([Path("seq/1"), Path("par/1"), Path("par/2")]) == ["seq/1", "par/1", "par/2"]
