"""Numbers of infos over an episode: the mean of a reward term, a score, whether the episode was a success.

A key names an entry of `info`; `terms.forward` is the entry `forward` of the dictionary `terms`. What an episode is
worth is the mean over those of its steps that have a number there, or what the key asks for: `score:last` (the last
step's) or `coins:sum`. `is_success` and `success` are always the last step's. NaN stands for an episode without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

__all__ = ["EpisodeNumbers", "InfoKey", "followed", "means", "number_of", "successes"]

SUCCESS = ("is_success", "success")  # followed without being asked for
_HOW = ("mean", "last", "sum")


def followed(keys: Sequence[str]) -> tuple[str, ...]:
    """The keys that were asked for, after those that are always followed."""
    return (*SUCCESS, *(key for key in keys if key not in SUCCESS))


def means(numbers: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean over episodes of each key that was asked for, by the name of its figure; only of keys that have one."""
    asked = {InfoKey.of(key).metric: values for key, values in numbers.items() if key not in SUCCESS}
    told = {name: [value for value in values if value == value] for name, values in asked.items()}
    return {name: fmean(values) for name, values in told.items() if values}


def successes(numbers: Mapping[str, Sequence[float]]) -> list[bool] | None:
    """Whether each episode was a success, by the first key that any of them has; one that does not say was none."""
    for key in SUCCESS:
        values = numbers.get(key, ())
        if any(value == value for value in values):
            return [value == value and value != 0.0 for value in values]
    return None


class InfoKey(NamedTuple):
    """A key as the user wrote it, taken apart."""

    name: str
    how: str  # mean, last or sum

    @classmethod
    def of(cls, written: str) -> InfoKey:
        name, colon, how = written.rpartition(":")
        if colon and how in _HOW:
            return cls(name, how)
        return cls(written, "last" if written in SUCCESS else "mean")

    @property
    def metric(self) -> str:
        """How the figure is called: by the key alone where it is what one expects of it."""
        usual = "last" if self.name in SUCCESS else "mean"
        return self.name if self.how == usual else f"{self.name}_{self.how}"

    def number_in(self, info: dict[str, Any]) -> float:
        """The finite number that the info has under the key, else NaN."""
        value = info.get(self.name)
        if value is None and "." in self.name:
            value = info
            for part in self.name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        return math.nan if value is None else number_of(value)


def number_of(value: Any) -> float:
    """A finite number, also from NumPy and from an array of one element; NaN for everything else."""
    if not isinstance(value, int | float):
        try:
            value = value.item()
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return math.nan
        if not isinstance(value, int | float):
            return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


class EpisodeNumbers:
    """Follows some keys in the infos of some environments, each over its episode."""

    def __init__(self, keys: Sequence[str], n_envs: int) -> None:
        self.keys = [InfoKey.of(key) for key in keys]
        self._added = [(place, key) for place, key in enumerate(self.keys) if key.how != "last"]
        self.needs_every_step = bool(self._added)  # else the last info of an episode is enough
        self._sums = [[0.0] * len(self.keys) for _ in range(n_envs)]
        self._counts = [[0] * len(self.keys) for _ in range(n_envs)]

    def begin(self, env: int) -> None:
        """An episode begins."""
        if self._added:
            self._sums[env] = [0.0] * len(self.keys)
            self._counts[env] = [0] * len(self.keys)

    def add(self, env: int, info: dict[str, Any]) -> None:
        """Takes the info of a step."""
        sums, counts = self._sums[env], self._counts[env]
        for place, key in self._added:
            number = key.number_in(info)
            if number == number:
                sums[place] += number
                counts[place] += 1

    def end(self, env: int, info: dict[str, Any]) -> list[float]:
        """What the episode is worth, by key; `info` is that of its last step, which was added too."""
        return [self._worth(env, place, key, info) for place, key in enumerate(self.keys)]

    def _worth(self, env: int, place: int, key: InfoKey, info: dict[str, Any]) -> float:
        if key.how == "last":
            return key.number_in(info)
        count = self._counts[env][place]
        if count == 0:
            return math.nan
        return self._sums[env][place] / (count if key.how == "mean" else 1)

    def state(self, env: int) -> dict[str, list[float]]:
        """The sums and counts of the episode under way, by key."""
        return {key.metric: [self._sums[env][place], self._counts[env][place]] for place, key in self._added}

    def restore(self, env: int, state: dict[str, list[float]]) -> None:
        """Takes up an episode; a key that was not followed then begins now."""
        self.begin(env)
        for place, key in self._added:
            if key.metric in state:
                self._sums[env][place], self._counts[env][place] = (
                    float(state[key.metric][0]),
                    int(state[key.metric][1]),
                )
