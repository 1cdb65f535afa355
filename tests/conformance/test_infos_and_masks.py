"""Infos, and the action masks in them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.conformance.worlds import Walk, assert_problem, check, returning


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_info_that_is_no_dict(call: str) -> None:
    class Listing(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            observation, info = super().reset(seed=seed)
            return observation, [] if call == "reset" else info

    env = Listing if call == "reset" else returning(info=lambda env: [])
    assert_problem(check(env), "error", f"the info of {call} is a list, expected a dict", "a dict as the last")


def test_an_info_that_is_used_again() -> None:
    shared = {"key": 1}
    report = check(returning(info=lambda env: shared))
    assert_problem(report, "warning", "step returned the same info dict", "build a new info dict")


def test_an_info_that_cannot_be_pickled() -> None:
    report = check(returning(info=lambda env: {"lock": threading.Lock()}))
    assert_problem(report, "error", "info['lock'] of step cannot be pickled", "only numbers, strings")


def test_an_info_at_the_end_of_an_episode_that_cannot_be_pickled() -> None:
    class Late(Walk):
        episode_length = 30

        def step(self, action: Any) -> Any:
            *result, ended, truncated, _ = super().step(action)
            return (*result, ended, truncated, {"lock": threading.Lock()} if ended else {})

    assert_problem(check(Late, steps=40), "error", "info['lock'] of step cannot be pickled", "only numbers, strings")


def masked(mask: Any, space: spaces.Space[Any] | None = None) -> type[Walk]:
    class Masked(returning(info=lambda env: {"action_mask": mask})):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space or self.action_space

    return Masked


@pytest.mark.parametrize(
    ("mask", "space"),
    [
        (np.array([1, 0, 1], np.int8), spaces.Discrete(3)),
        (np.array([True, False, True]), spaces.Discrete(3, start=5)),
        (np.array([1, 0, 1, 1, 0]), spaces.MultiDiscrete([2, 3])),
        ((np.array([1, 0]), np.array([0, 0, 1])), spaces.MultiDiscrete([2, 3])),
    ],
)
def test_action_masks_that_fit(mask: Any, space: spaces.Space[Any]) -> None:
    assert check(masked(mask, space)).problems == ()


def test_random_actions_keep_to_the_mask() -> None:
    taken = set()

    class Only(masked(np.array([0, 1, 0], np.int8))):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            if self.taken:  # the info of reset has no mask
                taken.add(int(action))
            return super().step(action)

    assert check(Only).ok
    assert taken == {1}


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (np.ones(4), "expected shape (3,) of 0 and 1"),
        (np.array([0, 2, 1]), "expected shape (3,) of 0 and 1"),
        (None, "action_mask'] of step is None"),
    ],
)
def test_action_masks_that_do_not_fit(mask: Any, what: str) -> None:
    assert_problem(check(masked(mask)), "error", what, "one entry per action")


def test_an_action_mask_of_the_wrong_parts() -> None:
    mask = (np.ones(2), np.ones(2))
    report = check(masked(mask, spaces.MultiDiscrete([2, 3])))
    assert_problem(report, "error", "one mask of each size in [2, 3]", "one entry per action")


def test_an_action_mask_that_allows_nothing() -> None:
    assert_problem(check(masked(np.zeros(3))), "error", "allows no action", "does nothing, or end the episode")


def test_an_action_mask_may_allow_nothing_once_the_episode_is_over() -> None:
    env = returning(info=lambda env: {"action_mask": np.full(3, env.taken < 10)})
    assert check(env).problems == ()


def test_an_action_mask_for_continuous_actions() -> None:
    report = check(masked(np.ones(2), spaces.Box(-1, 1, (2,))))
    assert_problem(report, "warning", "masks an action space of type Box", "leave out the mask")
