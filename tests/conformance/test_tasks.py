"""The task protocol: plain tasks, drawn from the given generator, and begun by `reset`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet.environments.meta import TaskSettings, Trial
from tests.conformance.worlds import Walk, assert_problem, check


class Leaning(Walk):
    """A walk that leans to one side; the task is how much."""

    task: Any = 0.0

    def sample_tasks(self, n: int, generator: np.random.Generator) -> Any:
        return generator.uniform(-0.001, 0.001, n).tolist()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.task = (options or {}).get("task", 0.0)
        observation, info = super().reset(seed=seed)
        return observation, {**info, "task": self.task}

    def noise(self) -> float:
        return float(super().noise() + self.task)


NOTE = "it has tasks: the same task and seed give the same episode"


def test_tasks_are_played() -> None:
    report = check(Leaning)
    assert report.ok and NOTE in str(report)
    assert NOTE in str(check(lambda: Trial(Leaning(), TaskSettings(episodes_per_task=2))))
    assert "task" not in str(check(Walk))


def test_a_task_that_leaves_something_behind() -> None:
    class Remembers(Leaning):
        def reset(self, **kwargs: Any) -> Any:
            result = super().reset(**kwargs)
            self.total = getattr(self, "total", 0.0) + self.task
            return result

        def noise(self) -> float:
            return float(super().noise() + self.total)

    assert_problem(check(Remembers), "error", "the same task and seed give another episode", "set in reset everything")


def test_a_task_that_the_info_does_not_name() -> None:
    class Silent(Leaning):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], {}

    assert_problem(check(Silent), "warning", "the info of reset has no task", "return")


def test_a_task_that_the_info_names_as_an_array() -> None:
    class Rounded(Leaning):
        def sample_tasks(self, n: int, generator: np.random.Generator) -> Any:
            return [{"lean": [lean], "side": 1} for lean in super().sample_tasks(n, generator)]

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            lean = np.array((options or {}).get("task", {"lean": [0.0]})["lean"], np.float32)
            observation, _ = super().reset(seed=seed, options={"task": lean[0]})
            return observation, {"task": {"lean": lean, "side": np.int64(1)}}

    report = check(Rounded)
    assert report.problems == () and NOTE in str(report)


def test_a_reset_that_ignores_the_given_task() -> None:
    class Deaf(Leaning):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            Walk.reset(self, seed=seed)
            self.task = float(self.np_random.uniform(-0.001, 0.001))
            return self.observe(), {"task": self.task}

    report = check(Deaf)
    assert_problem(report, "error", "expected the given task", 'begin the task in options["task"]')
    assert NOTE not in str(report)


def test_a_task_that_changes_nothing() -> None:
    class Indifferent(Leaning):
        def noise(self) -> float:
            return Walk.noise(self)

    different = "two different tasks gave the same episode (10 random steps)"
    report = check(Indifferent)
    assert report.ok and any(different in note for note in report.notes)
    assert not any(different in note for note in check(Leaning).notes)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda n, generator: np.zeros((n, 2)), "a task is ndarray, expected plain values"),
        (lambda n, generator: [0.5], "returned 1 tasks"),
        (lambda n, generator: [float(x) for x in np.random.default_rng().random(n)], "draws other tasks"),
        (lambda n, generator: 1 / 0, "sample_tasks raised ZeroDivisionError"),
    ],
    ids=["arrays", "too few", "own generator", "raises"],
)
def test_tasks_that_are_wrong(draw: Any, words: str) -> None:
    class Wrong(Leaning):
        def sample_tasks(self, n: int, generator: Any) -> Any:
            return draw(n, generator)

    assert_problem(check(Wrong), "error", words, "")
