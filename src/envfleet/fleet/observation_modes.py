"""Combines the spaces of a fleet's environments; for observations there is Gymnasium's `observation_mode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from envfleet.errors import SettingsError
from envfleet.fleet.protocol import SpacesError

__all__ = ["ObservationMode", "action_spaces", "checked_mode", "observation_spaces"]

ObservationMode = str | Space[Any] | tuple[Space[Any], Space[Any]]


def checked_mode(mode: ObservationMode) -> ObservationMode:
    """Return the mode; raise SettingsError if it is invalid."""
    named = isinstance(mode, str) and mode in ("same", "different")
    pair = isinstance(mode, tuple) and len(mode) == 2 and all(isinstance(space, Space) for space in mode)
    if not (named or pair or isinstance(mode, Space)):
        raise SettingsError(
            f"observation_mode is {mode!r}, expected 'same', 'different', the space of one environment, or the "
            "spaces of the batch and of one environment",
        )
    return mode


def observation_spaces(given: Sequence[Space[Any]], mode: ObservationMode) -> tuple[Space[Any], Space[Any]]:
    """Return the single and the batched observation space, from the spaces of all environments."""
    if isinstance(mode, tuple):
        together, single = mode
    elif isinstance(mode, Space):
        together, single = batch_space(mode, len(given)), mode
    else:
        single = given[0]
        together = batch_space(single, len(given))
    for other in given:
        if mode == "same":
            if other != single:
                raise SpacesError(
                    f"environments have different observation spaces: {single} and {other}",
                    hint="give all environments of a fleet the same observation space; observation_mode='different' "
                    "allows different bounds",
                )
        elif not is_space_dtype_shape_equiv(other, single):
            raise SpacesError(
                f"environments have observation spaces of different form: {single} and {other}",
                hint="shapes and dtypes must be the same with every observation_mode",
            )
    if mode == "different":
        together = batch_differing_spaces(list(given))
    return single, together


def action_spaces(given: Sequence[Space[Any]]) -> tuple[Space[Any], Space[Any]]:
    """Return the single and the batched action space; all environments must have the same one."""
    single = given[0]
    for other in given:
        if other != single:
            raise SpacesError(
                f"environments have different action spaces: {single} and {other}",
                hint="give all environments of a fleet the same action space",
            )
    return single, batch_space(single, len(given))
