"""Control words of workers that do not share the caller's block: read for commands, and set from reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from envfleet.fleet.backends.host import Report, Sign
from envfleet.fleet.control import Command, Control, GroupWord, WorkerWord
from envfleet.fleet.transfer import Task

__all__ = ["posted_tasks", "show_results", "show_signs"]


def posted_tasks(
    control: Control, groups: Iterable[int], lockstep: int, sent: dict[int, int]
) -> Iterator[tuple[Task, int]]:
    """New commands to the groups of a worker, with their numbers; `sent` has the last number of each group."""
    words = control.words
    for group in groups:
        number = words[control.row(GroupWord.POSTED) + group]
        if lockstep:
            yield Task(group, Command.STEP, lockstep - 1), number
        elif number != sent.get(group):
            sent[group] = number
            yield Task(group, *(words[control.row(word) + group] for word in _TASK)), number


def show_results(control: Control, report: Report, groups_of: Mapping[int, Sequence[int]]) -> None:
    """Set the words of groups that are done; those of a worker that died count as lost."""
    words = control.words
    workers = {group: worker for worker in report.epochs for group in groups_of[worker]}
    rows = [control.row(word) for word in (GroupWord.OUTCOME, GroupWord.COLUMNS, GroupWord.FINISHED)]
    for task, (finished, outcome, columns) in zip(report.tasks, report.words, strict=True):
        for row, value in zip(rows, (outcome, columns, finished), strict=True):
            words[row + task.group] = value
        if report.died is None:
            words[control.worker(workers[task.group], WorkerWord.FINISHED)] += 1


def show_signs(control: Control, signs: Iterable[Sign]) -> None:
    for worker, _, *values in signs:
        for word, value in zip(_SHOWN, values, strict=True):
            control.words[control.worker(worker, word)] = value


_TASK = (GroupWord.COMMAND, GroupWord.SLOT, GroupWord.BUFFER, GroupWord.WEIGHT_SET)
_SHOWN = (WorkerWord.CURRENT, WorkerWord.BUSY_NS, WorkerWord.TICK, WorkerWord.PHASE)
