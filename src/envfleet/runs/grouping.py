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
_LONGEST_VALUES = (30, 60)  # characters of a value in a group's name; more if names are equal otherwise


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings."""

    label: str
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run], *, ignoring: Collection[str] = ()) -> list[RunGroup]:
    """Group runs by their settings, in order of first appearance.

    A label has only the settings needed to tell the groups apart; no two are equal. Settings in `ignoring` may differ
    within a group, e.g. CHANGES_NO_RESULT for curves over steps.
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
    return {
        name: [_value(name, each) for each in counted]
        for name in names
        if len({text for text in _comparable(name, counted) if text is not None}) > 1
    }


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
    return json.dumps({name: text for name in counted if (text := _as_json(name, counted))}, sort_keys=True)


def _comparable(name: str, counted: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The setting of each as comparable text; None if its algorithm does not have the setting.

    Whether it has one follows from the algorithm, so that is no further difference. Any algorithm can have arguments of
    the environment.
    """
    algorithms = {str(each.get("algorithm")) for each in counted if name in each}
    return [
        _as_json(name, each) if name.startswith("env_kwargs.") or str(each.get("algorithm")) in algorithms else None
        for each in counted
    ]


def _as_json(name: str, counted: Mapping[str, Any]) -> str:
    """A setting as comparable text, empty if unset."""
    if name not in counted or (not _is_inner(name) and _is_off(counted[name])):
        return ""
    return json.dumps(counted[name], sort_keys=True, default=str)


def _is_inner(name: str) -> bool:
    """Whether it is a value inside a setting, e.g. an argument of the environment: recorded only if given."""
    return "." in name


def _is_off(value: Any) -> bool:
    """Whether a setting is off, which equals one that an older version did not have."""
    return value is None or value is False or (isinstance(value, list | dict) and not value)


def _value(name: str, counted: Mapping[str, Any]) -> Any:
    """The value to show: None if unset, so one that was given as None is "none", as on the command line."""
    value = counted.get(name)
    return "none" if value is None and name in counted and _is_inner(name) else value


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    counted = [counted_settings(each) for each in settings]
    differences = differing_settings(settings)
    chosen: dict[str, list[str | None]] = {}
    told_apart = 1
    for name in differences:
        columns = [*chosen.values(), _comparable(name, counted)]
        now = len(set(zip(*columns, strict=True)))
        if now > told_apart:
            chosen[name], told_apart = columns[-1], now
    if not chosen:
        return [f"{each.get('algorithm', '')} on {each.get('env', '')}" for each in settings]
    labels: list[str] = []
    for longest in _LONGEST_VALUES:
        labels = [
            ", ".join(_named(name, differences[name][at], longest) for name in chosen if chosen[name][at] is not None)
            for at in range(len(settings))
        ]
        if len(set(labels)) == len(labels):
            return labels
    return [
        f"{label} ({labels[: at + 1].count(label)})" if labels.count(label) > 1 else label
        for at, label in enumerate(labels)
    ]


def _named(name: str, value: Any, longest: int) -> str:
    text = "default" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return text if name in _SPEAK_FOR_THEMSELVES and value is not None else f"{name.removeprefix('env_kwargs.')} {text}"
