"""The state of a run as JSON and arrays, and back: exact, and without running code.

The encoder of simulator states (`fleet.plain_data`) does the work. This module adds torch tensors, moves arrays out of
the JSON into a table by name, and handles integers too long for JSON readers. It refuses code and constants: those
would be taken from a newly built target, and here there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.errors import StateError
from envfleet.fleet.plain_data import MISSING, TAG, Kind, Kinds, Reader, Writer, array_data, array_from
from envfleet.fleet.plain_kinds import PLAIN_KINDS
from envfleet.settings.files import parse_json

__all__ = ["as_loaded", "join", "split", "state_files", "state_in"]

_FORMAT = 1
_NEEDS_A_TARGET = {"constant", "frozen"}
_LONGEST_NUMBER = 4096  # bits; Python refuses to read decimals of more than 4300 digits
_HINT = "a state holds plain Python values, NumPy arrays and generators, and tensors"


def split(state: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Split a nested state into strict JSON data and the arrays it refers to."""
    writer = Writer(_KINDS)
    try:
        written = writer.write(state, "state")
        content = {"state": written, "memory": writer.finish()}
    except StateError as error:
        raise StateError(str(error).partition("\nhint: ")[0], hint=_HINT) from None
    arrays: dict[str, np.ndarray] = {}
    return {"format": _FORMAT, **_without_arrays(content, arrays)}, arrays


def join(json_ready: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild the state from the parts that `split` returned."""
    if json_ready.get("format") != _FORMAT:
        raise StateError(f"the state has format {json_ready.get('format')!r}; this version reads format {_FORMAT}")
    try:
        content = _with_arrays({key: json_ready[key] for key in ("state", "memory")}, arrays)
        return Reader(_KINDS, content["memory"]).read(content["state"], MISSING, "state")
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StateError(f"the state is damaged: {type(error).__name__}: {error}") from error


# ---- files ----


def state_files(state: Any) -> dict[str, bytes]:
    """The files of a state, by name."""
    import safetensors.numpy

    json_ready, arrays = split(state)
    return {
        "state.safetensors": safetensors.numpy.save(arrays),
        "state.json": json.dumps(json_ready, allow_nan=False).encode(),
    }


def state_in(files: Mapping[str, bytes]) -> Any:
    """Return the state that `state_files` wrote."""
    import safetensors.numpy

    return join(parse_json(files["state.json"]), safetensors.numpy.load(files["state.safetensors"]))


def as_loaded(state: Any) -> Any:
    """Return the state after a round trip through its files. Raises a StateError if they cannot hold it."""
    import safetensors

    try:
        return state_in(state_files(state))
    except (KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise StateError(f"a checkpoint cannot hold the state: {type(error).__name__}: {error}") from error


# ---- arrays ----


def _without_arrays(data: Any, arrays: dict[str, np.ndarray]) -> Any:
    if type(data) is dict:
        return {key: _without_arrays(item, arrays) for key, item in data.items()}
    if type(data) is list:
        return [_without_arrays(item, arrays) for item in data]
    if type(data) is np.ndarray:
        name = f"{len(arrays):06d}"
        arrays[name] = data
        return {TAG: "array in file", "name": name}
    if type(data) is int and data.bit_length() > _LONGEST_NUMBER:
        return {TAG: "long number", "value": hex(data)}
    return data


def _with_arrays(data: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if type(data) is list:
        return [_with_arrays(item, arrays) for item in data]
    if type(data) is not dict:
        return data
    if data.get(TAG) == "array in file":
        return arrays[data["name"]]
    if data.get(TAG) == "long number":
        return int(data["value"], 16)
    return {key: _with_arrays(item, arrays) for key, item in data.items()}


# ---- tensors ----


def _is_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")  # loaded already if there is a tensor
    return torch is not None and issubclass(kind, torch.Tensor)


def _write_tensor(_writer: Writer, tensor: Any, place: str) -> dict[str, Any]:
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise StateError(f"{place} is a tensor of layout {tensor.layout}, expected a dense one")
    values = tensor.detach().cpu().contiguous().reshape(-1)
    data = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    return {**data, "bytes": array_data(values.view(torch.uint8).numpy())}


def _read_tensor(_reader: Reader, data: dict[str, Any], _current: Any, place: str) -> Any:
    import torch

    dtype = vars(torch).get(data["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise StateError(f"the state names the type {data['dtype']!r} at {place}, which torch does not have")
    values = torch.from_numpy(array_from(data["bytes"]))
    try:
        # torch cannot view an empty tensor as a type of another size.
        values = values.view(dtype) if values.numel() else torch.empty(0, dtype=dtype)
        return values.reshape(data["shape"])
    except RuntimeError as error:
        raise StateError(f"the state holds a damaged tensor at {place}: {error}") from error


_KINDS = Kinds(
    {tag: kind for tag, kind in PLAIN_KINDS.items() if tag not in _NEEDS_A_TARGET}
    | {"tensor": Kind(_is_tensor, _write_tensor, _read_tensor, has_identity=True)}
)
