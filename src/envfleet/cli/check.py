"""`envfleet check`: is my environment fit for a fleet?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """Check an environment: every problem with its fix, and which algorithms can train on it.

    It runs in a process of its own, so that a crash or a hang is a finding. Exit code 1 if there are errors; what there
    was no time for does not count.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """A Gymnasium id, or module:callable (the current folder is importable)."""

    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Arguments for the environment, such as render_mode=rgb_array size=8."""

    steps: int = 200
    """Random steps to play; each check that plays again takes as many. Slow environments play fewer."""

    seconds: float = 20.0
    """How long it may take, roughly; the report names what there was no time for."""

    seed: int = 0
    """Seed of the environment and of the random actions."""

    def run(self) -> int:
        """Print the report."""
        import gymnasium

        from envfleet.extras import refuse_missing_extra
        from envfleet.seeding import checked_seed
        from envfleet.training.checking import check
        from envfleet.training.environment import keyword_arguments, named_environment

        checked_seed(self.seed)
        environment = named_environment(self.env)
        if isinstance(environment, str) and environment in gymnasium.registry:
            refuse_missing_extra(gymnasium.registry[environment].entry_point)
        kwargs = keyword_arguments(self.env_kwargs)
        report = check(
            environment, steps=self.steps, seed=self.seed, seconds=self.seconds, env_kwargs=kwargs, progress=True
        )
        sys.stdout.write(f"{report}\n")
        return 0 if report.ok else 1
