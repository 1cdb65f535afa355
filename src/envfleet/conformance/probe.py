"""Wraps an environment: guards every call and inspects everything it returns."""

from __future__ import annotations

import copy
import math
import pickle
import time
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from envfleet.conformance.report import RAISED, CheckStopped, Findings
from envfleet.conformance.values import fingerprint, kind_of, mismatch
from envfleet.fleet.random_actions import choices_of, mask_parts
from envfleet.fleet.spaces import as_array
from envfleet.wording import one_line, shown

__all__ = ["Probe", "Step"]

_INFOS_PICKLED = 20  # only the first ones: pickling every info would slow the check down


class Step(NamedTuple):
    """What an environment returns from a step."""

    observation: Any
    reward: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Probe:
    """One environment under check."""

    def __init__(self, env: Any, findings: Findings) -> None:
        self.env = env
        self.findings = findings
        self.reset_arguments = frozenset({"seed", "options"})  # arguments that its reset takes
        self.steps = 0
        self.step_seconds = 0.0
        self._last_observation: Any = None
        self._last_fingerprint = b""
        self._last_info: Any = None
        self._infos_pickled = 0

    @property
    def base(self) -> Any:
        """The environment under all wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and inspect what it returns."""
        arguments = {"seed": seed} if "seed" in self.reset_arguments else {}
        try:
            returned = self.env.reset(**arguments)
        except RAISED as error:
            self.findings.raised("reset", error)
            raise CheckStopped from error
        if isinstance(returned, tuple) and len(returned) == 2:
            observation, info = returned
        else:  # as in old gym; continue, so that other problems are reported too
            received = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else kind_of(returned)
            what = f"reset returned {received}, expected the pair (observation, info)"
            self.findings.error(what, "end reset with `return observation, {}`")
            observation, info = returned, {}
        info = self._look_at_info(info, "reset", ended=False)
        self._look_at_observation(observation, "reset")
        return observation, info

    def step(self, action: Any) -> Step:
        """Take a step, and inspect what it returns."""
        given = copy.deepcopy(action)  # so that the caller can play the same action again
        started = time.perf_counter()
        try:
            returned = self.env.step(given)
        except RAISED as error:
            self.findings.raised("step", error)
            raise CheckStopped from error
        self.step_seconds += time.perf_counter() - started
        self.steps += 1
        if fingerprint(given) != fingerprint(action):
            what = f"step changed its action from {shown(action)} to {shown(given)}"
            self.findings.error(what, "work on a copy (`action = action.copy()`): learners store the action")
        observation, reward, terminated, truncated, info = self._unpack(returned)
        flags = (self._flag(terminated, "terminated"), self._flag(truncated, "truncated"))
        info = self._look_at_info(info, "step", ended=any(flags))
        self._look_at_observation(observation, "step")
        self._look_at_reward(reward)
        return Step(observation, reward, *flags, info)

    def close(self) -> None:
        """Close twice, as a fleet that shuts down after an error does."""
        if not hasattr(self.env, "close"):  # not an environment, which has been reported already
            return
        try:
            self.env.close()
        except RAISED as error:
            self.findings.raised("close", error)
            return
        try:
            self.env.close()
        except RAISED as error:
            what = f"a second close raised {type(error).__name__}: {one_line(str(error))}"
            self.findings.warning(what, "let close do nothing when there is nothing left to close")

    def _unpack(self, returned: Any) -> tuple[Any, Any, Any, Any, Any]:
        fix = "return (observation, reward, terminated, truncated, info) from step"
        if not isinstance(returned, tuple):
            self.findings.error(f"step returned {kind_of(returned)}, expected a tuple of 5", fix)
            raise CheckStopped
        if len(returned) == 5:
            observation, reward, terminated, truncated, info = returned
            return observation, reward, terminated, truncated, info
        old = " (the API of old gym)" if len(returned) == 4 else ""
        self.findings.error(f"step returned a tuple of {len(returned)}{old}, expected a tuple of 5", fix)
        if len(returned) != 4:
            raise CheckStopped
        observation, reward, done, info = returned
        return observation, reward, done, False, info

    def _flag(self, value: Any, name: str) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        self.findings.error(
            f"{name} is {shown(value)} ({kind_of(value)}), expected a bool", f"return bool({name}) from step"
        )
        try:
            return bool(value)
        except ValueError as error:  # an array with several elements
            raise CheckStopped from error

    def _look_at_reward(self, reward: Any) -> None:
        if not isinstance(reward, int | float | np.integer | np.floating | np.bool_):
            what = f"the reward is {shown(reward)} ({kind_of(reward)}), expected a number"
            array = as_array(reward)
            one = array is not None and array.size == 1 and array.dtype.kind in "biuf"  # a fleet accepts it
            (self.findings.warning if one else self.findings.error)(what, "return float(reward) from step")
        elif not math.isfinite(reward):
            what = f"the reward is {reward} (step {self.steps}), expected a finite number"
            self.findings.error(what, "find what makes the reward NaN or infinite: a division by zero, a log")

    def _look_at_observation(self, observation: Any, source: str) -> None:
        if self._last_fingerprint and fingerprint(self._last_observation) != self._last_fingerprint:
            self.findings.warning(
                f"{source} changed the observation that was returned before it: both are the same array",
                "return a copy of the array (`return self._observation.copy(), ...`); "
                "code that keeps observations sees them change",
            )
        self._last_observation, self._last_fingerprint = observation, fingerprint(observation)
        found = mismatch(self.env.observation_space, observation, "observation")
        if found:
            where = "reset" if source == "reset" else f"step {self.steps}"
            note = self.findings.warning if found.tolerated else self.findings.error
            note(f"{found.what} (returned by {where})", found.fix)

    def _look_at_info(self, info: Any, source: str, *, ended: bool) -> dict[str, Any]:
        if not isinstance(info, dict):
            what = f"the info of {source} is {kind_of(info)}, expected a dict"
            self.findings.error(what, f"return a dict as the last value of {source}, empty if need be")
            return {}
        if info and info is self._last_info:
            what = f"{source} returned the same info dict as the call before it"
            self.findings.warning(what, "build a new info dict in each call; code that keeps infos needs it")
        self._last_info = info
        if self._infos_pickled < _INFOS_PICKLED or ended:
            self._infos_pickled += 1
            self._pickle(info, source)
        if "action_mask" in info:
            self._look_at_mask(info["action_mask"], source, ended=ended)
        return info

    def _pickle(self, info: dict[str, Any], source: str) -> None:
        for key, value in info.items():
            try:
                pickle.dumps(value)
            except Exception as error:  # noqa: BLE001 - pickling runs the value's own code
                what = f"info[{key!r}] of {source} cannot be pickled: {one_line(str(error))}"
                self.findings.error(what, "put only numbers, strings, arrays and containers of them in info")

    def _look_at_mask(self, mask: Any, source: str, *, ended: bool) -> None:
        sizes = choices_of(self.env.action_space)
        if sizes is None:
            kind = type(self.env.action_space).__name__
            what = f"info['action_mask'] of {source} masks an action space of type {kind}"
            self.findings.warning(what, "leave out the mask: it is for Discrete, MultiDiscrete and MultiBinary actions")
            return
        parts = mask_parts(mask, sizes)
        if parts is None:
            expected = f"shape ({sum(sizes)},)" if len(sizes) == 1 else f"one mask of each size in {sizes}"
            what = f"info['action_mask'] of {source} is {shown(mask)}, expected {expected} of 0 and 1"
            self.findings.error(what, "give the mask one entry per action, 1 where it is allowed")
        elif (
            not ended
            and not all(part.any() for part in parts)
            and not isinstance(self.env.action_space, spaces.MultiBinary)
        ):
            what = f"info['action_mask'] of {source} allows no action, expected at least one"
            self.findings.error(what, "allow an action that does nothing, or end the episode there")
