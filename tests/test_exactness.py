"""Resume is called exact only if a state was restored in a fresh process and continued with the same bytes."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envfleet.conformance import examine
from envfleet.conformance.exactness import why_inexact
from envfleet.errors import StateError
from tests.inexact_worlds import INEXACT, CountsOutside, Fails, Honest, pendulum_of_random_mass


@pytest.mark.parametrize("env", ["HalfCheetah-v5", Honest], ids=["mujoco", "own"])
def test_an_environment_that_holds_all_of_its_state(env: Any) -> None:
    assert why_inexact(env, seed=3) is None


@pytest.mark.parametrize(("env", "expected"), INEXACT.values(), ids=INEXACT.keys())
def test_what_does_not_continue_has_a_reason(env: Any, expected: str) -> None:
    reason = why_inexact(env, seed=3)
    assert reason is not None
    assert expected in reason
    assert "\n" not in reason


def test_a_mujoco_model_that_resets_change() -> None:
    reason = why_inexact(pendulum_of_random_mass, seed=3)
    assert reason is not None
    assert "model that differs" in reason


def test_a_state_that_files_change() -> None:
    """The test restores the state as read from a checkpoint, not as the simulator returned it."""

    def stored(state: dict[str, Any]) -> dict[str, Any]:
        state["environments"][0]["simulator"]["format"] = 99
        return state

    reason = why_inexact("CartPole-v1", seed=3, stored=stored)
    assert reason is not None
    assert "cannot be restored" in reason

    def refused(state: dict[str, Any]) -> dict[str, Any]:
        raise StateError("too large for a file")

    assert why_inexact("CartPole-v1", seed=3, stored=refused) == "too large for a file"


def test_what_only_the_next_reset_shows() -> None:
    reason = why_inexact(CountsOutside, seed=3)
    assert reason is not None
    assert "after the next reset" in reason


def test_environments_that_fail_now_and_then() -> None:
    assert why_inexact(Fails, seed=3, on_error="restart") is None
    assert why_inexact(Fails, seed=3, on_error="raise") == "ValueError: the simulator blew up"


def test_one_that_no_process_can_be_given_is_not_claimed_to_be_exact() -> None:
    lock = threading.Lock()
    reason = why_inexact(lambda: Honest() if lock else None, seed=3)
    assert reason is not None
    assert "cannot be sent to a worker process" in reason


def test_actions_of_every_kind() -> None:
    class Acts(Honest):
        action_space = spaces.Dict(  # type: ignore[assignment]
            {
                "box": spaces.Box(0, 1, (2,), np.float32),
                "choices": spaces.Tuple((spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3))),
            }
        )

        def step(self, action: Any) -> Any:
            assert action in self.action_space
            return super().step(action["box"].sum() + action["choices"][0].sum())

    assert why_inexact(Acts, seed=3) is None


# ---- the report of `check`


def test_check_claims_what_was_tried() -> None:
    report = examine(Honest, steps=40, seconds=600)
    assert report.problems == ()
    assert report.resumable is True
    assert any("resume is exact: a state was restored in a fresh process" in note for note in report.notes)


@pytest.mark.parametrize("name", ["handle", "set_state raises"])
def test_check_does_not_claim_what_fails(name: str) -> None:
    env, expected = INEXACT[name]
    report = examine(env, steps=40, seconds=600)
    assert report.resumable is False
    (note,) = [note for note in report.notes if "resume" in note]
    assert note.startswith("resume starts fresh episodes: ")
    assert expected in note
    assert "get_state() and set_state(state)" in note


def test_check_tries_nothing_that_has_errors_or_cannot_be_built_again() -> None:
    class Wrong(Honest):
        observation_space = spaces.Box(-1, 1, (3,), np.float32)

    report = examine(Wrong, steps=40, seconds=600)
    assert not report.ok
    assert report.resumable is None
    assert any("was not tried: fix the errors first" in note for note in report.notes)
    report = examine(gymnasium.make("CartPole-v1"), steps=40, seconds=600)
    assert report.resumable is None
    assert any("whether resume is exact was not tried" in note for note in report.notes)
