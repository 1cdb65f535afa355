"""`envfleet check`: find problems of an environment before training on it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """Check an environment: list every problem with its fix, and the algorithms that can train on it.

    The environment runs in a separate process, so a crash or a hang is reported like any other problem. The exit code
    is 1 if there are errors. Checks that were skipped for lack of time do not affect it.

    examples:
      envfleet check CartPole-v1
      envfleet check my_module:make_env --env-kwargs size=8 --seconds 60
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, or module:callable. Modules in the current folder can be imported."""

    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Keyword arguments for the environment, e.g. render_mode=rgb_array size=8."""

    steps: int = 200
    """Random steps per check. Slow environments play fewer."""

    seconds: float = 20.0
    """Approximate time limit. The report lists the checks that were skipped for lack of time."""

    seed: int = 0
    """Seed of the environment and of the random actions."""

    def run(self) -> int:
        """Print the report."""
        import gymnasium

        from envfleet.conformance.given import NamedEnv
        from envfleet.extras import refuse_missing_extra
        from envfleet.importing import make_folder_importable
        from envfleet.seeding import checked_seed
        from envfleet.training.checking import check
        from envfleet.training.environment import keyword_arguments, named_environment

        checked_seed(self.seed)
        environment: str | NamedEnv = self.env
        if ":" in self.env:
            make_folder_importable()  # also here: spaces of the module's own classes come back
            environment = NamedEnv(self.env, named_environment)
        elif named_environment(self.env) in gymnasium.registry:
            refuse_missing_extra(gymnasium.registry[self.env].entry_point)
        kwargs = keyword_arguments(self.env_kwargs)
        report = check(
            environment, steps=self.steps, seed=self.seed, seconds=self.seconds, env_kwargs=kwargs, progress=True
        )
        sys.stdout.write(f"{report}\n")
        return 0 if report.ok else 1
