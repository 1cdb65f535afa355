"""Per-episode numbers from infos: the mean of a reward term, a score, whether the episode was a success.

A key names an entry of `info`; `terms.forward` is the entry `forward` of the dictionary `terms`. An episode's number is
the mean over the steps that have the entry, or what the key's suffix asks for: `score:last` (the value of the last
step) or `coins:sum`. `is_success` and `success` use the last step by default. NaN means that the episode has no value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

__all__ = ["EpisodeNumbers", "InfoKey", "followed", "means", "number_of", "successes"]

SUCCESS = ("is_success", "success")  # always tracked
_HOW = ("mean", "last", "sum")


def followed(keys: Sequence[str]) -> tuple[str, ...]:
    """All tracked keys: those that are always tracked, then the requested ones."""
    return (*SUCCESS, *(key for key in keys if key not in SUCCESS))


def means(numbers: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Mean over episodes of each requested key, by metric name; keys without any value are left out."""
    asked = {InfoKey.of(key).metric: values for key, values in numbers.items() if key not in SUCCESS}
    given = {name: [value for value in values if value == value] for name, values in asked.items()}
    return {name: fmean(values) for name, values in given.items() if values}


def successes(numbers: Mapping[str, Sequence[float]]) -> list[bool] | None:
    """Whether each episode was a success, by the first success key that any episode has; a missing value counts as no.

    None if no episode has a success key.
    """
    for key in SUCCESS:
        values = numbers.get(key, ())
        if any(value == value for value in values):
            return [value == value and value != 0.0 for value in values]
    return None


class InfoKey(NamedTuple):
    """A user's key, split into name and aggregation."""

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
        """Metric name: the key alone for its default aggregation, otherwise with the aggregation as suffix."""
        usual = "last" if self.name in SUCCESS else "mean"
        return self.name if self.how == usual else f"{self.name}_{self.how}"

    def number_in(self, info: dict[str, Any]) -> float:
        """The finite number under this key in the info, else NaN."""
        value = info.get(self.name)
        if value is None and "." in self.name:
            value = info
            for part in self.name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        return math.nan if value is None else number_of(value)


def number_of(value: Any) -> float:
    """Convert a number, NumPy scalar or one-element array to a finite float; NaN for everything else."""
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
    """Tracks keys in the infos of several environments over their episodes."""

    def __init__(self, keys: Sequence[str], n_envs: int) -> None:
        self.keys = [InfoKey.of(key) for key in keys]
        self._added = [(place, key) for place, key in enumerate(self.keys) if key.how != "last"]
        self.needs_every_step = bool(self._added)  # otherwise the last info of an episode is enough
        self._sums = [[0.0] * len(self.keys) for _ in range(n_envs)]
        self._counts = [[0] * len(self.keys) for _ in range(n_envs)]

    def begin(self, env: int) -> None:
        """Start an episode."""
        if self._added:
            self._sums[env] = [0.0] * len(self.keys)
            self._counts[env] = [0] * len(self.keys)

    def add(self, env: int, info: dict[str, Any]) -> None:
        """Add the info of a step."""
        sums, counts = self._sums[env], self._counts[env]
        for place, key in self._added:
            number = key.number_in(info)
            if number == number:
                sums[place] += number
                counts[place] += 1

    def end(self, env: int, info: dict[str, Any]) -> list[float]:
        """The episode's numbers, one per key; `info` is that of its last step, which was added too."""
        return [self._worth(env, place, key, info) for place, key in enumerate(self.keys)]

    def _worth(self, env: int, place: int, key: InfoKey, info: dict[str, Any]) -> float:
        if key.how == "last":
            return key.number_in(info)
        count = self._counts[env][place]
        if count == 0:
            return math.nan
        return self._sums[env][place] / (count if key.how == "mean" else 1)

    def state(self, env: int) -> dict[str, list[float]]:
        """Sums and counts of the current episode, by key."""
        return {key.metric: [self._sums[env][place], self._counts[env][place]] for place, key in self._added}

    def restore(self, env: int, state: dict[str, list[float]]) -> None:
        """Resume an episode; a key that is not in the state starts from zero."""
        self.begin(env)
        for place, key in self._added:
            if key.metric in state:
                self._sums[env][place], self._counts[env][place] = (
                    float(state[key.metric][0]),
                    int(state[key.metric][1]),
                )
