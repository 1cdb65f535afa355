"""Questions a sceptic asks of a comparison, answered from the runs' records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.runs.comparison.checks import Check, checks_of
from envfleet.runs.comparison.comparison import compare_runs
from tests.runs.making import make_run

ENVIRONMENT = "Is it the same environment?"
VERSIONS = "Are the libraries of the same versions?"
CODE = "Is it the same code?"
MACHINE = "Is it the same machine?"
ALONE = "Did each run have the machine to itself?"
DIFFERENCE = "Do the groups differ in one thing only?"
STEPS = "Did they train for the same number of steps?"
UPDATES = "Did they make the same number of updates?"
WEIGHTS = "Are the weights of runs of the same seed bit-identical?"
FINISHED = "Are all runs finished, with the settings they began with?"
SEEDS = "Are there enough seeds?"


def answers(*paths: Path) -> dict[str, Check]:
    return {check.question: check for check in checks_of(compare_runs(paths))}


def pair(folder: Path, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None) -> dict[str, Check]:
    """Write a sequential run and a later run with two workers, and return the checks."""
    make_run(folder / "a", **{"weights": 1.0, **(first or {})})
    changed = {"weights": 1.0, "backend": "threads", "workers": 2, "began": 2_000_000.0, **(second or {})}
    make_run(folder / "b", **changed)
    return answers(folder / "a", folder / "b")


def test_a_fair_comparison(tmp_path: Path) -> None:
    git = {"git": {"commit": "456789abcdef0123", "changed": False}}
    load = {"system/cpu_percent_others": 2.0}
    found = pair(tmp_path, {"manifest": git, "more": load}, {"manifest": git, "more": load})
    assert {question: check.answer for question, check in found.items()} == {
        ENVIRONMENT: "yes",
        VERSIONS: "yes",
        CODE: "yes",
        MACHINE: "yes",
        ALONE: "yes",
        DIFFERENCE: "yes",
        STEPS: "yes",
        UPDATES: "yes",
        WEIGHTS: "yes",
        FINISHED: "yes",
        SEEDS: "no",
    }
    assert found[SEEDS].facts.startswith("sequential, threads have one seed, and one seed proves")
    assert "digest 0123456789ab" in found[CODE].facts and "commit 456789abcdef" in found[CODE].facts
    assert found[WEIGHTS].facts == "seed 1 at step 1,000"


OTHER_CPU = {"machine": {"cpu": "other", "cores": 4, "python": "CPython 3.13", "libraries": {"gymnasium": "9.9"}}}
DIFFERENT = [
    (ENVIRONMENT, {"env": "Acrobot-v1"}, "no", "there are CartPole-v1, Acrobot-v1"),
    (ENVIRONMENT, {"env_kwargs": {"level": 2}}, "no", "with another env_kwargs.level"),
    (VERSIONS, {"manifest": OTHER_CPU}, "no", "gymnasium: "),
    (CODE, {"manifest": {"envfleet": "0.0.9"}}, "no", "0.0.9"),
    (CODE, {"manifest": {"code": "fedcba9876543210"}}, "no", "its files differ: digests 0123456789ab, fedcba987654"),
    (CODE, {"manifest": {"code": None}}, "unknown", "no digest of its files is recorded for b"),
    (CODE, {}, "yes", "no commit of your own code is recorded"),
    (CODE, {"manifest": {"git": {"commit": "0123", "changed": False}}}, "unknown", "at no commit, 0123"),
    (MACHINE, {"manifest": OTHER_CPU}, "no", "cores: "),
    (ALONE, {"began": 1_000_001.0}, "no", "a and b ran at the same time"),
    (ALONE, {"more": {"system/cpu_percent_others": 70.0}}, "no", "b (70 %)"),
    (ALONE, {}, "unknown", "not recorded for all"),
    (DIFFERENCE, {"learning_rate": 0.1}, "no", "learning_rate (0.001, 0.1)"),
    (STEPS, {"returns": (1, 2)}, "no", "500 to 1,000 steps"),
    (STEPS, {"returns": (1, 2), "steps": 500}, "no", "the budgets differ (steps)"),
    (UPDATES, {"returns": (1, 2)}, "no", "20 for every 1,000 environment steps in all"),
    (WEIGHTS, {"weights": 2.0}, "no", "look at the versions and the machine"),
    (WEIGHTS, {"weights": 2.0, "n_envs": 3}, "no", "n_envs shape what"),
    (WEIGHTS, {"seed": 2}, "unknown", "no two groups have"),
    (FINISHED, {"finished": False}, "no", "b (stopped)"),
]


@pytest.mark.parametrize(("question", "change", "answer", "facts"), DIFFERENT)
def test_what_is_not_fair_is_said(
    tmp_path: Path, question: str, change: dict[str, Any], answer: str, facts: str
) -> None:
    check = pair(tmp_path, second=change)[question]
    assert (check.answer, facts in check.facts) == (answer, True), check


def test_a_run_that_was_resumed_with_other_settings(tmp_path: Path) -> None:
    settings = {"algorithm": "ppo", "env": "CartPole-v1", "backend": "sequential", "steps": 1000}
    began = {"manifest": {"settings": {**settings, "learning_rate": 0.001}}}
    check = pair(tmp_path, second=began)[FINISHED]
    assert (check.answer, check.facts) == ("no", "resumed with other settings: b: backend, workers")


def test_own_environments_with_the_same_name(tmp_path: Path) -> None:
    for name, env in (("a", "one:make"), ("b", "two:make")):
        make_run(tmp_path / name, env=env, manifest={"env": "make"})
    check = answers(tmp_path / "a", tmp_path / "b")[ENVIRONMENT]
    assert (check.answer, check.facts) == ("no", "there are one:make, two:make")


@pytest.mark.parametrize(("began", "answer"), [(1_500_000.0, "yes"), (1_900_005.0, "no")])
def test_a_run_made_during_the_pause_of_another_had_the_machine_to_itself(
    tmp_path: Path, began: float, answer: str
) -> None:
    load = {"system/cpu_percent_others": 2.0}
    metrics = make_run(tmp_path / "a", more=load) / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    lines[2:] = [line.replace('"time": 10', '"time": 19') for line in lines[2:]]  # resumed days later
    metrics.write_text("\n".join(lines) + "\n")
    make_run(tmp_path / "b", more=load, learning_rate=0.1, began=began)
    assert answers(tmp_path / "a", tmp_path / "b")[ALONE].answer == answer


def test_every_group_with_one_seed_is_named(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"lam": 0.9}, {"lam": 0.95}, {"algorithm": "dqn"}]
    paths = [make_run(tmp_path / str(at), **each) for at, each in enumerate(settings)]
    assert answers(*paths)[SEEDS].facts.startswith("ppo, lam 0.9, ppo, lam 0.95, dqn have one seed")


@pytest.mark.parametrize(("count", "answer"), [(3, "no"), (5, "yes")])
def test_several_seeds(tmp_path: Path, count: int, answer: str) -> None:
    paths = [
        make_run(tmp_path / f"{backend}-{seed}", seed=seed, backend=backend)
        for backend in ("sequential", "threads")
        for seed in range(count)
    ]
    assert answers(*paths)[SEEDS].answer == answer


def test_changed_files_of_the_folder_leave_the_code_unknown(tmp_path: Path) -> None:
    clean, changed = ({"manifest": {"git": {"commit": "0123", "changed": each}}} for each in (False, True))
    check = pair(tmp_path, clean, changed)[CODE]
    assert check.answer == "unknown"
    assert "b began with files that differed from the commit 0123 of the folder" in check.facts
