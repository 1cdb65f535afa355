"""`envfleet train`: start a new run, with settings from flags, a file, or both."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from envfleet.algorithms.settings import ALGORITHMS, TrainingSettings, find_algorithm, installed_algorithms
from envfleet.capabilities import Translates
from envfleet.cli.flags import Flags
from envfleet.cli.seeds import read_seeds, settings_per_seed, train_in_turn
from envfleet.errors import SettingsError
from envfleet.importing import make_folder_importable
from envfleet.paths import expanded
from envfleet.settings import Settings, layered, read_settings_file, split_own
from envfleet.settings.declaration import dotted_keys, name_of

__all__ = ["Train"]

_ENV_KWARGS = "--env-kwargs"

_DESCRIPTION = """\
Train an agent with {title}

algorithms:
{algorithms}
`envfleet train NAME --help` lists the settings of each; those of {algorithm} are below.

Flags win over the settings file (--config), the file over the preset for the
environment's family, and the preset over the defaults below.
"""
_EXAMPLES = """
examples:
  envfleet train {algorithm} --env CartPole-v1 --n-envs 64 --steps 200000 --seed 1
  envfleet train {algorithm} --env envfleet/GameBoy-v0 --help   # also lists the settings of this environment
  envfleet train {algorithm} --env my_module:make_env --env-kwargs size=8 hard=true
  envfleet train {algorithm} --env Pendulum-v1 --duration 0.5 --output-dir runs/pendulum
  envfleet train {algorithm} --env CartPole-v1 --seeds 1 2 3   # three runs, one after another, and their mean
  envfleet train --config experiment.yaml --seed 3   # the file contains algorithm: {algorithm}

