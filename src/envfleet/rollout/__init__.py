"""Rollouts, replay buffers and trajectories: running a policy in a fleet and storing the experience."""

from __future__ import annotations

from envfleet.rollout.collect import collect
from envfleet.rollout.trajectories import Collection, CollectionStatistics, Trajectory

__all__ = ["Collection", "CollectionStatistics", "Trajectory", "collect"]
