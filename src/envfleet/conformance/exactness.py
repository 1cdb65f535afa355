"""Tests whether a saved environment continues exactly, by restoring its state in a fresh process and playing on.

An environment that saves its state as plain data need not be restorable. An integer may be the handle of a simulator
inside a C library, and class attributes, global generators and a changed MuJoCo model are not part of any instance. So
a state is captured in the middle of an episode and restored into an environment that was built in another process and
has played something else there. Then both play the same actions, including a reset, and every byte is compared.

Each of the two runs in a separate process, whatever the backend of the run, for three reasons. A restored pointer may
crash the process that steps it. The test must not touch generators or classes that the run uses. And the answer must
not depend on the backend.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gymnasium.vector.utils import concatenate, create_empty_array

from envfleet.conformance.values import fingerprint
from envfleet.errors import EnvfleetError, one_line_of
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import make
from envfleet.fleet.random_actions import RandomAgent
from envfleet.fleet.spec import Restarts
from envfleet.seeding import derive_seed

__all__ = ["COVER_ALL", "why_inexact"]

COVER_ALL = (
    "let get_state() and set_state(state) cover all that decides how it continues: simulators behind handles, changed "
    "models, class attributes, generators"
)
STEPS = 64  # before the state is captured, and again after it
STEPS_AFTER_RESET = 16
STEPS_ELSEWHERE = 8  # played by the target before it is restored, to change any state outside the instance
STEPS_TO_BEGIN = 8  # extra steps, at most, so that the state is not captured right after an episode's end
SECONDS = 1.0  # time limit for each of these; at least one step is always taken
PLAYS = 6  # number of plays that share the time: recorded, repeated, and in the target before the restore
RESTARTS = 5  # if the environment may be restarted; more would only delay the answer
_STREAM = 0x5A7E  # key of this test's seeds among the streams of a run

Digests = dict[str, bytes]  # digests of what a reset or step returned, by part
Stored = Callable[[dict[str, Any]], dict[str, Any]]


def why_inexact(
    env: Any,
    *,
    seed: int,
    env_kwargs: dict[str, Any] | None = None,
    timeout: float | None = 60.0,
    on_error: str = "raise",
    validate: str = "warn",
    stored: Stored = lambda state: state,
    seconds: float = PLAYS * SECONDS,
) -> str | None:
    """Return a sentence that says why a restored environment does not continue with the same bytes; None if it does.

    `env` is anything `envfleet.make` takes; the other settings are those of the run. `stored` applies to a state what
    saving and loading do to it. `seconds` limits the time for playing: slow environments play fewer steps. An
    environment that fails during the test counts as inexact.
    """
    each = min(SECONDS, seconds / PLAYS)

    def made(number: int) -> Fleet:
        return make(
            env,
            1,
            backend="processes",
            workers=1,
            seed=_seed(seed, number),  # different for each: workers seed the global generators with it
            timeout=timeout,
            restarts=Restarts(RESTARTS if on_error == "restart" else 0),
            on_error=on_error,
            validate=validate,
            env_kwargs=env_kwargs,
            autoreset="same_step",
            quiet=True,
        )

    with ExitStack() as opened:
        beside = opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="envfleet-exactness"))
        second = beside.submit(made, 1)  # in parallel with the first: starting takes longer than playing
        opened.callback(_close, second)
        try:
            record = _recorded(opened.enter_context(made(0)), _seed(seed, 2), stored, each)
            fresh = second.result()
            _play_elsewhere(fresh, _seed(seed, 3), record.episodes, each)
        except EnvfleetError as error:
            return one_line_of(error)
        return _difference(fresh, record)


def _seed(seed: int, number: int) -> int:
    return derive_seed(seed, _STREAM, number) >> 2  # many simulators do not accept seeds of 2**31 or more


def _close(fleet: Future[Fleet]) -> None:
    if fleet.exception() is None:
        fleet.result().close()


# --- the original


@dataclass(frozen=True)
class _Played:
    """A sequence of steps of one environment."""

    actions: list[Any]
    digests: list[Digests]
    ends: list[bool]  # whether each step ended an episode
    infos: dict[str, Any]


@dataclass(frozen=True)
class _Record:
    """A state, and how the environment continued from it."""

    state: dict[str, Any]
    episodes: int  # started before the state was captured
    after: _Played
    reset: Digests
    after_reset: _Played


def _recorded(fleet: Fleet, seed: int, stored: Stored, seconds: float) -> _Record:
    agent = RandomAgent(fleet.single_action_space, seed)
    played = _play(fleet, agent, fleet.reset()[1], STEPS, seconds)
    episodes = 1 + sum(played.ends)
    for _ in range(STEPS_TO_BEGIN):
        if not played.ends[-1]:
            break
        played = _play(fleet, agent, played.infos, 1, seconds)
        episodes += played.ends[-1]
    state = stored(fleet.state())
    after = _play(fleet, agent, played.infos, STEPS, seconds)
    observations, infos = fleet.reset()  # without a seed: the generators continue, as at an episode's end
    after_reset = _play(fleet, agent, infos, STEPS_AFTER_RESET, seconds)
    return _Record(state, episodes, after, _reset_digests(observations, infos), after_reset)


def _play_elsewhere(fleet: Fleet, seed: int, episodes: int, seconds: float) -> None:
    """Play something else in the environment that will be restored, with a different number of episodes."""
    agent = RandomAgent(fleet.single_action_space, seed)
    played = _play(fleet, agent, fleet.reset()[1], STEPS_ELSEWHERE, seconds)
    if 1 + sum(played.ends) == episodes:
        fleet.reset()


def _play(fleet: Fleet, agent: RandomAgent, infos: dict[str, Any], most: int, seconds: float) -> _Played:
    """Play random actions that respect the action masks, for at most `most` steps and `seconds` seconds."""
    actions: list[Any] = []
    digests: list[Digests] = []
    ends: list[bool] = []
    until = time.monotonic() + seconds
    while not actions or (len(actions) < most and time.monotonic() < until):
        action = agent(None, {"action_mask": _mask(infos)})
        result = fleet.step(_batch(fleet, action))
        infos = result[4]
        actions.append(action)
        digests.append(_step_digests(result))
        ends.append(bool(result[2][0] or result[3][0]))
    return _Played(actions, digests, ends, infos)


def _batch(fleet: Fleet, action: Any) -> Any:
    space, room = fleet.single_action_space, create_empty_array(fleet.single_action_space, 1)
    return concatenate(space, (action,), room)  # type: ignore[arg-type]  # its own stubs differ


def _mask(infos: dict[str, Any]) -> Any:
    given = infos.get("_action_mask")
    return infos["action_mask"][0] if given is not None and given[0] else None


def _reset_digests(observations: Any, infos: dict[str, Any]) -> Digests:
    return {"observation": fingerprint(observations), "action mask": fingerprint(_mask(infos))}


def _step_digests(result: tuple[Any, ...]) -> Digests:
    observations, rewards, terminated, truncated, infos = result
    return {
        "reward": fingerprint(rewards),
        "end of the episode": fingerprint((terminated, truncated)),
        "final observation": fingerprint(infos.get("final_obs")),
        **_reset_digests(observations, infos),
    }


# --- the restored one


def _difference(fleet: Fleet, record: _Record) -> str | None:
    """Restore the state, replay the recorded actions, and return the first difference as a sentence."""
    try:
        fleet.restore(record.state)
    except EnvfleetError as error:
        return f"its state cannot be restored into a fresh environment: {one_line_of(error)}"
    try:
        found = _differing_step(fleet, record.after)
        if found is None and (part := _differing_part(record.reset, _reset_digests(*fleet.reset()))):
            found = f"the {part} of the next reset"
        if found is None and (found := _differing_step(fleet, record.after_reset)):
            found = f"{found} after the next reset"
    except EnvfleetError as error:
        return f"restored into a fresh environment, it fails: {one_line_of(error)}"
    return found and f"restored into a fresh environment, it continues differently: {found}"


def _differing_step(fleet: Fleet, played: _Played) -> str | None:
    for number, (action, recorded) in enumerate(zip(played.actions, played.digests, strict=True), start=1):
        part = _differing_part(recorded, _step_digests(fleet.step(_batch(fleet, action))))
        if part is not None:
            return f"the {part} of step {number}"
    return None


def _differing_part(one: Digests, other: Digests) -> str | None:
    return next((part for part, digest in one.items() if other[part] != digest), None)
