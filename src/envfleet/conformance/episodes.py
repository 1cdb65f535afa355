"""Plays episodes and records them, so that a replay can be compared.

Functions that play are generators: before each call of the environment they yield its name ("step 12"). So the driver
always knows which call is running, even if it never returns.
"""

from __future__ import annotations

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from gymnasium.wrappers import TimeLimit

from envfleet.conformance.budget import Budget
from envfleet.conformance.interface import wrappers_of
from envfleet.conformance.probe import Probe
from envfleet.conformance.report import RAISED
from envfleet.conformance.values import fingerprint
from envfleet.fleet.random_actions import RandomAgent

__all__ = [
    "Calls",
    "Player",
    "StepRecord",
    "check_end",
    "check_self_reset",
    "differing_info",
    "first_difference",
    "play",
]

T = TypeVar("T")
Calls = Generator[str, None, T]  # yields the name of each call before making it; returns the result

_STEPS_TO_AN_END = 10  # wait for an episode's end for this multiple of the check's steps


@dataclass(frozen=True)
class StepRecord:
    """Digests of what a reset or step returned."""

    name: str
    parts: dict[str, bytes]  # observation; for a step also reward, terminated, truncated
    info: dict[str, bytes]
    ended: bool = False


class Player:
    """Plays and records: one step per `advance`, with a reset before it if the last episode has ended.

    A replay draws its actions again instead of repeating the recorded ones: if the environment diverges, its mask may
    no longer allow those.
    """

    def __init__(self, probe: Probe, agent: RandomAgent) -> None:
        self.actions: list[Any] = []
        self.records: list[StepRecord] = []
        self._probe, self._agent = probe, agent
        self._info: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        """Whether the last step ended its episode."""
        return self.records[-1].ended

    @property
    def ends(self) -> int:
        """The number of episodes that have ended."""
        return sum(record.ended for record in self.records)

    def reset(self, seed: int | None) -> Calls[None]:
        """Begin an episode."""
        name = f"the reset before step {len(self.actions) + 1}"
        yield name
        observation, self._info = self._probe.reset(seed)
        self.records.append(StepRecord(name, _digests({"observation": observation}), _digests(self._info)))

    def advance(self) -> Calls[None]:
        """Take one step."""
        if self.ended:
            yield from self.reset(None)
        action = self._agent(None, self._info)
        name = f"step {len(self.actions) + 1}"
        yield name
        observation, reward, terminated, truncated, self._info = self._probe.step(action)
        self.actions.append(action)
        parts = {
            "observation": observation,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        self.records.append(StepRecord(name, _digests(parts), _digests(self._info), terminated or truncated))


def play(probe: Probe, seed: int, *, action_seed: int, steps: int, budget: Budget) -> Calls[Player]:
    """Reset with this seed and play up to `steps` random actions, as long as there is time."""
    player = Player(probe, RandomAgent(probe.env.action_space, action_seed))
    yield from player.reset(seed)
    for _ in range(steps):
        if not budget.allows_more():
            break
        yield from player.advance()
    return player


def first_difference(one: Player, other: Player) -> str | None:
    """The first difference between two plays, or None; infos are compared by `differing_info`."""
    for ours, theirs in zip(one.records, other.records, strict=False):
        for part, digest in ours.parts.items():
            if theirs.parts.get(part) != digest:
                return f"{part} of {ours.name}"
        if ours.ended != theirs.ended:
            return f"end of the episode at {ours.name}"
    return None


def differing_info(one: Player, other: Player) -> str | None:
    """The first key of an info that differs between two plays, or None."""
    for ours, theirs in zip(one.records, other.records, strict=False):
        for key in sorted(ours.info.keys() | theirs.info.keys()):
            if key != "episode" and ours.info.get(key) != theirs.info.get(key):  # "episode" contains a time
                return f"info[{key!r}] of {ours.name}"
    return None


def check_end(probe: Probe, seed: int, first: Player, budget: Budget) -> Calls[None]:
    """Warn if no episode ends within many random steps; skip this if one has ended or there is a time limit."""
    if first.ends or _has_time_limit(probe.env):
        return
    player = Player(probe, RandomAgent(probe.env.action_space, seed))
    yield from player.reset(seed)
    limit = len(first.actions) * _STEPS_TO_AN_END
    while not player.ends and len(player.actions) < limit:
        if not budget.allows_more():
            return
        yield from player.advance()
    if not player.ends:
        probe.findings.warning(
            f"no episode ended within {len(player.actions)} random steps, and there is no time limit",
            "end hopeless episodes: gymnasium.wrappers.TimeLimit(env, max_episode_steps=...), "
            "or max_episode_steps= where the environment is registered",
        )


def check_self_reset(probe: Probe, seed: int, player: Player, budget: Budget) -> Calls[None]:
    """Step once after an episode's end, and warn if the environment resets itself, which breaks a fleet's autoreset."""
    end = next((index for index, record in enumerate(player.records) if record.ended), None)
    if end is None or end + 1 >= len(player.records):
        return
    final, fresh = player.records[end].parts["observation"], player.records[end + 1].parts["observation"]
    # In the first episode, record n is step n.
    replay = yield from play(probe, seed, action_seed=seed, steps=end, budget=budget)
    if not replay.ended or final == fresh:
        return
    yield f"step {end + 1}, after the end of an episode"
    try:
        observation, reward, terminated, truncated, _ = probe.env.step(copy.deepcopy(player.actions[end]))
    except RAISED:  # allowed: the episode is over
        return
    if fingerprint(observation) == fresh and not terminated and not truncated and not reward:
        probe.findings.warning(
            "the step after an episode's end began a new episode: the environment resets itself",
            "let reset alone begin episodes; a fleet calls it at each end, and would skip episodes",
        )


def _digests(parts: dict[str, Any]) -> dict[str, bytes]:
    return {str(name): fingerprint(part) for name, part in parts.items()}


def _has_time_limit(env: Any) -> bool:
    spec = getattr(env, "spec", None)
    if spec is not None and getattr(spec, "max_episode_steps", None):
        return True
    return any(isinstance(wrapper, TimeLimit) for wrapper in wrappers_of(env))
