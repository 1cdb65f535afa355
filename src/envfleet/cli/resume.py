"""`envfleet resume`: go on with a run as if it had never stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from envfleet.algorithms.settings import ALGORITHMS, HARMLESS, PPO, TrainingSettings
from envfleet.cli.flags import Flags
from envfleet.settings import layered, read_settings_file

__all__ = ["Resume"]

_DESCRIPTION = """\
Go on with a run that was stopped or killed, from its newest sound checkpoint.

It ends with the same weights as a run that was never stopped. Only settings that
do not change what was learned so far can be given here.
"""
_EXAMPLES = """
examples:
  envfleet resume runs/cartpole
  envfleet resume runs/cartpole --steps 400000          # also when it has finished
  envfleet resume runs/cartpole --backend sequential    # on another machine, say
"""


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed."""

    path: str
    trust: bool
    changes: dict[str, Any]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Resume:
        """The command in `arguments`."""
        kind = _settings_of(arguments)
        flags = Flags(kind, HARMLESS)
        run = tyro.conf.arg(metavar="RUN", help="The run's folder.")
        trust = tyro.conf.arg(help="Import the run's own code (module:name), which it recorded.", help_behavior_hint="")
        command = dataclasses.make_dataclass(
            "resume",
            [
                ("path", Annotated[str, tyro.conf.Positional, run]),
                ("trust", Annotated[bool, tyro.conf.FlagCreatePairsOff, trust], False),
                *flags.fields(),
            ],
        )
        command.__doc__ = _DESCRIPTION
        parsed, given = flags.parse(command, arguments, prog="envfleet resume", examples=_EXAMPLES)
        changed = kind.from_mapping(layered(kind, given), source="the command")
        return cls(parsed.path, parsed.trust, {name: getattr(changed, name) for name in changed.given})

    def run(self) -> int:
        """Trains on; the exit code is 0 when the budget is spent."""
        from envfleet.training import resume
        from envfleet.training.environment import make_folder_importable

        if self.trust:
            make_folder_importable()
        resume(self.path, trust=self.trust, **self.changes)
        return 0


def _settings_of(arguments: Sequence[str]) -> type[TrainingSettings]:
    """The settings of the run's algorithm, for its flags; where there is no such run, that is told later."""
    for argument in arguments:
        config = Path(argument) / "config.yaml"
        if not argument.startswith("-") and config.is_file():
            return ALGORITHMS.get(read_settings_file(config).get("algorithm", ""), PPO)
    return PPO
