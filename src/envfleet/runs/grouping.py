"""Groups runs that differ only in their seed, and names each group after its settings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envfleet.runs.run import Run

__all__ = [
    "CHANGES_NO_RESULT",
    "COLOURS",
    "RunGroup",
    "counted_settings",
    "differing_settings",
    "group_runs",
    "run_names",
]

COLOURS = ("#1f6feb", "#d1782a", "#2a9d5c", "#8250df", "#bf3989", "#57606a")  # of groups, in order
# Settings that may change the speed of a run, but never its result.
CHANGES_NO_RESULT = frozenset(
    {
        "acting",
        "backend",
        "eval_episodes",
        "eval_every",
        "eval_max_steps",
        "eval_sampled",
        "overcommit",
        "pin_cores",
        "random_steps",
        "record_order",
        "restarts",
        "start_method",
        "timeout",
        "validate",
        "video_every",
        "workers",
    }
)

# Settings that do not make a different experiment: seed, paths, verbosity, checkpoint frequency. The name of a preset
# does not count either, because its values are compared.
_NOT_COUNTED = frozenset(
    {
        "checkpoint_dir",
        "checkpoint_every",
        "checkpoint_frequency",
        "checkpoint_minutes",
        "keep_checkpoints",
        "log_info",
        "output_dir",
        "overwrite",
        "preset",
        "quiet",
        "seed",
        "track",
        "verbose",
    }
)
_NAMED_FIRST = ("algorithm", "env", "backend", "workers", "n_envs", "schedule")
_SPEAK_FOR_THEMSELVES = ("algorithm", "env", "backend")  # "sequential" needs no "backend" before it
_LONGEST_VALUE = 30  # characters of a value in a group's name


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings."""

    label: str
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run], *, ignoring: Collection[str] = ()) -> list[RunGroup]:
    """Group runs by their settings, in order of first appearance.

    A label has only the settings needed to tell the groups apart. Settings in `ignoring` may differ within a group,
    e.g. CHANGES_NO_RESULT for curves over steps.
    """
    members: dict[str, list[Run]] = {}
    for run in runs:
        counted = {name: value for name, value in run.settings.items() if name not in ignoring}
        members.setdefault(_key(counted), []).append(run)
    settings = [
        {name: value for name, value in group[0].settings.items() if name not in ignoring} for group in members.values()
    ]
    labels = _labels(settings)
    return [RunGroup(label, tuple(group)) for label, group in zip(labels, members.values(), strict=True)]


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Settings that are not the same in all, each with its values in order; None if unset."""
    counted = [counted_settings(each) for each in settings]
    names = dict.fromkeys([*_NAMED_FIRST, *(name for each in counted for name in each)])
    if len({str(each.get("algorithm")) for each in counted}) > 1:
        # Settings that only one algorithm has follow from the algorithm.
        names = {name: None for name in names if all(name in each for each in counted)}
    values = {name: [each.get(name) for each in counted] for name in names}
    return {name: found for name, found in values.items() if len({_as_json(value) for value in found}) > 1}


def counted_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that define an experiment, with env_kwargs flattened to env_kwargs.name."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _NOT_COUNTED:
            continue
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": content for inner, content in value.items()}
        else:
            flat[name] = value
    return flat


def run_names(paths: Sequence[Path]) -> list[str]:
    """A short name for each run: its folder, with as many parent folders as needed to tell the runs apart."""
    parts = [path.absolute().parts for path in paths]
    distinct = len(set(parts))
    for length in range(1, max((len(each) for each in parts), default=0) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == distinct:
            return names
    return [str(path) for path in paths]


def _key(settings: Mapping[str, Any]) -> str:
    counted = counted_settings(settings)
    return json.dumps(
        {name: _as_json(value) for name, value in counted.items() if not _is_unset(value)}, sort_keys=True
    )


def _as_json(value: Any) -> str:
    """A comparable value. A setting that is off equals one that an older version did not have."""
    return json.dumps(None if _is_unset(value) else value, sort_keys=True, default=str)


def _is_unset(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, list | dict) and not value)


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    differences = differing_settings(settings)
    chosen: list[str] = []
    told_apart = 1
    for name in differences:
        columns = [differences[each] for each in [*chosen, name]]
        now = len({tuple(map(_as_json, row)) for row in zip(*columns, strict=True)})
        if now > told_apart:
            chosen, told_apart = [*chosen, name], now
    if not chosen:
        return [f"{each.get('algorithm', '')} on {each.get('env', '')}" for each in settings]
    rows = zip(*(differences[name] for name in chosen), strict=True)
    return [", ".join(_named(name, value) for name, value in zip(chosen, row, strict=True)) for row in rows]


def _named(name: str, value: Any) -> str:
    text = "default" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[: _LONGEST_VALUE - 1]}…"
    return text if name in _SPEAK_FOR_THEMSELVES and value is not None else f"{name.removeprefix('env_kwargs.')} {text}"
