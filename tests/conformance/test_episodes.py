"""How episodes end."""

from __future__ import annotations

from typing import Any

import gymnasium

from tests.conformance.worlds import Endless, Walk, assert_problem, check


def test_episodes_that_never_end() -> None:
    report = check(Endless, steps=20)
    assert_problem(report, "warning", "no episode ended within 200 random steps", "TimeLimit")


def test_episodes_that_end_late_are_found() -> None:
    class Late(Walk):
        episode_length = 150

    assert check(Late, steps=20).problems == ()


def test_a_time_limit_is_trusted() -> None:
    report = check(lambda: gymnasium.wrappers.TimeLimit(Endless(), 10**6), steps=20)
    assert report.problems == ()
    assert check("MountainCar-v0", steps=20).problems == ()  # its limit is in its spec


def test_an_environment_that_resets_itself() -> None:
    class Selfish(Walk):
        def step(self, action: Any) -> Any:
            if self.taken >= self.episode_length:
                observation, info = self.reset()
                return observation, 0.0, False, False, info
            return super().step(action)

    assert_problem(check(Selfish), "warning", "the environment resets itself", "let reset alone begin episodes")


def test_the_wrapper_that_resets() -> None:
    report = check(lambda: gymnasium.wrappers.Autoreset(Walk()))
    assert any("Autoreset wrapper" in problem.fix for problem in report.warnings)


def test_an_environment_may_refuse_steps_after_the_end() -> None:
    class Strict(Walk):
        def step(self, action: Any) -> Any:
            assert self.taken < self.episode_length
            return super().step(action)

    assert check(Strict).problems == ()
