"""What a policy does in a fleet, kept as trajectories."""

from __future__ import annotations

from envfleet.rollout.collect import collect
from envfleet.rollout.trajectories import Collection, CollectionStatistics, Trajectory

__all__ = ["Collection", "CollectionStatistics", "Trajectory", "collect"]
