"""`examine`: runs an examination in a separate process, so that a crash or a hang becomes a finding.

A fleet of one hosts a stand-in environment with a method that examines the real one. So the examination has the same
protection as environments in training: its process is killed if it hangs, and its death is noticed. The stand-in
announces each call of the environment in shared memory before it makes it. So the caller knows the call that crashed or
hung, although it hears from the stand-in only if there are new findings, and otherwise about twenty times a second.

An environment that was given as an object, or that cannot be sent to another process, is examined in this process.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from envfleet.conformance.announcement import Announcement
from envfleet.conformance.budget import Budget
from envfleet.conformance.exactness import COVER_ALL, why_inexact
from envfleet.conformance.examination import STARTS_FRESH, Doing, Examination
from envfleet.conformance.given import NamedEnv, factory_of, title_of
from envfleet.conformance.interface import check_picklable
from envfleet.conformance.report import CheckReport, Findings, more_time, own_stack
from envfleet.conformance.seeding import GlobalGenerators
from envfleet.errors import EnvHungError, SettingsError, WorkerError
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import make, one_env
from envfleet.fleet.spec import Restarts, Timeouts

__all__ = ["SECONDS", "examine"]

SECONDS = 20.0  # default time limit of an examination
LEAST_PATIENCE = 10.0  # seconds before a call counts as hung, however short the examination's time limit is
SECONDS_BETWEEN_REPORTS = 0.05
_EXACTNESS = "whether resume is exact"


def examine(
    env: str | Callable[..., Any] | gymnasium.Env[Any, Any],
    *,
    steps: int = 200,
    seed: int = 0,
    seconds: float = SECONDS,
    env_kwargs: Mapping[str, Any] | None = None,
    isolated: bool = True,
    clock: Callable[[], float] = time.monotonic,
    show: Callable[[Doing], None] = lambda _: None,
) -> CheckReport:
    """Examine an environment and return a report that lists every problem with its fix.

    `env` is a Gymnasium id, a callable that builds an environment, or an environment. A given environment is
    played and left open; checks that need a second instance or a factory are skipped, and a note says so. A
    `NamedEnv` is imported in the separate process; a name that leads nowhere raises a SettingsError.
    `show` is called before each step of the examination.
    """
    if steps < 1:
        raise SettingsError(f"steps is {steps}, expected at least 1")
    if not seconds >= 0:
        raise SettingsError(f"seconds is {seconds}, expected 0 or more")
    budget, findings = Budget(seconds, clock), Findings()
    factory = factory_of(env, dict(env_kwargs or {}))
    if factory is None:
        findings.note(
            "an environment was given, not a factory: second instances, close and worker processes were not checked"
        )
    elif not isinstance(factory, NamedEnv):  # its examination does this once it is imported
        check_picklable(factory, findings)
    instance = None if factory else env
    examination = Examination(factory, instance, steps=steps, seed=seed, budget=budget, findings=findings)
    generators, patience = GlobalGenerators(), max(seconds, LEAST_PATIENCE)
    announcement = Announcement()
    try:
        with _fleet_of(examination, announcement, patience, isolated=isolated and factory is not None) as fleet:
            announcement.remove_file()
            findings = _examined(fleet, findings, announcement, patience, show)
        if findings.refusal is not None:
            raise findings.refusal
        if findings.has_state:
            show(Doing("restoring its state in a fresh process", ""))
            _try_resume(factory, seed, budget, findings)
    finally:
        announcement.remove_file()
        generators.put_back()  # a check changes nothing for its caller
    return _report(title_of(env), seed, seconds, findings)


# --- where it runs


class _Host(gymnasium.Env[Any, Any]):
    """Stands in for the environment in a fleet of one; the caller drives the examination through `advance`."""

    observation_space = action_space = spaces.Discrete(1)

    def __init__(self, examination: Examination, announcement: Announcement) -> None:
        self._examination, self._announcement = examination, announcement
        self._run: Iterator[Doing] = examination.run()

    def advance(self) -> tuple[Doing | None, Findings | None]:
        """Examine for a moment, or until the findings change; return the next call, and the findings if changed."""
        findings, until = self._examination.findings, time.monotonic() + SECONDS_BETWEEN_REPORTS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report covers what Gymnasium warns about, with fixes
            while (doing := next(self._run, None)) is not None:
                self._announcement.write(f"{doing.examination}\n{doing.call}")
                if findings.changed or time.monotonic() >= until:
                    break
        news, findings.changed = findings if findings.changed else None, False
        return doing, news

    def close(self) -> None:
        self._examination.close()


def _fleet_of(examination: Examination, announcement: Announcement, patience: float, *, isolated: bool) -> Fleet:
    host = functools.partial(_Host, examination, announcement)
    options: dict[str, Any] = {
        "seed": 0,
        "timeout": Timeouts(None if math.isinf(patience) else patience),
        "restarts": Restarts(0),
        "quiet": True,
    }
    return one_env(host, **options) if isolated else make(host, 1, backend="sequential", **options)


def _examined(
    fleet: Fleet, findings: Findings, announcement: Announcement, patience: float, show: Callable[[Doing], None]
) -> Findings:
    """Run the examination until it ends, or until the environment crashes or hangs."""
    doing: Doing | None = Doing("starting", "starting the examination")
    while doing is not None:
        try:
            ((following, news),) = fleet.call("advance")
        except WorkerError as error:
            doing = _announced(announcement, doing)
            _note_fault(findings, doing, error.stack, patience if error.hung else None, error.ending)
            break
        except EnvHungError as error:  # the examination runs in this process
            _note_fault(findings, _announced(announcement, doing), error.original, patience)
            break
        findings, doing = news or findings, following
        if doing is not None:
            show(doing)
    if fleet.backend != "processes":
        findings.note("it was examined in this process: had it crashed, this process would have ended")
    return findings


def _announced(announcement: Announcement, otherwise: Doing) -> Doing:
    examination, _, call = announcement.read().partition("\n")
    return Doing(examination, call) if call else otherwise


def _note_fault(findings: Findings, doing: Doing, stack: str, hung_for: float | None, ending: str = "") -> None:
    """Add a problem: the environment's process ended, or it hung for `hung_for` seconds."""
    if hung_for is None:
        what = f"{doing.call} ended its process: {ending} (in: {doing.examination})"
        fix = (
            "let no code of the environment end its process (os._exit, abort); after a signal, look for an error in "
            "native code where the stack shows, or for a lack of memory"
        )
    else:
        what = f"{doing.call} has not returned for {hung_for:g} s (in: {doing.examination})"
        fix = f"find what it waits for; if it may take that long, give the check more time: {more_time(hung_for)}"
    findings.error(what, fix, own_stack(stack))


