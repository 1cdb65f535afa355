"""Demonstrations: expert trajectories to learn from, read from a file or played by a policy.

A file is a NumPy `.npz` of plain arrays with all trajectories concatenated; reading it runs no code. It contains action
masks if they are known. Without masks, all actions are allowed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import leaves_of, pick, rebuild
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.trajectories import Trajectory

__all__ = ["as_rollout", "load_demonstrations", "save_demonstrations"]

Array = np.ndarray[Any, Any]


def save_demonstrations(path: str | Path, trajectories: Sequence[Trajectory], space: spaces.Space[Any]) -> None:
    """Write trajectories (from `envfleet.collect`) to a file; `space` is the space of one observation."""
    if not trajectories:
        raise SettingsError("there are no trajectories to save, expected at least one")
    arrays: dict[str, Array] = {
        f"observations/{leaf.name}": np.concatenate([np.asarray(pick(t.observations, leaf.path)) for t in trajectories])
        for leaf in leaves_of(space)
    }
    arrays["actions"] = np.concatenate([np.asarray(t.actions) for t in trajectories])
    arrays["rewards"] = np.concatenate([t.rewards for t in trajectories])
    arrays["lengths"] = np.array([len(t) for t in trajectories], np.int64)
    arrays["terminated"] = np.array([t.terminated for t in trajectories], np.bool_)
    masks = _all_masks(trajectories)
    if masks is not None:
        arrays["masks"] = np.concatenate(masks)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # keywords are arrays here


def load_demonstrations(path: str | Path, space: spaces.Space[Any]) -> list[Trajectory]:
    """Read trajectories from a file and check that they fit the observation space."""
    hint = "make it with envfleet.save_demonstrations(path, collection.trajectories, env.observation_space)"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SettingsError(f"the demonstrations {path} cannot be read: {error}", hint=hint) from None
    names = [f"observations/{leaf.name}" for leaf in leaves_of(space)]
    missing = [name for name in (*names, "actions", "rewards", "lengths", "terminated") if name not in arrays]
    if missing:
        raise SettingsError(f"the demonstrations {path} have no {', '.join(missing)}", hint=hint)
    for leaf, name in zip(leaves_of(space), names, strict=True):
        if arrays[name].shape[1:] != leaf.shape:
            raise SettingsError(
                f"the demonstrations {path} have {name} of the shape {arrays[name].shape[1:]}, expected {leaf.shape}",
                hint="they were made in another environment",
            )
    masks = arrays.get("masks")
    observed = int((arrays["lengths"] + 1).sum())
    if masks is not None and (masks.ndim != 2 or len(masks) != observed):
        raise SettingsError(
            f"the demonstrations {path} have masks of the shape {masks.shape}, expected ({observed}, actions): "
            "one for each observation",
            hint=hint,
        )
    found: list[Trajectory] = []
    seen = done = 0
    for length, terminated in zip(arrays["lengths"].tolist(), arrays["terminated"].tolist(), strict=True):
        parts = {leaf.path: arrays[f"observations/{leaf.name}"][seen : seen + length + 1] for leaf in leaves_of(space)}
        acted = slice(done, done + length)
        found.append(
            Trajectory(
                env_index=0,
                observations=rebuild(space, parts),
                actions=arrays["actions"][acted],
                rewards=arrays["rewards"][acted],
                terminated=terminated,
                truncated=not terminated,
                complete=True,
                restarted=False,
                masks=None if masks is None else masks[seen : seen + length + 1].astype(np.bool_),
            )
        )
        seen, done = seen + length + 1, done + length
    return found


def as_rollout(trajectories: Sequence[Trajectory], space: spaces.Space[Any], *, first_action: int = 0) -> Rollout:
    """Return trajectories as the rollout of one environment; those that did not terminate count as truncated.

    A truncated trajectory is followed by a step that is not `valid`. It holds the final observation and its action
    mask, from which the value of the last step is bootstrapped.
    """
    # Rows per trajectory: one per step, and one for the final observation unless it terminated.
    rows = [len(trajectory) + (not trajectory.terminated) for trajectory in trajectories]
    steps, ends = sum(rows), np.cumsum(rows) - 1
    terminated, truncated = np.zeros((steps, 1), np.bool_), np.zeros((steps, 1), np.bool_)
    terminated[ends, 0] = [trajectory.terminated for trajectory in trajectories]
    truncated[ends, 0] = ~terminated[ends, 0]
    masks = _all_masks(trajectories)
    observations, finals = {}, {}
    for leaf in leaves_of(space):
        seen = [np.asarray(pick(trajectory.observations, leaf.path), leaf.dtype) for trajectory in trajectories]
        observations[leaf.name] = _in_rows(seen, rows)
        finals[leaf.name] = observations[leaf.name][:0]
    actions = [np.asarray(trajectory.actions) - first_action for trajectory in trajectories]
    rewards = [np.asarray(trajectory.rewards, np.float32) for trajectory in trajectories]
    nothing = np.zeros((steps, 1))
    return Rollout(
        number=0,
        observations=observations,
        finals=finals,
        columns={"actions": _with_none(actions, rows)},
        rewards=_with_none(rewards, rows),
        terminated=terminated,
        truncated=truncated,
        valid=~truncated,
        masks=None if masks is None else _in_rows(masks, rows),
        memory=np.zeros((1, 1, 0), np.float32),
        final_memory=np.zeros((steps, 1, 0), np.float32),
        episode_returns=nothing,
        episode_lengths=nothing.astype(np.int64),
        seconds=np.zeros((1, 2)),
    )


def _in_rows(seen: Sequence[Array], rows: Sequence[int]) -> Array:
    """[row + 1, 1, ...]: observations or masks of all rows, and the one after the last row."""
    parts = [part[:count] for part, count in zip(seen, rows, strict=True)]
    return np.concatenate([*parts, seen[-1][-1:]])[:, None]


def _with_none(done: Sequence[Array], rows: Sequence[int]) -> Array:
    """[row, 1, ...]: actions or rewards of all rows, zeros in rows without a step."""
    parts = [np.concatenate([part, np.zeros_like(part[:1])])[:count] for part, count in zip(done, rows, strict=True)]
    return np.concatenate(parts)[:, None]


def _all_masks(trajectories: Sequence[Trajectory]) -> list[Array] | None:
    """Masks of each trajectory, all True if it has none; None if no trajectory has masks."""
    width = next((trajectory.masks.shape[1] for trajectory in trajectories if trajectory.masks is not None), None)
    if width is None:
        return None
    return [
        np.ones((len(trajectory) + 1, width), np.bool_) if trajectory.masks is None else trajectory.masks
        for trajectory in trajectories
    ]
