"""Captures the whole state of an environment as plain data, and restores it into a freshly built one.

`capture` walks the wrapper chain from the outside in. A layer with its own get_state()/set_state(state) pair is saved
through it; of any other layer, every attribute is saved. Attributes that a freshly built environment has anyway are
left out: functions, spaces (except their generators), specs, windows and surfaces. Mutable state that cannot be written
as plain data is an error, never left out. `restore` runs no code that a state names.

Not captured: Python's and NumPy's global generators, class attributes, variables inside functions, and simulators
behind a handle, such as those of a C library. `envfleet.conformance.exactness` tests whether that matters.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.spaces import Space
from gymnasium.wrappers import PassiveEnvChecker, RecordEpisodeStatistics

from envfleet.errors import StateError
from envfleet.fleet.mujoco_state import MUJOCO_KINDS
from envfleet.fleet.plain_data import (
    HINT,
    MISSING,
    TAG,
    Kind,
    Kinds,
    Reader,
    Writer,
    damage_as_state_error,
    entry_of,
    is_same_class,
    type_name,
)
from envfleet.fleet.plain_kinds import PLAIN_KINDS

__all__ = ["capture", "restore"]

_FORMAT = 1

# Attributes that are fully determined by the constructor's arguments, by the class that sets them. Large tables are
# listed only if the arguments determine them; FrozenLake's map, for example, may be random.
_AS_BUILT = {
    "gymnasium.core.Env": {"metadata", "render_mode", "spec"},
    "gymnasium.core.Wrapper": {"_cached_spec", "_metadata", "env"},
    "gymnasium.utils.record_constructor.RecordConstructorArgs": {"_saved_kwargs"},
    "gymnasium.utils.ezpickle.EzPickle": {"_ezpickle_args", "_ezpickle_kwargs"},
    "gymnasium.wrappers.rendering.RecordVideo": {"video_folder"},
    "gymnasium.envs.mujoco.mujoco_env.MujocoEnv": {"fullpath", "mujoco_renderer"},
    "gymnasium.envs.toy_text.cliffwalking.CliffWalkingEnv": {"P", "_cliff", "initial_state_distrib"},
    "gymnasium.envs.toy_text.taxi.TaxiEnv": {"P", "desc", "initial_state_distrib", "locs", "locs_colors"},
}
# Renderers recreate these when they draw the next frame.
_RENDERING_MODULES = {"OpenGL", "glfw", "matplotlib", "moviepy", "pygame", "pyglet"}
_RENDERING_NAMES = {"_renderer", "_viewer", "clock", "renderer", "screen", "surf", "viewer", "window"}


def capture(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Everything that determines how `env` and its wrappers continue, as plain data."""
    layers = _layers(env)
    writer = Writer(_KINDS)
    for label, layer in layers.items():
        writer.note(layer, label)
    written = [_capture_layer(writer, layer, label) for label, layer in layers.items()]
    return {"format": _FORMAT, "layers": written, "memory": writer.finish()}