# --- after the examination


def _try_resume(factory: Callable[[], Any] | None, seed: int, budget: Budget, findings: Findings) -> None:
    """Test whether resume is exact: restore a state in a fresh process and compare how it continues."""
    if factory is None:
        findings.note("it gives its state as plain data; whether resume is exact was not tried")
    elif any(problem.severity == "error" for problem in findings.problems):
        findings.note("whether resume is exact was not tried: fix the errors first")
    elif not budget.allows_more():
        findings.skip(_EXACTNESS)
    elif (reason := why_inexact(factory, seed=seed, seconds=budget.left)) is not None:
        findings.resumable = False
        findings.note(f"{STARTS_FRESH}: {reason}; {COVER_ALL}")
    else:
        findings.resumable = True
        findings.note("resume is exact: a state was restored in a fresh process and continued with the same bytes")


def _report(name: str, seed: int, seconds: float, findings: Findings) -> CheckReport:
    observation_space, action_space = findings.spaces or (None, None)
    return CheckReport(
        env=name,
        seed=seed,
        steps=findings.steps,
        seconds_per_step=findings.seconds_per_step,
        resumable=findings.resumable,
        problems=tuple(findings.problems),
        notes=tuple(findings.notes),
        seconds=seconds,
        skipped=tuple(findings.skipped),
        observation_space=observation_space,
        action_space=action_space,
    )
