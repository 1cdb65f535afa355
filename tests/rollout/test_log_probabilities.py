"""The learner recomputes the collected log-probabilities: for every action space, with memory, with masks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.policies.policy import Policy
from envfleet.policies.settings import PolicySettings
from envfleet.rollout.arrays import Rollout
from tests.fleet.loop_back import use_loop_back
from tests.rollout.collecting import ENVS, GROUP, PIECE, SEED, STEPS, collecting
from tests.rollout.envs import ACTIONS, Counter, MaskedCounter

Array = np.ndarray[Any, Any]


class MaskedPair(Counter):
    """Two choices at once (of 2 and of 3); the mask concatenates both."""

    def __init__(self) -> None:
        super().__init__(actions="multi_discrete")

    def current_info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.time % 2, 1, self.time % 2, self.seed % 2], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        mask = self.current_info()["action_mask"]
        if not (mask[action[0]] and mask[2 + action[1]]):
            raise ValueError(f"action {action} is forbidden now")
        return super().step(action)


def recomputed(policy: Policy, rollout: Rollout, *, with_masks: bool = True) -> Array:
    """Recompute log-probabilities [time, env] as a learner does: from all rows at once, or by piece with memory."""
    observations = {name: torch.from_numpy(array[:-1]) for name, array in rollout.observations.items()}
    actions = torch.from_numpy(rollout.columns["actions"])
    masks = None if rollout.masks is None or not with_masks else torch.from_numpy(rollout.masks[:-1])
    with torch.no_grad():
        if not policy.memory_size:
            flat = {name: array.flatten(0, 1) for name, array in observations.items()}
            found = policy.evaluate(flat, actions.flatten(0, 1), None if masks is None else masks.flatten(0, 1))
            return found.log_probs.reshape(STEPS, ENVS).numpy()
        parts = []
        for piece in range(STEPS // PIECE):
            part = slice(piece * PIECE, (piece + 1) * PIECE)
            found = policy.evaluate(
                {name: array[part] for name, array in observations.items()},
                actions[part],
                None if masks is None else masks[part],
                torch.from_numpy(rollout.memory[piece]),
                torch.from_numpy(rollout.starts[part]),
            )
            parts.append(found.log_probs)
        return torch.cat(parts).numpy()


def assert_equal_to_collected(rig: Any) -> None:
    for number in range(3):
        rollout = rig.collect(number)
        collected = rollout.columns["log_probs"]
        assert np.ptp(collected) > 0.01  # the numbers are not trivially equal
        np.testing.assert_allclose(recomputed(rig.policy, rollout), collected, atol=1e-5)


@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("actions", list(ACTIONS))
def test_of_every_action_space(acting: str, memory: str, actions: str) -> None:
    with collecting(partial(Counter, actions), acting=acting, memory=memory) as rig:
        assert_equal_to_collected(rig)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_of_actions_squashed_by_tanh(memory: str) -> None:
    settings = PolicySettings(bounds="tanh", hidden=(8,), memory=memory, memory_size=8)  # type: ignore[arg-type]
    with collecting(partial(Counter, "box"), acting="worker", settings=settings) as rig:
        assert_equal_to_collected(rig)


@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("kind", [MaskedCounter, MaskedPair])
def test_with_masks(acting: str, memory: str, kind: type[Counter]) -> None:
    with collecting(kind, acting=acting, memory=memory) as rig:
        assert_equal_to_collected(rig)
        rollout = rig.collect(3)
        without = recomputed(rig.policy, rollout, with_masks=False)
        assert np.abs(without - rollout.columns["log_probs"]).max() > 0.01  # the masks make a difference


class LateSwitches(Counter):
    """Four switches. Only environments with an odd seed of one group give a mask, in the third step of an episode."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary(4)

    def current_info(self) -> dict[str, Any]:
        given = self.seed >= SEED + GROUP and self.seed % 2 and self.time == 2
        return {"action_mask": np.array([0, 1, 0, 1], np.int8)} if given else {}


@pytest.mark.parametrize(
    ("acting", "hosting"),
    [("worker", {}), ("central", {}), ("worker", {"backend": "threads", "workers": 2})],
    ids=["worker", "central", "without shared memory"],
)
def test_with_late_masks_of_switches(acting: str, hosting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows before the first mask, and groups that never give one, allow every switch."""
    if hosting:
        use_loop_back("loop-back", monkeypatch)
    with collecting(LateSwitches, acting=acting, **hosting) as rig:
        rollout = rig.collect(0)
        seeds, _, times = rollout.observations[""].transpose(2, 0, 1)
        given = (seeds >= SEED + GROUP) & (seeds % 2 == 1) & (times == 2)
        assert rollout.masks is not None and given.any()
        assert np.array_equal(rollout.masks, np.where(given[..., None], [False, True, False, True], True))
        np.testing.assert_allclose(recomputed(rig.policy, rollout), rollout.columns["log_probs"], atol=1e-5)


def test_memory_must_be_zeroed_where_episodes_begin_for_them_to_be_equal() -> None:
    """Without the starts the numbers differ."""
    with collecting(Counter, acting="worker", memory="gru") as rig:
        rollout = rig.collect(0)
        observations = {"": torch.from_numpy(rollout.observations[""][:PIECE])}
        actions = torch.from_numpy(rollout.columns["actions"][:PIECE])
        memory = torch.from_numpy(rollout.memory[0])
        with torch.no_grad():
            found = rig.policy.evaluate(observations, actions, None, memory, None)
        assert np.abs(found.log_probs.numpy() - rollout.columns["log_probs"][:PIECE]).max() > 1e-3
