"""Compares a trained agent with baselines, if its environment supports that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from envfleet.capabilities import Compares, Comparison
from envfleet.fleet.wrapping import build_one
from envfleet.policies.learner_threads import torch_threads
from envfleet.runs.trained_policy import TrainedAgent
from envfleet.search import Simulates
from envfleet.training.evaluating import no_simulation
from envfleet.training.opened_run import OpenedRun

__all__ = ["compare_run"]


def compare_run(
    path: str | Path,
    *,
    episodes: int = 100,
    checkpoint: str | None = None,
    deterministic: bool | None = None,
    seed: int | None = None,
    trust: bool = False,
    env: Any = None,
    policy: Any = None,
    say: Callable[[str], Any] | None = None,
    search: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Comparison | None:
    """Run the comparison that the run's environment offers, with its report in `report/`. None if it offers none.

    `seed` defaults to the run's. With `search`, the agent is also compared with itself as a `SearchingAgent` that
    simulates this many candidates per step. `say` is called when the comparison begins. The other arguments are those
    of `evaluate_run`. `folder` replaces `report/` in the run folder.
    """
    opened = OpenedRun.open(path, checkpoint=checkpoint, trust=trust, env=env, policy=policy, env_kwargs=env_kwargs)
    built = build_one(opened.env, opened.settings.env_kwargs)
    try:
        unwrapped = built.unwrapped
        if not isinstance(unwrapped, Compares):
            return None
        if search is not None and not isinstance(unwrapped, Simulates):
            raise no_simulation(opened.settings.env)
        if say is not None:
            say(f"comparing with others on {episodes} episodes, which may take minutes (--no-comparison leaves it out)")
        chosen = (opened.settings.seed or 0) if seed is None else seed
        opened.policy.reset(seed=chosen)
        agent = TrainedAgent(opened.policy, deterministic=opened.takes_best(deterministic))
        how = {} if search is None else {"search": search}
        with torch_threads(1):
            return unwrapped.compare(agent, folder or opened.folder.report, episodes=episodes, seed=chosen, **how)
    finally:
        built.close()
