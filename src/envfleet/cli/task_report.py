"""The report of an evaluation on held-out tasks: a table of all agents, and of known returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envfleet.training.task_evaluation import TaskEvaluation

__all__ = ["table_of"]


def table_of(result: TaskEvaluation, digits: int) -> list[str]:
    """A line for each agent and each known return: first and last episode, the whole trial, success."""
    several = len(result.agents[0].adaptation.episode_returns) > 1
    episodes = ["first episode", "last episode"] if several else []
    lines = [["agent", *episodes, "trial", "95 %, over tasks", "over runs", "success"]]

    def row(name: str, returns: tuple[float, ...], *rest: str) -> None:
        each = [f"{returns[0]:.{digits}f}", f"{returns[-1]:.{digits}f}"] if several else []
        lines.append([name, *each, f"{sum(returns):.{digits}f}", *rest])

    for agent in result.agents:
        adaptation = agent.adaptation
        intervals = [
            "" if each is None else f"{each[0]:.{digits}f} to {each[1]:.{digits}f}"
            for each in (adaptation.trial_interval, adaptation.trial_interval_of_runs)
        ]
        success = "" if agent.success_rate is None else f"{100 * agent.success_rate:.0f} %"
        row(agent.name, adaptation.episode_returns, *intervals, success)
    for known in result.known:
        row(f"{known.name}*", known.episode_returns, "", "", "")
    lines = [[cell for cell, used in zip(line, _used(lines), strict=True) if used] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ["  ".join(map(_padded, line, widths, range(len(line)))) for line in lines]
    notes = [f"* {known.name}: {known.how}" for known in result.known]
    return [f"  {line.rstrip()}" for line in [*shown, *notes]]


def _used(lines: list[list[str]]) -> list[bool]:
    """Which columns have a value below their title."""
    return [any(column[1:]) for column in zip(*lines, strict=True)]


def _padded(cell: str, width: int, place: int) -> str:
    return cell.rjust(width) if place else cell.ljust(width)
