"""The reward of a step, term by term, from the values before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envfleet.environments.gameboy.expressions import compile_all
from envfleet.environments.gameboy.games import Game

__all__ = ["Rewards"]


class Rewards:
    """Computes the rewards of an episode. Call `begin` first, then `step` once per step."""

    def __init__(self, game: Game) -> None:
        self._terms = game.rewards
        expressions: list[str] = []
        self._places: list[tuple[int, int]] = []  # first expression of the term, and its condition
        for term in game.rewards:
            self._places.append((len(expressions), len(expressions) + len(term.expressions)))
            expressions += [*term.expressions, term.condition]
        self._compute = compile_all(expressions, game.lengths, where=f"{game.source}: rewards")
        self._plan = [
            (term.kind, term.weight, place, condition)
            for term, (place, condition) in zip(game.rewards, self._places, strict=True)
        ]
        self._before: list[float] = [0.0] * len(game.rewards)
        self._seen: list[set[tuple[float, ...]]] = [set() for _ in game.rewards]
        self.totals: list[float] = [0.0] * len(game.rewards)

    @property
    def names(self) -> list[str]:
        return [term.name for term in self._terms]

    def begin(self, values: Sequence[Any]) -> None:
        """Begin an episode. Values that are there from the start earn nothing."""
        computed = self._compute(values)
        self.totals = [0.0] * len(self._terms)
        for number, (term, (place, condition)) in enumerate(zip(self._terms, self._places, strict=True)):
            self._before[number] = float(computed[place])
            self._seen[number] = set()
            if computed[condition] and (term.kind == "new" or (term.kind == "once" and computed[place])):
                self._seen[number].add(self._key(term.kind, computed[place:condition]))

    def step(self, values: Sequence[Any]) -> float:
        """Return the reward of the step that led to these values."""
        computed = self._compute(values)
        total = 0.0
        before = self._before
        for number, (kind, weight, place, condition) in enumerate(self._plan):
            value = computed[place]
            difference = value - before[number]
            before[number] = value
            if not computed[condition]:
                continue
            if kind in {"new", "once"}:
                amount = self._first_time(number, kind, computed[place:condition])
            elif kind == "when":
                amount = float(value)
            elif kind == "increase":
                amount = max(0.0, difference)
            else:
                amount = max(0.0, -difference) if kind == "decrease" else difference
            if amount:
                gained = weight * amount
                total += gained
                self.totals[number] += gained
        return float(total)

    def _first_time(self, number: int, kind: str, found: tuple[Any, ...]) -> float:
        """1 if this is new in the episode, otherwise 0."""
        if kind == "once" and not found[0]:
            return 0.0
        key = self._key(kind, found)
        if key in self._seen[number]:
            return 0.0
        self._seen[number].add(key)
        return 1.0

    @staticmethod
    def _key(kind: str, found: tuple[Any, ...]) -> tuple[float, ...]:
        return () if kind == "once" else tuple(map(float, found))

    # ---- for the state of the environment ----

    def get_state(self) -> dict[str, Any]:
        """Return the memory of the episode as plain data."""
        seen = [[list(key) for key in sorted(keys)] for keys in self._seen]
        return {"before": list(map(float, self._before)), "seen": seen, "totals": list(self.totals)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `get_state`."""
        self._before, self.totals = list(state["before"]), list(state["totals"])
        self._seen = [{tuple(key) for key in keys} for keys in state["seen"]]
