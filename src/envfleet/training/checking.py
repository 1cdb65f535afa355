"""`check`: whether an environment is fit for a fleet, and which algorithms can train on it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from envfleet.algorithms.settings import ALGORITHMS
from envfleet.conformance.advice import helpful_wrappers, smaller_pictures
from envfleet.conformance.examination import Doing
from envfleet.conformance.isolation import SECONDS, examine
from envfleet.conformance.report import CheckReport, Problem
from envfleet.errors import EnvfleetError
from envfleet.wording import listed, one_line

if TYPE_CHECKING:
    import gymnasium

__all__ = ["check", "refusals"]

_OWN_WRAPPER = (
    "write a gymnasium.ObservationWrapper or ActionWrapper that turns it into one of these: no ready one can do it "
    "(FlattenObservation leaves Graph and Sequence as they are, since their size changes)"
)


def check(
    env: str | Callable[..., Any] | gymnasium.Env[Any, Any],
    *,
    steps: int = 200,
    seed: int = 0,
    seconds: float = SECONDS,
    env_kwargs: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> CheckReport:
    """Return a report on the environment: every problem with its fix, and which algorithms can train on it.

    Args:
        env: a Gymnasium id, a callable that builds an environment, or an environment. A given environment is stepped
            in this process and left open; otherwise it is built in a separate process, which may crash or hang.
        steps: random steps to take; fewer with slow environments.
        seed: of the environment and of the random actions.
        seconds: rough time limit. The report names the checks that were skipped.
        env_kwargs: arguments for the environment.
        progress: show progress on a terminal.
    """
    with _progress(seconds, shown=progress) as show:
        report = examine(env, steps=steps, seed=seed, seconds=seconds, env_kwargs=env_kwargs, show=show)
        if report.observation_space is None:
            return report
        show(Doing("asking the algorithms", ""))
        return _with_algorithms(report)


def refusals(observation_space: Any, action_space: Any) -> dict[str, str]:
    """Try to build every algorithm's policy for these spaces. Returns the reasons of those that cannot."""
    found = {}
    for settings in ALGORITHMS.values():
        try:
            settings().build_policy(observation_space, action_space, seed=0)
        except EnvfleetError as error:
            found[settings.__name__] = " ".join(str(error).partition("\nhint:")[0].split())
        except Exception as error:  # noqa: BLE001 - spaces may fail in unforeseen ways
            found[settings.__name__] = f"building its policy raised {type(error).__name__}: {one_line(str(error))}"
    return found


def _with_algorithms(report: CheckReport) -> CheckReport:
    observation_space, action_space = report.observation_space, report.action_space
    refused = refusals(observation_space, action_space)
    able = tuple(settings.__name__ for settings in ALGORITHMS.values() if settings.__name__ not in refused)
    problems, notes = list(report.problems), list(report.notes)
    if able:
        notes.append(f"{listed(able)} can train on it")
    wrappers = helpful_wrappers(observation_space, action_space, refusals) if refused else {}
    for reason, names in _by_reason(refused, wrappers).items():
        what, suggestions = f"{listed(names)} cannot train on it: {reason[0]}", reason[1]
        if able:
            notes.append(f"{what}{f'; a wrapper helps: {_either(suggestions)}' if suggestions else ''}")
        else:
            fix = f"wrap it: {_either(suggestions)}" if suggestions else _OWN_WRAPPER
            problems.append(Problem("warning", what, fix))
    if smaller := smaller_pictures(observation_space):
        notes.append(f"observations are pictures of {observation_space.dtype}: {smaller}")
    return dataclasses.replace(report, problems=tuple(problems), notes=tuple(notes), algorithms=able)


def _by_reason(
    refused: dict[str, str], wrappers: dict[str, tuple[str, ...]]
) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Group the algorithms by reason and suggestions, so that nothing is repeated."""
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, reason in refused.items():
        grouped.setdefault((reason, wrappers.get(name, ())), []).append(name)
    return grouped


def _either(suggestions: tuple[str, ...]) -> str:
    return ", or ".join(suggestions)


@contextmanager
def _progress(seconds: float, *, shown: bool) -> Iterator[Callable[[Doing], None]]:
    """Show progress on stderr if it is a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("of about {task.fields[seconds]} s  {task.description}")
    with Progress(SpinnerColumn(), TimeElapsedColumn(), text, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, seconds=f"{seconds:g}")
        yield lambda doing: bar.update(task, description=": ".join(filter(None, (doing.examination, doing.call))))
