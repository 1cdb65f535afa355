"""MuJoCo's mjData as plain data.

`mj_getState` saves what MuJoCo needs to continue, but not everything that environments read: Ant and Humanoid
compute their displacement from the body positions (`xpos`, `xipos`) that the last step left in mjData, and those are
one substep older than `qpos`. So every array of mjData's buffer is saved, and restored without `mj_forward`.

MuJoCo's scratch memory is not saved: contacts, constraints and islands. A step computes them before it
reads them; an environment that reads them before its next step needs a get_state()/set_state() pair.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from envfleet.errors import StateError
from envfleet.fleet.plain_data import Kind, Reader, Writer, type_name

__all__ = ["MUJOCO_KINDS"]

# Counts of awake bodies and joints -> the arrays that list them; a count is at most the array's length.
_AWAKE_COUNTS = {
    "ntree_awake": "tree_awake",
    "nbody_awake": "body_awake_ind",
    "nparent_awake": "parent_awake_ind",
    "nv_awake": "dof_awake_ind",
}
_FLAGS = ("flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost")
_OUTSIDE_THE_BUFFER = ("energy", "solver_fwdinv", "solver_niter", "solver_nnz")
_ADDRESSES = ("plugin", "plugin_data")  # pointers, which are valid in one process only


def _is_mujoco(kind: type, name: str) -> bool:
    return type_name(kind).startswith("mujoco.") and kind.__name__ == name


def _buffer_arrays(data: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays whose size is fixed by the model, always in the same order."""
    start = data.qpos.__array_interface__["data"][0]  # the first array of the buffer
    end = start + data.nbuffer
    for name in dir(data):  # sorted
        if name.startswith("_") or name in _ADDRESSES:
            continue
        value = getattr(data, name)
        if not isinstance(value, np.ndarray) or value.size == 0:
            continue
        if start <= value.__array_interface__["data"][0] < end or name in _OUTSIDE_THE_BUFFER:
            yield name, value


def _model_checksum(mujoco: Any, model: Any) -> int:
    """Checksum of all numbers of the model, to refuse a state if the model was changed after it was built."""
    buffer = bytearray(mujoco.mj_sizeModel(model))
    mujoco.mj_saveModel(model, None, np.frombuffer(buffer, np.uint8))
    return zlib.crc32(buffer)


def _write_data(_writer: Writer, data: Any, _place: str) -> dict[str, Any]:
    mujoco = sys.modules["mujoco"]
    by_type: dict[str, list[np.ndarray]] = {}
    for _, array in _buffer_arrays(data):
        by_type.setdefault(array.dtype.name, []).append(array.ravel())
    scalars = [name for name in (*_AWAKE_COUNTS, *_FLAGS) if hasattr(data, name)]
    return {
        "version": mujoco.__version__,
        "model": _model_checksum(mujoco, data.model),
        "time": data.time,
        "scalars": {name: getattr(data, name) for name in scalars},
        "arrays": {name: np.concatenate(arrays) for name, arrays in by_type.items()},
    }


def _read_data(_reader: Reader, saved: dict[str, Any], data: Any, place: str) -> Any:
    if not _is_mujoco(type(data), "MjData"):
        raise StateError(f"{place} was MuJoCo's data, and is a {type_name(type(data))} in this environment")
    mujoco = sys.modules["mujoco"]
    if saved["version"] != mujoco.__version__:
        raise StateError(
            f"the state is of MuJoCo {saved['version']}, and {mujoco.__version__} is installed",
            hint="only the same version continues with the same numbers",
        )
    if saved["model"] != _model_checksum(mujoco, data.model):
        raise StateError(
            f"{place} is the data of a MuJoCo model that differs from the one of the state",
            hint="build the environment with the same arguments; one that changes its model while it runs "
            "needs a get_state()/set_state() pair that covers the model",
        )
    mujoco.mj_resetData(data.model, data)
    position: dict[str, int] = {}
    for name, array in _buffer_arrays(data):
        flat, start = saved["arrays"][array.dtype.name], position.get(array.dtype.name, 0)
        position[array.dtype.name] = start + array.size
        if flat.dtype != array.dtype or start + array.size > flat.size:
            raise StateError(f"the state has too few numbers for MuJoCo's {name}")
        array[...] = flat[start : start + array.size].reshape(array.shape)
    for name, value in saved["scalars"].items():
        _set_scalar(data, name, value)
    data.time = float(saved["time"])
    return data


def _set_scalar(data: Any, name: str, value: int | bool) -> None:
    if name in _FLAGS:
        setattr(data, name, bool(value))
    elif name in _AWAKE_COUNTS and 0 <= value <= getattr(data, _AWAKE_COUNTS[name]).size:
        setattr(data, name, int(value))
    else:  # MuJoCo would trust the number and read out of bounds
        raise StateError(f"the state holds {value!r} for MuJoCo's {name}")


def _read_model(_reader: Reader, _saved: dict[str, Any], model: Any, place: str) -> Any:
    if not _is_mujoco(type(model), "MjModel"):
        raise StateError(f"{place} was MuJoCo's model, and is a {type_name(type(model))} in this environment")
    return model


MUJOCO_KINDS = {
    "mujoco data": Kind(lambda kind: _is_mujoco(kind, "MjData"), _write_data, _read_data, has_identity=True),
    "mujoco model": Kind(lambda kind: _is_mujoco(kind, "MjModel"), lambda *_: {}, _read_model),
}
