"""Starts a run from the weights of another one (`init_from`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.policies.weights import load_weights
from envfleet.runs.run import Run
from envfleet.training.assembly import Parts
from envfleet.wording import shown

__all__ = ["start_from"]

_SPACES = {"observation_space": "other observations", "action_space": "other actions"}


def start_from(path: str | Path, parts: Parts, description: Mapping[str, Any]) -> None:
    """Load weights and normalisers from another run. `description` is that of this run's policy."""
    loaded = Run.load(path).checkpoint()
    try:
        load_weights(parts.policy, loaded.policy, str(path))
    except SettingsError as error:
        _refuse_differences(path, loaded.state["policy"], description)
        raise error from None
    parts.learner.start_from(loaded.state["parts"]["learner"])


def _refuse_differences(path: str | Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise SettingsError with the settings of the policies that differ; torch would list all their weights."""
    found, wanted = dict(_settings_of(theirs)), dict(_settings_of(ours))
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    said = [f"{name} {_shown(found.get(name))}, expected {_shown(wanted.get(name))}" for name in names]
    said += [words for name, words in _SPACES.items() if theirs.get(name) != ours.get(name)]
    if said:
        raise SettingsError(
            f"the weights of {path} do not fit this run: it has {'; '.join(said)}",
            hint="init_from needs a run with the same policy: give this run those settings, or start from another one",
        )


def _settings_of(description: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings of a policy by the names that users know."""
    yield "policy", description["kind"]
    for name, value in description["settings"].items():
        if name != "history":
            yield name, value
        elif value is None:
            yield "memory", "none"
        else:  # the places of previous actions and rewards follow from the environment
            yield from ((each, part) for each, part in value.items() if each != "parts")


def _shown(value: Any) -> str:
    return "unset" if value is None else shown(value)
