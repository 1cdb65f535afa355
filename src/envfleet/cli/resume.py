"""`envfleet resume`: continue a run as if it had never been interrupted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from envfleet.algorithms.settings import ALGORITHMS, HARMLESS, TrainingSettings
from envfleet.cli.flags import Flags
from envfleet.paths import expanded
from envfleet.settings import layered, read_settings_file

__all__ = ["Resume"]

_DESCRIPTION = """\
Continue a run that was stopped or killed, from its newest undamaged checkpoint.

If the simulators can be restored exactly, the run ends with the same weights as
one that was never stopped. Otherwise it starts fresh episodes and says so. You
can only change the settings below, which do not affect what was learned so far.
"""
_EXAMPLES = """
examples:
  envfleet resume runs/cartpole
  envfleet resume runs/cartpole --steps 400000          # train longer, also after the run has finished
  envfleet resume runs/cartpole --backend sequential    # e.g. on another machine
"""


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped or killed."""

    path: str
    trust: bool
    changes: dict[str, Any]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Resume:
        """Parse the command line."""
        kind = _settings_of(arguments)
        flags = Flags(kind, HARMLESS)
        run = tyro.conf.arg(metavar="RUN", help="The run folder.")
        trust = tyro.conf.arg(help="Allow importing the code that the run names (module:name).", help_behavior_hint="")
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
        """Train until the budget is spent; return exit code 0."""
        from envfleet.importing import make_folder_importable
        from envfleet.training import resume

        if self.trust:
            make_folder_importable()
        resume(self.path, trust=self.trust, **self.changes)
        return 0


def _settings_of(arguments: Sequence[str]) -> type[TrainingSettings]:
    """Return the settings class of the run's algorithm if it is built in. A missing run is reported later."""
    for argument in arguments:
        config = expanded(argument) / "config.yaml"
        if not argument.startswith("-") and config.is_file():
            return ALGORITHMS.get(read_settings_file(config).get("algorithm", ""), TrainingSettings)
    return TrainingSettings