Ctrl-C saves the run; `envfleet resume` continues it. Many flag names of other
libraries also work, e.g. --batch-size, --n-steps and --n-epochs;
docs/coming-from.md lists them.
"""


@dataclass(frozen=True)
class Train:
    """Train an agent."""

    settings: TrainingSettings
    notices: tuple[str, ...] = ()  # notices about how the settings were read
    folder: Path | None = None  # working directory of the command
    seeds: tuple[int, ...] = ()  # one run per seed

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Train:
        """Parse the command line. tyro exits after --help and if a flag lacks its value."""
        folder = Path.cwd()  # importing the user's module may change it
        path = _config_path(arguments)
        from_file = {} if path is None else _settings_in(expanded(path))
        named, flags_only = _algorithm(arguments, from_file, path)
        if ":" in named:
            make_folder_importable()
        kind = find_algorithm(named)
        from_file, notices = kind.translated_file(from_file)
        own = _own_settings(kind, from_file, flags_only)
        flags = Flags(kind, own=own)
        config = tyro.conf.arg(metavar="FILE", help="YAML or JSON file with settings.", help_behavior_hint="")
        seeds = tyro.conf.arg(metavar="INT ...", help="Train one run per seed, in turn.", help_behavior_hint="")
        own_flags = [("config", Annotated[str, config], ""), ("seeds", Annotated[tuple, seeds], ())]
        command = dataclasses.make_dataclass("train", [*own_flags, *flags.fields()])
        if _asks_for_help(flags_only):
            command.__doc__ = _DESCRIPTION.format(title=_title(kind), algorithm=named, algorithms=_listed_algorithms())
        examples = _EXAMPLES.format(algorithm=named)
        parsed, given = flags.parse(command, flags_only, prog=f"envfleet train {named}", examples=examples)
        source = "the command" if path is None else f"{path} with the flags over it"
        if own is not None:
            from_file, given = _with_env_kwargs(kind, own, from_file, given, source)
        values = layered(kind, from_file, given)
        if isinstance(own, Translates):
            values, said = own.translated(values, given.get(_ENV_KWARGS, {}))
            notices = [*notices, *said]
        several: tuple[int, ...] = ()
        if any(argument.partition("=")[0] == "--seeds" for argument in flags_only):
            several = read_seeds(parsed.seeds, with_seed="--seed" in given)
        return cls(kind.from_mapping(values, source=source), tuple(notices), folder, several)

    def run(self) -> int:
        """Train until the budget is spent; return exit code 0."""
        from envfleet.training import train
        from envfleet.training.trust import named_code

        if named_code(self.settings):
            make_folder_importable()
        if not self.settings.quiet:
            sys.stderr.writelines(f"notice: {notice}\n" for notice in self.notices)
        if self.seeds:
            here = self.folder or Path.cwd()
            train_in_turn(settings_per_seed(self.settings, self.seeds, here), here)
        else:
            train(self.settings, folder=self.folder)
        return 0


def _config_path(arguments: Sequence[str]) -> str | None:
    """Return the path of the settings file. It is needed before the flags, because it may name the algorithm."""
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == "--config":
            rest = [value] if equals else list(arguments[position + 1 : position + 2])
            return rest[0] if rest and not rest[0].startswith("--") else None
    return None


def _settings_in(path: Path) -> dict[str, Any]:
    """Return the settings in a file. That of a run does not say `overwrite`, which older versions recorded."""
    content = read_settings_file(path)
    if (path.parent / "manifest.json").is_file():
        content.pop("overwrite", None)
    return content


def _algorithm(arguments: Sequence[str], from_file: dict[str, Any], path: str | None) -> tuple[str, list[str]]:
    """Return the algorithm, from the command or the file, and the remaining arguments."""
    written = from_file.pop("algorithm", None)
    flags = list(arguments)
    named = flags.pop(0) if flags and not flags[0].startswith("-") else None
    if named is not None and written is not None and named != written:
        raise SettingsError(
            f"the command says {named}, but {path} says algorithm: {written}", hint="leave one of the two out"
        )
    chosen = named or written
    if chosen is None and _asks_for_help(flags):
        chosen = "ppo"  # show the help of one algorithm as an example
    if chosen is None:
        where = "" if path is None else f", or `algorithm:` in {path}"
        raise SettingsError(
            f"the command names no algorithm, expected one of {', '.join(ALGORITHMS)} after `envfleet train`{where}",
            hint="e.g. envfleet train ppo --env CartPole-v1",
        )
    return str(chosen), flags


def _asks_for_help(flags: Sequence[str]) -> bool:
    return "-h" in flags or "--help" in flags


def _own_settings(
    kind: type[TrainingSettings], from_file: dict[str, Any], arguments: Sequence[str]
) -> type[Settings] | None:
    """Return the settings class of the environment in the flags, else in the file, if it declares one."""
    from envfleet.training.environment import settings_of

    env = next((value for key, value in dotted_keys(kind, from_file) if name_of(kind, key) == "env"), None)
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--") and name_of(kind, flag) == "env":  # --env-id and other names too
            env = value if equals else next(iter(arguments[position + 1 : position + 2]), None)
    return settings_of(env, for_help=_asks_for_help(arguments)) if isinstance(env, str) else None


def _with_env_kwargs(
    kind: type[TrainingSettings],
    own: type[Settings],
    from_file: dict[str, Any],
    given: dict[str, Any],
    source: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return file and flags with the environment's own settings moved into env_kwargs."""
    from_file, own_of_file = split_own(from_file, own, kind, source=source)
    given, own_of_flags = split_own(given, own, kind, source=source)
    flag = _ENV_KWARGS
    others = [key for key in from_file if name_of(kind, key) == "env_kwargs"]
    if any(not isinstance(from_file[key], Mapping) for key in others):
        return from_file, given  # refused later, with all other problems
    of_file = {} if flag in given else {name: value for key in others for name, value in dict(from_file[key]).items()}
    joined = {**of_file, **own_of_file, **given.get(flag, {}), **own_of_flags}
    return from_file, {**given, flag: joined} if joined else given


def _listed_algorithms() -> str:
    """Return one line per algorithm."""
    listed = {name: _title(kind) for name, kind in ALGORITHMS.items()} | installed_algorithms()
    width = max(map(len, listed))
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in listed.items())


def _title(kind: type[TrainingSettings]) -> str:
    title = (kind.__doc__ or "").partition("\n")[0]
    return title[:1].lower() + title[1:]
