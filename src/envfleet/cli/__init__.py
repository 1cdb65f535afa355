"""The `envfleet` command: one module per subcommand, each with a dataclass whose fields are its options."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from envfleet import __version__
from envfleet.errors import EnvfleetError, MissingExtraError, SettingsError
from envfleet.signals import Terminated
from envfleet.streams import steady_streams

__all__ = ["main"]

WRONG_USE, FAILURE = 2, 1  # exit codes: the command cannot work as it is written; it did not work out


class _Command(NamedTuple):
    kind: str  # the dataclass in the module of the command's name; it has `run() -> int`
    summary: str


_COMMANDS = {
    "bench": _Command("Bench", "Measure this machine: backends, numbers of environments, what to use."),
    "check": _Command("Check", "Check an environment: every problem with its fix."),
    "compare": _Command("Compare", "Compare runs: speed, returns, memory, and whether the comparison is fair."),
    "demo": _Command("Demo", "Show the fleet at work for a few seconds, on one core and on all."),
    "doctor": _Command("Doctor", "Look at this machine: cores, memory, limits, extras, with advice."),
    "evaluate": _Command("Evaluate", "Play episodes with a trained policy: mean, spread, video."),
    "plot": _Command("Plot", "Draw the learning curve of a run, or of several."),
    "resume": _Command("Resume", "Go on with a run that was stopped or killed."),
    "runs": _Command("Runs", "List the runs: how far, how good."),
    "train": _Command("Train", "Train an agent, from flags, a settings file, or both."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command in `arguments` (those of the process if None)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with steady_streams():
        return _exit_code(given)


def _exit_code(given: list[str]) -> int:
    if given[:1] in (["--version"], ["-V"]):
        sys.stdout.write(f"envfleet {__version__}\n")
        return 0
    try:
        return int(_parse(given).run())
    except EnvfleetError as error:
        sys.stderr.write(f"error: {error}\n")
        return WRONG_USE if isinstance(error, SettingsError | MissingExtraError) else FAILURE
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:  # a run that was saved has said so itself
            sys.stderr.write("interrupted\n")
        return interrupt.code if isinstance(interrupt, Terminated) else 130
    except BrokenPipeError:
        # The reader of our output has gone, as in `envfleet runs | head`; Python must not complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parse(arguments: list[str]) -> Any:
    """The command as its dataclass; tyro exits by itself after help and after options that do not fit."""
    import tyro  # here, so that a bare import of this package stays fast

    if not arguments or arguments[0].startswith("-"):
        # Only the list of commands is asked for: nothing of them is imported for it.
        listed = {name: _stand_in(command) for name, command in _COMMANDS.items()}
        description = "Train one agent in a fleet of environments, on every core. --version prints the version."
        tyro.extras.subcommand_cli_from_dict(listed, prog="envfleet", description=description, args=arguments)
    name = arguments[0]
    if name not in _COMMANDS:
        raise _unknown(name)
    # Only this command is imported: the doctor comes even where another part is broken.
    kind = getattr(import_module(f"envfleet.cli.{name}"), _COMMANDS[name].kind)
    if hasattr(kind, "parse"):  # its options come from the settings of an algorithm
        return kind.parse(arguments[1:])
    return tyro.cli(kind, prog=f"envfleet {name}", args=arguments[1:], config=(tyro.conf.FlagCreatePairsOff,))


def _stand_in(command: _Command) -> Callable[[], None]:
    def listed() -> None:
        pass

    listed.__doc__ = command.summary
    return listed


def _unknown(name: str) -> SettingsError:
    near = difflib.get_close_matches(name, _COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean `envfleet {near[0]}`?" if near else "`envfleet --help` says what each does"
    return SettingsError(f"unknown command {name!r}, expected one of {', '.join(_COMMANDS)}", hint=hint)
