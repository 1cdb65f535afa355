"""Layers of settings: the command line overrides the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envfleet.settings.declaration import Settings, dotted_keys, name_of
from envfleet.settings.spelling import last_name

__all__ = ["layered"]


def layered(cls: type[Settings], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge layers into one mapping for `cls.from_mapping`. Later layers win; keys keep their spelling.

    Keys computed by `cls.prepared` belong to no layer. If a layer contradicts one of them, both are kept and
    `from_mapping` refuses them.
    """
    values: dict[str, Any] = {}
    layer_of: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for key, value in dotted_keys(cls, layer):
            # The same word in another section, or as a flag, counts as the same key.
            for older in [known for known in values if layer_of[known] < number and last_name(known) == last_name(key)]:
                del values[older], layer_of[older]
            values[key], layer_of[key] = value, number
    prepared = cls.prepared(values)
    latest: dict[str | None, int] = {}
    for key in prepared:
        if key in layer_of:
            name = name_of(cls, key)
            latest[name] = max(latest.get(name, 0), layer_of[key])
    return {
        key: value
        for key, value in prepared.items()
        if key not in layer_of or name_of(cls, key) is None or layer_of[key] == latest[name_of(cls, key)]
    }
