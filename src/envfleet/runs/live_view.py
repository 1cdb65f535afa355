"""The live view of the console, as lines that fit the terminal. Nothing here prints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from envfleet.wording import counted

if TYPE_CHECKING:
    from rich.text import Text

__all__ = [
    "BUSY_PERCENT",
    "OURS",
    "ConsoleState",
    "Curve",
    "WorkerHealth",
    "clock",
    "decimals",
    "number",
    "plain_line",
    "shortened",
    "sparkline",
    "spread",
    "view",
]

_BLOCKS = "▁▂▃▄▅▆▇█"
_NAME_WIDTH = 10
_SUCCESS = "rollout/success_rate"
# All other metrics are the user's own, and shown.
OURS = ("rollout/", "time/", "train/", "eval/", "fleet/", "lag/", "random/", "replay/", "system/")
BUSY_PERCENT = 10.0  # of one core; more load from other processes slows a run down
_MOST_OWN = 10  # number of user metrics shown; metrics.jsonl has all
# Time shares: metric, label, character without colour, colour.
_SHARES = (
    ("time/environment", "env", "█", "cyan"),
    ("time/acting", "act", "▓", "blue"),
    ("time/learning", "learn", "▒", "magenta"),
    ("time/waiting", "wait", "░", "yellow"),
)


class WorkerHealth(Protocol):
    """Health of a worker. The fleet's WorkerStatistics implement it."""

    @property
    def busy_share(self) -> float: ...
    @property
    def restarts(self) -> int: ...
    @property
    def memory_mb(self) -> float: ...


class Curve:
    """The history of a metric in bounded memory. With many values, it keeps means over more and more of them."""

    _MOST = 512

    def __init__(self) -> None:
        self.latest = self.best = math.nan
        self._means: list[float] = []
        self._per_mean = 1
        self._open: list[float] = []  # values of the incomplete last mean

    def add(self, value: float) -> None:
        self.latest = value
        self.best = value if math.isnan(self.best) else max(self.best, value)
        self._open.append(value)
        if len(self._open) == self._per_mean:
            self._means.append(sum(self._open) / self._per_mean)
            self._open = []
        if len(self._means) == self._MOST:
            self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
            self._per_mean *= 2

    def values(self) -> list[float]:
        return [*self._means, sum(self._open) / len(self._open)] if self._open else self._means


@dataclass
class ConsoleState:
    """The state of the run that the console shows."""

    title: str
    budget_steps: int | None
    first_step: int | None = None  # not 0 in a resumed run
    step: int = 0
    seconds: float = 0.0  # since the first update
    metrics: Mapping[str, float] = field(default_factory=dict)
    health: Sequence[WorkerHealth] = ()
    returns: Curve = field(default_factory=Curve)
    lengths: Curve = field(default_factory=Curve)
    spent: float | None = None  # share of the budget, as reported by the run
    # Two earlier moments (seconds, share spent). The time left follows from the pace since the older one, a quarter to
    # half of the time ago: SAC and DQN begin with steps without updates, and other work may slow a run down.
    _earlier: tuple[tuple[float, float], tuple[float, float]] = field(default=((0.0, 0.0), (0.0, 0.0)), init=False)

    def take(
        self,
        step: int,
        seconds: float,
        metrics: Mapping[str, float],
        health: Sequence[WorkerHealth],
        spent: float | None = None,
    ) -> None:
        moment = (seconds, spent or 0.0)
        if self.first_step is None:
            self.first_step, self._earlier = step, (moment, moment)
        elif seconds >= 2.0 * self._earlier[1][0]:
            self._earlier = (self._earlier[1], moment)
        self.step, self.seconds, self.health, self.spent = step, seconds, health, spent
        self.metrics = {**self.metrics, **metrics}
        for curve, name in ((self.returns, "rollout/ep_rew_mean"), (self.lengths, "rollout/ep_len_mean")):
            if math.isfinite(metrics.get(name, math.nan)):
                curve.add(metrics[name])

    @property
    def share(self) -> float | None:
        """Share of the budget that is spent, 0 to 1."""
        if self.spent is not None:
            return self.spent
        return min(1.0, self.step / self.budget_steps) if self.budget_steps else None

    @property
    def steps_per_second(self) -> float:
        own = (self.step - (self.first_step or 0)) / self.seconds if self.seconds > 0 else 0.0
        measured = self.metrics.get("time/fps", math.nan)
        return measured if math.isfinite(measured) and measured > 0 else own

    @property
    def seconds_left(self) -> float | None:
        before, spent_before = self._earlier[0]
        if self.spent is not None and self.spent > spent_before:  # the budget may be in episodes or hours
            return (self.seconds - before) * (1.0 - self.spent) / (self.spent - spent_before)
        if not self.budget_steps or self.steps_per_second <= 0:
            return None
        return max(0, self.budget_steps - self.step) / self.steps_per_second


