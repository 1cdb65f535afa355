"""The state of a run as JSON and arrays, and back: exact, and without running code.

The encoder of simulator states (`fleet.plain_data`) does the work. This module adds torch tensors and puts the arrays
into a separate file. It refuses code and constants, because restoring them needs a newly built target, and there is
none here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.errors import StateError
from envfleet.fleet.plain_data import (
    MISSING,
    TAG,
    Kind,
    Kinds,
    Reader,
    Writer,
    array_data,
    array_from,
    damage_as_state_error,
)
from envfleet.fleet.plain_kinds import PLAIN_KINDS

__all__ = ["as_loaded", "state_files", "state_in"]

_FORMAT = 1
_NEEDS_A_TARGET = {"constant", "frozen"}
_IN_FILE = "array in file"
_HINT = "a state holds plain Python values, NumPy arrays and generators, and tensors"


def state_files(state: Any) -> dict[str, bytes]:
    """The files of a state, by name."""
    import safetensors.numpy

    arrays: dict[str, np.ndarray] = {}

    def put_aside(array: np.ndarray) -> dict[str, str]:
        name = f"{len(arrays):06d}"
        arrays[name] = array
        return {TAG: _IN_FILE, "name": name}

    writer = Writer(_KINDS, _HINT)
    written = writer.write(state, "state")
    content = {"format": _FORMAT, "state": written, "memory": writer.finish()}
    as_json = json.dumps(content, default=put_aside, allow_nan=False).encode()
    return {"state.safetensors": safetensors.numpy.save(arrays), "state.json": as_json}


def state_in(files: Mapping[str, bytes]) -> Any:
    """Return the state that `state_files` wrote."""
    import safetensors.numpy

    arrays = safetensors.numpy.load(files["state.safetensors"])

    def put_back(found: dict[str, Any]) -> Any:
        return arrays[found["name"]] if found.get(TAG) == _IN_FILE else found

    with damage_as_state_error():
        content = json.loads(files["state.json"], object_hook=put_back)
        if content["format"] != _FORMAT:
            raise StateError(f"the state has format {content['format']!r}; this version reads format {_FORMAT}")
        return Reader(_KINDS, content["memory"]).read(content["state"], MISSING, "state")


def as_loaded(state: Any) -> Any:
    """Return the state after a round trip through its files. Raises a StateError if they cannot hold it."""
    return state_in(state_files(state))


# ---- tensors ----


def _is_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")  # loaded already if there is a tensor
    return torch is not None and issubclass(kind, torch.Tensor)


def _write_tensor(writer: Writer, tensor: Any, place: str) -> dict[str, Any]:
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise StateError(f"{place} is a tensor of layout {tensor.layout}, expected a dense one", hint=writer.hint)
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
