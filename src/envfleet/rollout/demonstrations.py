"""Demonstrations: trajectories of somebody who knows how, in a file or played by a policy, for a replay to begin with.

The file is NumPy's `.npz` with plain arrays, one trajectory behind the other; reading it runs no code.
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
    """Writes trajectories (those of `envfleet.collect`) to a file; `space` is that of one observation."""
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
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # keywords are arrays here


def load_demonstrations(path: str | Path, space: spaces.Space[Any]) -> list[Trajectory]:
    """The trajectories of a file that fits observations of `space`."""
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
            )
        )
        seen, done = seen + length + 1, done + length
    return found


def as_rollout(trajectories: Sequence[Trajectory], space: spaces.Space[Any], *, first_action: int = 0) -> Rollout:
    """Trajectories as the rollout of one environment; what does not end terminated counts as truncated."""
    lengths = [len(trajectory) for trajectory in trajectories]
    steps = sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminated = np.zeros((steps, 1), np.bool_)
    terminated[ends, 0] = [trajectory.terminated for trajectory in trajectories]
    truncated = np.zeros((steps, 1), np.bool_)
    truncated[ends, 0] = [not trajectory.terminated for trajectory in trajectories]
    observations, finals = {}, {}
    for leaf in leaves_of(space):
        rows = [np.asarray(pick(trajectory.observations, leaf.path), leaf.dtype) for trajectory in trajectories]
        begun = np.concatenate([part[:-1] for part in rows] + [rows[-1][-1:]])
        observations[leaf.name] = begun[:, None]
        kept = [part[-1:] for part, trajectory in zip(rows, trajectories, strict=True) if not trajectory.terminated]
        finals[leaf.name] = np.concatenate([*kept, rows[-1][:0]])[:, None]
    actions = np.concatenate([np.asarray(trajectory.actions) for trajectory in trajectories])
    nothing = np.zeros((steps, 1))
    return Rollout(
        number=0,
        observations=observations,
        finals=finals,
        columns={"actions": (actions - first_action)[:, None]},
        rewards=np.concatenate([trajectory.rewards for trajectory in trajectories]).astype(np.float32)[:, None],
        terminated=terminated,
        truncated=truncated,
        valid=np.ones((steps, 1), np.bool_),
        masks=None,
        memory=np.zeros((1, 1, 0), np.float32),
        final_memory=np.zeros((steps, 1, 0), np.float32),
        episode_returns=nothing,
        episode_lengths=nothing.astype(np.int64),
        seconds=np.zeros((1, 2)),
    )