# ---- one line, for a pipe ----


def plain_line(state: ConsoleState, *, verbose: bool) -> str:
    """The state of a run in one line."""
    parts = [f"{100 * state.share:3.0f} %"] if state.share is not None else []
    parts.append(f"{state.step:,} steps")
    for word, name in (("return", "rollout/ep_rew_mean"), ("length", "rollout/ep_len_mean")):
        if math.isfinite(state.metrics.get(name, math.nan)):
            parts.append(f"{word} {number(state.metrics[name])}")
    parts += [f"{name} {value}" for name, value in _own(state)]
    if math.isfinite(state.metrics.get("eval/mean_reward", math.nan)):
        parts.append(f"evaluation {number(state.metrics['eval/mean_reward'])}")
    if state.steps_per_second > 0:
        parts.append(f"{state.steps_per_second:,.0f} steps/s")
    if state.seconds_left is not None:
        parts.append(f"{clock(state.seconds_left)} left")
    if restarts := sum(worker.restarts for worker in state.health):
        parts.append(counted(restarts, "worker restart"))
    if verbose:
        parts += [f"{name} {number(value)}" for name, value in _train(state)]
    return "  ".join(parts)


# ---- the live view ----


def view(state: ConsoleState, width: int, *, verbose: bool) -> list[Text]:
    """The live view: a few lines, at most `width` wide."""
    lines = [_bar_line(state, width)]
    lines += _curve("return", state.returns, width, best=True)
    lines += _curve("length", state.lengths, width, best=False)
    lines += [_own_row(name, value) for name, value in _own(state)]
    if math.isfinite(state.metrics.get("eval/mean_reward", math.nan)):
        lines.append(_row("evaluation", f"{number(state.metrics['eval/mean_reward']):>8}"))
    lines.append(_row("speed", f"{state.steps_per_second:>8,.0f} steps/s"))
    if any(name in state.metrics for name, *_ in _SHARES):
        lines.append(_time_line(state, width))
    if state.health:
        lines.append(_workers_line(state.health))
    if "system/cpu_percent" in state.metrics:
        lines.append(_machine_line(state.metrics))
    if verbose:
        lines += [_row(name[: _NAME_WIDTH + 14], number(value), 26) for name, value in _train(state)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _row(name: str, value: str = "", name_width: int = _NAME_WIDTH) -> Text:
    from rich.text import Text

    return Text.assemble(("  " + name.ljust(name_width) + " ", "dim"), value)


def _bar_line(state: ConsoleState, width: int) -> Text:
    from rich.text import Text

    if state.share is None:
        return _row("steps", f"{state.step:>8,} in {clock(state.seconds)}")
    left = "" if state.seconds_left is None else f"  {clock(state.seconds_left)} left"
    budget = f" of {short(state.budget_steps)}" if state.budget_steps else ""
    words = f" {100 * state.share:3.0f} %  {short(state.step)}{budget} steps{left}"
    cells = max(8, min(48, width - len(words) - 3))
    done = round(state.share * cells)
    return Text.assemble("  ", ("━" * done, "green"), ("╌" * (cells - done), "dim"), words)


def _curve(name: str, curve: Curve, width: int, *, best: bool) -> list[Text]:
    if math.isnan(curve.latest):
        return []
    line = _row(name, f"{number(curve.latest):>8}  ")
    line.append(sparkline(curve.values(), min(40, max(8, width - 40))), style="green")
    if best:
        line.append(f"  best {number(curve.best)}")
    return [line]


def _time_line(state: ConsoleState, width: int) -> Text:
    shares = [max(0.0, min(1.0, state.metrics.get(name, 0.0) or 0.0)) for name, *_ in _SHARES]
    line = _row("time")
    cells = min(32, max(8, width - 60))
    ends = [round(cells * min(1.0, sum(shares[: index + 1]))) for index in range(len(shares))]
    for (_, _, character, colour), begin, end in zip(_SHARES, [0, *ends], ends, strict=False):
        line.append(character * max(0, end - begin), style=colour)
    line.append(" " * (cells - ends[-1]) + " ")
    for (_, word, _, colour), share in zip(_SHARES, shares, strict=True):
        line.append(" ").append(word, style=colour).append(f" {100 * share:.0f} %")
    return line


def _workers_line(health: Sequence[WorkerHealth]) -> Text:
    busy = sum(worker.busy_share for worker in health) / len(health)
    restarts, memory = sum(worker.restarts for worker in health), sum(worker.memory_mb for worker in health)
    line = _row("workers", f"{len(health):>8}  busy {100 * busy:.0f} %  {memory:,.0f} MB  ")
    return line.append(counted(restarts, "restart"), style="yellow" if restarts else "")


def _machine_line(metrics: Mapping[str, float]) -> Text:
    """CPU and memory of the run, and CPU of other processes; 100 % is one core."""
    roles = [
        f"{role} {metrics.get(f'system/cpu_percent_{role}', 0.0):.0f}" for role in ("caller", "learner", "workers")
    ]
    line = _row("machine", f"{metrics['system/cpu_percent']:>6.0f} %  {', '.join(roles)}")
    line.append(f"  {metrics.get('system/memory_mb', 0.0):,.0f} MB")
    others = metrics.get("system/cpu_percent_others", 0.0)
    return line.append(f"  others {others:.0f} %", style="yellow" if others > BUSY_PERCENT else "")


def _own_row(name: str, value: str) -> Text:
    """A row for a user metric, whose name may be long."""
    value_end = _NAME_WIDTH + 9
    shown = shortened(name, 24)
    return _row(shown, value.rjust(max(0, value_end - max(_NAME_WIDTH, len(shown)) - 1)))


def _own(state: ConsoleState) -> list[tuple[str, str]]:
    """User metrics: success rate, numbers from infos, and metrics set by callbacks. With async also the lag."""
    found = []
    if "lag/mean" in state.metrics:
        found.append(("lag", number(state.metrics["lag/mean"])))
        if dropped := state.metrics.get("lag/dropped_steps"):
            found.append(("dropped", number(dropped)))
    if math.isfinite(rate := state.metrics.get(_SUCCESS, math.nan)):
        found.append(("success", f"{100 * rate:.0f} %"))
    for name, value in state.metrics.items():
        if not name.startswith(OURS) and math.isfinite(value):
            found.append((name.removeprefix("info/"), number(value)))
    return found[:_MOST_OWN]


def _train(state: ConsoleState) -> list[tuple[str, float]]:
    return [(name, value) for name, value in sorted(state.metrics.items()) if name.startswith("train/")]


# ---- numbers for people ----


def sparkline(values: Sequence[float], cells: int) -> str:
    """The history of `values` in block characters. Each cell is the mean of its part."""
    count = min(cells, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)] if count else []
    means = [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    if not means:
        return ""
    low, high = min(means), max(means)
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return _BLOCKS[3] * len(means)
    return "".join(_BLOCKS[min(7, int(8 * (mean - low) / span))] for mean in means)


def number(value: float) -> str:
    """Format a number with a readable number of digits."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def decimals(*values: float) -> int:
    """Number of decimals that show differences between numbers of this size: 187.3, 9.31, 0.931, 0.00931."""
    size = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if size >= 10:
        return 1
    return 2 if size >= 1 or size == 0 else min(9, 2 - math.floor(math.log10(size)))


def spread(mean: float, deviation: float) -> str:
    """A mean and a standard deviation with the same decimals."""
    digits = decimals(mean, deviation)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def shortened(text: str, width: int) -> str:
    """Return the text, with its middle cut out if it is longer than `width`."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def short(count: int) -> str:
    """A compact step count."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M")):
        if count >= 10 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count:,}"


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, or in days."""
    whole = round(seconds)
    if whole >= 100 * 3600:
        return f"{whole / 86400:.0f} days"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
