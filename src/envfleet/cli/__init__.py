"""The `envfleet` command. Each subcommand is a module with a dataclass whose fields are its options."""

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

WRONG_USE, FAILURE = 2, 1  # exit codes: bad command line or settings; any other failure


class _Command(NamedTuple):
    kind: str  # the dataclass in the command's module; it has `run() -> int`
    summary: str


_COMMANDS = {
    "bench": _Command("Bench", "Measure this machine and recommend a backend and a number of environments."),
    "check": _Command("Check", "Check an environment: list every problem with its fix."),
    "compare": _Command("Compare", "Compare runs: speed, returns, memory, and whether the comparison is fair."),
    "demo": _Command("Demo", "Step environments for a few seconds, on one core and on all, to show the speed-up."),
    "doctor": _Command("Doctor", "Inspect this machine: cores, memory, limits and extras, with advice."),
    "evaluate": _Command("Evaluate", "Evaluate a trained policy: mean and spread of returns, video."),
    "plot": _Command("Plot", "Plot the learning curves of one or several runs."),
    "resume": _Command("Resume", "Continue a run that was stopped or killed."),
    "runs": _Command("Runs", "List runs with their progress and returns."),
    "train": _Command("Train", "Train an agent, with settings from flags, a file, or both."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments` (default: `sys.argv[1:]`) and return its exit code."""
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
        if not interrupt.args:  # a saved run has already printed a message
            sys.stderr.write("\n".join(["interrupted", *getattr(interrupt, "__notes__", ())]) + "\n")
        return interrupt.code if isinstance(interrupt, Terminated) else 130
    except BrokenPipeError:
        # The reader closed the pipe, as in `envfleet runs | head`. Keep Python from failing to flush stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a file or folder that cannot be read or written
        place = "" if error.filename is None else f"{error.filename}: "
        sys.stderr.write(f"error: {place}{error.strerror or error}\n")
        return FAILURE


def _parse(arguments: list[str]) -> Any:
    """Return the parsed command as its dataclass. tyro exits after --help and after invalid options."""
    import tyro  # here, so that a bare import of this package stays fast

    if not arguments or arguments[0].startswith("-"):
        # Listing the commands must not import them.
        listed = {name: _stand_in(command) for name, command in _COMMANDS.items()}
        description = "Train one agent in a fleet of environments, on every core. --version prints the version."
        tyro.extras.subcommand_cli_from_dict(listed, prog="envfleet", description=description, args=arguments)
    name = arguments[0]
    if name not in _COMMANDS:
        raise _unknown(name)
    # Import only this command, so that `doctor` works even if another part is broken.
    kind = getattr(import_module(f"envfleet.cli.{name}"), _COMMANDS[name].kind)
    if hasattr(kind, "parse"):  # its options come from an algorithm's settings
        return kind.parse(arguments[1:])
    return tyro.cli(kind, prog=f"envfleet {name}", args=arguments[1:], config=(tyro.conf.FlagCreatePairsOff,))


def _stand_in(command: _Command) -> Callable[[], None]:
    def listed() -> None:
        pass

    listed.__doc__ = command.summary
    return listed


def _unknown(name: str) -> SettingsError:
    near = difflib.get_close_matches(name.lower(), _COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean `envfleet {near[0]}`?" if near else "`envfleet --help` explains each command"
    return SettingsError(f"unknown command {name!r}, expected one of {', '.join(_COMMANDS)}", hint=hint)