def restore(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    """Restore a captured state into a freshly built `env`, which then continues as the original would."""
    layers = _layers(env)
    with damage_as_state_error():
        if state["format"] != _FORMAT:
            raise StateError(f"the state has format {state['format']!r}; this version reads format {_FORMAT}")
        received = [saved["class"] for saved in state["layers"]]
        expected = [type(layer) for layer in layers.values()]
        if len(received) != len(expected) or not all(map(is_same_class, received, expected)):
            raise StateError(
                f"the state is of {' > '.join(received)}, "
                f"and the environment is {' > '.join(map(type_name, expected))}",
                hint="build the environment with the same wrappers as the one that gave the state",
            )
        reader = Reader(_KINDS, state["memory"])
    for label, layer in layers.items():
        reader.note(layer, label)
    for saved, (label, layer) in zip(state["layers"], layers.items(), strict=True):
        _restore_layer(reader, saved, layer, label)


def _layers(env: gymnasium.Env[Any, Any]) -> dict[str, gymnasium.Env[Any, Any]]:
    """The wrapper chain from the outside in, by label: the class name, with a number if it occurs again."""
    layers: dict[str, gymnasium.Env[Any, Any]] = {}
    layer = env
    while True:
        name = type(layer).__name__
        layers[name if name not in layers else f"{name} {len(layers) + 1}"] = layer
        if not isinstance(layer, gymnasium.Wrapper):
            return layers
        layer = layer.env


# ---- one layer ----


def _capture_layer(writer: Writer, layer: Any, label: str) -> dict[str, Any]:
    data: dict[str, Any] = {"class": type_name(type(layer))}
    attributes = _attributes(layer)
    if _has_own_pair(layer.__class__):
        data["own"] = writer.write(layer.get_state(), f"{label}.get_state()")
        # Many get_state() methods forget the generators, and restoring them twice does no harm.
        attributes = {name: value for name, value in attributes.items() if _is_generator(name, value)}
    data["attributes"] = {
        name: _write_attribute(writer, layer, name, value, f"{label}.{name}") for name, value in attributes.items()
    }
    return data


def _restore_layer(reader: Reader, saved: dict[str, Any], layer: Any, label: str) -> None:
    has_own_pair = _has_own_pair(layer.__class__)
    if ("own" in saved) != has_own_pair:
        there, here = ("without", "with") if has_own_pair else ("with", "without")
        raise StateError(f"the state is of a {label} {there} get_state()/set_state(); this one is {here}")
    if has_own_pair:
        with damage_as_state_error():
            own = reader.read(saved["own"], MISSING, f"{label}.get_state()")
        layer.set_state(own)
    with damage_as_state_error():
        before = _attributes(layer)
        for name, data in saved["attributes"].items():
            current = before.get(name, MISSING)
            if not _is_rendering(name, current):
                _set(layer, name, current, reader.read(data, current, f"{label}.{name}"), has_own_pair)
    if not has_own_pair:
        for name in before.keys() - saved["attributes"].keys():
            if not _is_rendering(name, before[name]):
                vars(layer).pop(name, None)


def _set(layer: Any, name: str, current: Any, value: Any, has_own_pair: bool) -> None:
    if name in _class_attributes(layer.__class__)[0]:
        raise StateError(f"the state holds {name!r}, which only the constructor of {type(layer).__name__} sets")
    if has_own_pair and type(value) is type(current) is np.random.Generator:
        # Objects created by set_state() may already reference this generator.
        current.bit_generator.state = value.bit_generator.state
    elif value is MISSING or value is current:
        pass  # belongs to a renderer, or was changed in place
    elif name in _class_attributes(layer.__class__)[1]:
        object.__setattr__(layer, name, value)
    else:
        vars(layer)[name] = value  # bypass properties and __setattr__, which may have side effects


@functools.cache
def _has_own_pair(kind: type) -> bool:
    """Whether the class has get_state() and set_state(state); MujocoEnv's set_state(qpos, qvel) does not count."""
    try:
        inspect.signature(kind.get_state).bind("self")  # type: ignore[attr-defined]
        inspect.signature(kind.set_state).bind("self", "state")  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def _attributes(layer: Any) -> dict[str, Any]:
    """Attributes of the layer itself, without those that its constructor's arguments determine."""
    as_built, outside_dict = _class_attributes(layer.__class__)
    attributes = {name: getattr(layer, name) for name in outside_dict if hasattr(layer, name)}
    attributes.update(vars(layer))
    return {name: value for name, value in attributes.items() if name not in as_built}


@functools.cache
def _class_attributes(kind: type) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names of the attributes that stay as built, and of those that an instance has outside its __dict__."""
    as_built: set[str] = set()
    outside_dict: list[str] = []
    for base in kind.__mro__:
        as_built |= _AS_BUILT.get(type_name(base), set())
        slots = vars(base).get("__slots__", ())
        outside_dict += [slots] if isinstance(slots, str) else slots
        outside_dict += [name for name, value in vars(base).items() if isinstance(value, Space)]
    return frozenset(as_built), tuple(name for name in outside_dict if not name.startswith("__"))


# ---- attributes that need more than their value ----


def _write_attribute(writer: Writer, layer: Any, name: str, value: Any, place: str) -> Any:
    if _is_rendering(name, value):
        return {TAG: "rendering"}
    if name == "episode_start_time" and isinstance(layer, RecordEpisodeStatistics):
        # A value of time.perf_counter(), which has another origin in another process.
        return {"seconds": time.perf_counter() - value, TAG: "moment"}
    if name == "_previous_data" and isinstance(layer, PassiveEnvChecker) and value is not None:
        value = None, {}  # only used for a comparison that may warn; its info may not be plain data
    return writer.write(value, place)


def _is_rendering(name: str, value: Any) -> bool:
    """Whether a renderer created this: an object of its library, or non-data under a name usual for renderers."""
    if any(type_name(type(part)).partition(".")[0] in _RENDERING_MODULES for part in _parts(value)):
        return True
    return name in _RENDERING_NAMES and value is not MISSING and not _KINDS.can_write(type(value))


def _parts(value: Any) -> Iterable[Any]:
    """The members of a container; any other value itself."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)


def _is_generator(name: str, value: Any) -> bool:
    return name in {"_np_random", "_np_random_seed"} or isinstance(value, Space)


# ---- kinds of values that only environments have ----


def _spaces_within(space: Space[Any]) -> Iterator[Space[Any]]:
    yield space
    for value in vars(space).values():
        for part in _parts(value):
            if isinstance(part, Space):
                yield from _spaces_within(part)


def _write_space(writer: Writer, space: Space[Any], place: str) -> dict[str, Any]:
    generators = [part._np_random for part in _spaces_within(space)]
    return {"class": type_name(type(space)), "generators": writer.write_items(generators, f"{place}.generators")}


def _read_space(reader: Reader, data: dict[str, Any], current: Any, place: str) -> Any:
    parts = list(_spaces_within(current)) if isinstance(current, Space) else []
    if not is_same_class(data["class"], type(current)) or len(parts) != len(data["generators"]):
        raise StateError(f"{place} is a {data['class']} in the state, and {current!r} here", hint=HINT)
    generators = reader.read_items(data["generators"], MISSING, f"{place}.generators")
    for part, generator in zip(parts, generators, strict=True):
        part._np_random = generator
    return current


def _is_gymnasium_object(kind: type) -> bool:
    """Whether this is a helper class of Gymnasium's wrappers, such as their running mean."""
    return type_name(kind).startswith("gymnasium.") and not issubclass(kind, gymnasium.Env)


def _write_object(writer: Writer, value: Any, place: str) -> dict[str, Any]:
    attributes = {name: writer.write(item, f"{place}.{name}") for name, item in vars(value).items()}
    return {"class": type_name(type(value)), "attributes": attributes}


def _read_object(reader: Reader, data: dict[str, Any], current: Any, place: str) -> Any:
    if not is_same_class(data["class"], type(current)):
        raise StateError(f"{place} is a {data['class']} in the state, and {current!r} here", hint=HINT)
    for name, item in data["attributes"].items():
        vars(current)[name] = reader.read(item, entry_of(vars(current), name), f"{place}.{name}")
    return current


def _as_built(_reader: Reader, _data: dict[str, Any], current: Any, _place: str) -> Any:
    return current


_KINDS = Kinds(
    {
        # `_write_attribute` writes the first two.
        "rendering": Kind(lambda _: False, lambda *_: {}, _as_built),
        "moment": Kind(lambda _: False, lambda *_: {}, lambda _, data, *__: time.perf_counter() - data["seconds"]),
        "specification": Kind(lambda kind: issubclass(kind, EnvSpec | WrapperSpec), lambda *_: {}, _as_built),
        "space": Kind(lambda kind: issubclass(kind, Space), _write_space, _read_space, has_identity=True),
    }
    | PLAIN_KINDS
    | MUJOCO_KINDS
    | {"object": Kind(_is_gymnasium_object, _write_object, _read_object, has_identity=True)}
)
