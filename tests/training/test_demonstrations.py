"""Demonstrations: files that load as saved, targets among allowed actions, and an agent that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import envfleet
from envfleet import clock
from envfleet.algorithms.dqn import DQNLearner
from envfleet.algorithms.experience import in_chunks
from envfleet.algorithms.settings import DQN
from envfleet.errors import ResourceError, SettingsError
from envfleet.rollout.collect import collect
from envfleet.rollout.demonstrations import as_rollout, load_demonstrations, save_demonstrations
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.trajectories import Trajectory
from envfleet.training import demonstrating, resume, train
from tests.rollout.made import transitions_at
from tests.training.dqn_worlds import Chain, Masked, MaskedShown
from tests.training.running import weights
from tests.training.test_timed import Clock

SPACE = spaces.Discrete(Chain.LENGTH)


def ahead(observations: Any) -> Any:
    """Always move forward, the best policy in the chain."""
    return np.ones(len(observations), np.int64)


@pytest.fixture(scope="module")
def trajectories() -> Any:
    fleet = envfleet.make(Chain, 2, backend="sequential", seed=0)
    try:
        return collect(fleet, ahead, steps=50).trajectories
    finally:
        fleet.close()


def test_a_file_gives_back_what_was_saved(tmp_path: Path, trajectories: Any) -> None:
    save_demonstrations(tmp_path / "shown.npz", trajectories, SPACE)
    loaded = load_demonstrations(tmp_path / "shown.npz", SPACE)
    assert len(loaded) == len(trajectories)
    for found, expected in zip(loaded, trajectories, strict=True):
        assert np.array_equal(found.observations, expected.observations)
        assert np.array_equal(found.rewards, expected.rewards) and found.terminated == expected.terminated


def test_as_a_rollout_each_step_leads_where_it_led(trajectories: Any) -> None:
    """Steps drawn from a replay are those of the trajectories, including the last steps of cut ones."""
    assert {trajectory.terminated for trajectory in trajectories} == {True, False}
    rollout = as_rollout(trajectories, SPACE)
    replay = Replay(ReplaySpec(SPACE, ((), np.int64), capacity=len(rollout.rewards), n_envs=1))
    replay.add(rollout)
    entries = np.flatnonzero(replay.happened(np.arange(replay.rows)))
    taken = transitions_at(replay, entries, steps=1, gamma=0.9)
    ends = [
        trajectory.terminated and step == len(trajectory) - 1
        for trajectory in trajectories
        for step in range(len(trajectory))
    ]
    assert np.array_equal(taken.observations[""], np.concatenate([t.observations[:-1] for t in trajectories]))
    assert np.array_equal(taken.actions, np.concatenate([t.actions for t in trajectories]))
    assert np.allclose(taken.returns, np.concatenate([t.rewards for t in trajectories]))
    assert np.array_equal(taken.discounts == 0.0, ends)
    following = np.concatenate([t.observations[1:] for t in trajectories])
    assert np.array_equal(taken.following[""][~np.array(ends)], following[~np.array(ends)])


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "shown.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_demonstrations(path, SPACE)


def test_a_file_of_another_environment_is_refused(tmp_path: Path, trajectories: Any) -> None:
    save_demonstrations(tmp_path / "shown.npz", trajectories, SPACE)
    with pytest.raises(SettingsError, match=r"expected \(3,\)"):
        load_demonstrations(tmp_path / "shown.npz", spaces.Box(0, 1, (3,)))


def test_more_than_fits_beside_the_replay_is_refused(trajectories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = DQN(demonstrations="shown.npz", replay_size=1_000, learning_starts=500)
    learner: DQNLearner = own.build_learner(SPACE, spaces.Discrete(2), n_envs=8, seed=1, device=torch.device("cpu"))
    room = int(1.02 * learner.experience._spec.bytes)
    monkeypatch.setattr("envfleet.rollout.replay_spec.available_memory", lambda: room)
    with pytest.raises(ResourceError, match="the demonstration replay needs"):
        learner.show(as_rollout(trajectories, SPACE))


# ---- masks


def masked_trajectories(*, ended: bool) -> list[Trajectory]:
    """Return episodes of 5 and 3 steps with two of six actions allowed at each observation."""
    generator, found = np.random.default_rng(3), []
    for length in (5, 3):
        masks = np.zeros((length + 1, 6), np.bool_)
        for mask in masks:
            mask[generator.choice(6, 2, replace=False)] = True
        found.append(
            Trajectory(
                env_index=0,
                observations=generator.integers(0, 2, (length + 1, 6), np.int8),
                actions=np.array([int(np.flatnonzero(mask)[0]) for mask in masks[:-1]]),
                rewards=generator.normal(size=length),
                terminated=ended,
                truncated=not ended,
                complete=True,
                restarted=False,
                masks=masks,
            )
        )
    return found


def learner_that_saw(trajectories: list[Trajectory], **changes: Any) -> DQNLearner:
    base: dict[str, Any] = {"demonstrations": "shown.npz", "minibatch_size": 64, "hidden": (16,), "n_step": 1}
    own = DQN(**{**base, **changes})
    learner: DQNLearner = own.build_learner(
        spaces.MultiBinary(6), spaces.Discrete(6), n_envs=2, seed=1, device=torch.device("cpu")
    )
    learner.show(as_rollout(trajectories, spaces.MultiBinary(6)))
    return learner


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_targets_of_what_was_shown_are_values_of_allowed_actions(ended: bool, double: bool) -> None:
    """Also for a cut episode: the actions allowed at its end are known."""
    trajectories = masked_trajectories(ended=ended)
    learner = learner_that_saw(trajectories, double=double)
    with torch.no_grad():
        learner._target_flat.data.mul_(1.2)  # makes the two networks differ
        ((batch, _),) = learner.experience.batches(1, 0, shown=1.0)
        following = {"": torch.from_numpy(batch.following[""])}
        values, online = learner._target.q_values(following), learner.policy.q_values(following)
        targets = learner._td_targets(
            batch,
            torch.from_numpy(batch.returns[:, None]),
            {"": torch.from_numpy(batch.seen[""])},
            online if double else None,
            None,
        )
    allowed_after = {
        float(np.float32(reward)): trajectory.masks[step + 1] if step + 1 < len(trajectory) or not ended else None
        for trajectory in trajectories
        if trajectory.masks is not None
        for step, reward in enumerate(trajectory.rewards)
    }
    assert {float(reward) for reward in batch.returns} == allowed_after.keys()  # every step was drawn
    forbidden_was_best = 0
    for i, reward in enumerate(batch.returns):
        mask, chooser = allowed_after[float(reward)], (online if double else values)[i]
        if mask is None:
            assert float(targets[i]) == pytest.approx(float(reward))
            continue
        forbidden_was_best += not mask[int(chooser.argmax())]
        best = int(torch.where(torch.from_numpy(mask), chooser, -torch.inf).argmax())
        assert float(targets[i]) == pytest.approx(float(reward) + 0.99 * float(values[i, best]), rel=1e-5)
    assert forbidden_was_best > 0


def test_rivals_of_what_was_shown_were_allowed_there() -> None:
    trajectories = masked_trajectories(ended=True)
    ((batch, _),) = learner_that_saw(trajectories, margin=0.5).experience.batches(1, 0, shown=1.0)
    masks = {
        float(np.float32(reward)): mask
        for trajectory in trajectories
        if trajectory.masks is not None
        for reward, mask in zip(trajectory.rewards, trajectory.masks, strict=False)  # the last mask has no step
    }
    assert batch.allowed is not None
    for reward, rivals in zip(batch.returns, batch.allowed, strict=True):
        assert np.array_equal(rivals, masks[float(reward)])


def test_masks_come_back_with_a_checkpoint() -> None:
    learner, fresh = (
        learner_that_saw(masked_trajectories(ended=False)),
        learner_that_saw([*masked_trajectories(ended=True)]),
    )
    fresh.experience._shown = None
    fresh.restore(learner.state(), {name: piece for name, piece in learner.pieces().items() if piece is not None})
    ((one, _),), ((other, _),) = learner.experience.batches(1, 0, shown=1.0), fresh.experience.batches(1, 0, shown=1.0)
    assert one.masks is not None and other.masks is not None
    assert np.array_equal(one.masks, other.masks)


def test_a_file_has_the_masks_and_one_without_them_allows_all(tmp_path: Path) -> None:
    trajectories, space = masked_trajectories(ended=False), spaces.MultiBinary(6)
    save_demonstrations(tmp_path / "shown.npz", trajectories, space)
    for found, expected in zip(load_demonstrations(tmp_path / "shown.npz", space), trajectories, strict=True):
        assert found.masks is not None and expected.masks is not None
        assert found.masks.dtype == np.bool_ and np.array_equal(found.masks, expected.masks)
    with np.load(tmp_path / "shown.npz") as file:
        older = {name: file[name] for name in file.files if name != "masks"}
    np.savez_compressed(tmp_path / "older.npz", **older)
    loaded = load_demonstrations(tmp_path / "older.npz", space)
    assert [trajectory.masks for trajectory in loaded] == [None, None]
    assert as_rollout(loaded, space).masks is None
    np.savez_compressed(tmp_path / "short.npz", **older, masks=np.ones((3, 6), np.bool_))
    with pytest.raises(SettingsError, match=r"masks of the shape \(3, 6\), expected \(10, actions\)"):
        load_demonstrations(tmp_path / "short.npz", space)


def test_what_an_environment_shows_has_its_masks(tmp_path: Path) -> None:
    changes = {"env": MaskedShown, "demonstrations": "environment", "demonstration_steps": 27, "pretrain_steps": 2}
    train(settings(tmp_path / "run", **changes, eval_every=0))
    (kept,) = (tmp_path / "demonstrations").iterdir()
    shown = load_demonstrations(kept, spaces.MultiBinary(6))
    assert [len(trajectory) for trajectory in shown] == [20, 7]
    for trajectory in shown:  # this world's observation is its mask
        assert trajectory.masks is not None and np.array_equal(trajectory.masks, trajectory.observations)


def test_a_kill_while_they_are_kept_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, *_: Any) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    changes = {"env": MaskedShown, "demonstrations": "environment", "demonstration_steps": 27, "pretrain_steps": 2}
    with monkeypatch.context() as patched:
        patched.setattr(demonstrating, "save_demonstrations", killed)
        with pytest.raises(KeyboardInterrupt):
            train(settings(tmp_path / "killed", **changes, eval_every=0))
    train(settings(tmp_path / "run", **changes, eval_every=0))


def test_masks_of_another_number_of_actions_are_refused(tmp_path: Path) -> None:
    save_demonstrations(tmp_path / "shown.npz", masked_trajectories(ended=True), spaces.MultiBinary(6))
    with np.load(tmp_path / "shown.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays["masks"] = arrays["masks"][:, :4]
    np.savez_compressed(tmp_path / "shown.npz", **arrays)
    with pytest.raises(SettingsError, match="masks of 4 actions, expected 6"):
        train(settings(tmp_path / "run", env=Masked, demonstrations=str(tmp_path / "shown.npz")))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.ones((9, 2), np.int64), r"actions of the shape \(2,\), expected \(\)"),
        (np.full(9, 7), "the action 7, expected whole numbers from 0 to 1"),
        (np.full(9, -1), "the action -1, expected whole numbers from 0 to 1"),
        (np.full(9, 0.5), "the action 0.5, expected whole numbers from 0 to 1"),
    ],
)
def test_actions_of_another_environment_are_refused(tmp_path: Path, actions: Any, message: str) -> None:
    arrays = {"observations/": np.zeros(10, np.int64), "actions": actions, "rewards": np.zeros(9)}
    np.savez_compressed(tmp_path / "shown.npz", **arrays, lengths=np.array([9]), terminated=np.array([True]))
    with pytest.raises(SettingsError, match=message):
        train(settings(tmp_path / "run", demonstrations=str(tmp_path / "shown.npz")))


# ---- runs


def settings(folder: Path, **changes: Any) -> DQN:
    base: dict[str, Any] = {
        "env": Chain,
        "n_envs": 4,
        "rollout_steps": 8,
        "steps": 128,
        "learning_starts": 64,
        "demonstrations": ahead,
        "demonstration_steps": 200,
        "pretrain_steps": 300,
        "margin": 0.5,
        "seed": 2,
        "backend": "sequential",
        "quiet": True,
        "output_dir": str(folder),
    }
    return DQN(**{**base, **changes})


def test_what_was_shown_is_enough(tmp_path: Path) -> None:
    """After 300 updates on 200 demonstrated steps, every evaluation episode goes straight to the end; chance: 1/512."""
    run = train(settings(tmp_path / "run"))
    scores = [row["eval/mean_reward"] for row in run.metrics if "eval/mean_reward" in row]
    assert scores[0] == pytest.approx(1.0)


def test_they_come_back_with_the_checkpoint(tmp_path: Path) -> None:
    # Exploration depends on the fraction of the budget used, so both runs have the same budget and one stops early.
    changes = {"checkpoint_every": 32, "eval_every": 0, "steps": 256}
    train(settings(tmp_path / "whole", **changes))
    train(settings(tmp_path / "half", **changes, num_episodes=5))
    resume(tmp_path / "half", num_episodes=None, quiet=True, env=Chain, demonstrations=ahead)
    assert weights(tmp_path / "half") == weights(tmp_path / "whole")


def test_learning_from_them_ends_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates, step = [], DQNLearner._step

    def counted(learner: DQNLearner, *given: Any) -> None:
        updates.append(1)
        step(learner, *given)

    monkeypatch.setattr(DQNLearner, "_step", counted)
    monkeypatch.setattr(clock, "time", Clock(7))
    with pytest.raises(SettingsError, match="hours were over before the first update"):
        train(settings(tmp_path / "run", steps=None, duration=1.0))
    assert len(updates) == 7


def test_many_updates_are_drawn_in_chunks() -> None:
    assert list(in_chunks(0)) == []
    assert list(in_chunks(2_500)) == [1_000, 1_000, 500]


def test_without_demonstrations_there_is_nothing_to_learn_first() -> None:
    with pytest.raises(SettingsError, match="needs demonstrations"):
        DQN(pretrain_steps=10)
