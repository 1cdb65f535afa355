"""The state of a run is restored exactly from JSON and arrays."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from envfleet.errors import StateError
from envfleet.runs.plain_state import as_loaded, state_files, state_in

VALUES = [
    None, True, 7, -(2**127), 2**20_000 + 1, 0.1, -0.0, math.inf, "text", "\ud800", b"\x00\xff", [], (), {},
    [1, (2.5, [None])], {"a": {"$": "tuple"}}, {1: "one", (2, 3): "pair", "x": 0, None: 1}, deque([1], maxlen=2),
    np.float32(0.1), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 + 2j), np.str_("Wort"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(type(value).__name__))
def test_values_keep_type_and_content(value: Any) -> None:
    result = as_loaded({"value": value})["value"]
    assert type(result) is type(value)
    assert result == value
    if type(value) is float:
        assert math.copysign(1, result) == math.copysign(1, value)


def test_not_a_number_stays_one() -> None:
    assert math.isnan(as_loaded(math.nan))
    assert math.isnan(as_loaded(np.float32("nan")))


DTYPES = [
    "?",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    ">i4",
    "U3",
    "S2",
    "M8[s]",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_keep_dtype_shape_and_bytes(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    result = as_loaded([array])[0]
    assert (result.dtype, result.shape, result.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert result.flags.writeable


TENSOR_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TENSOR_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_keep_dtype_shape_and_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    result = as_loaded({"tensor": tensor})["tensor"]
    assert (result.dtype, result.shape) == (tensor.dtype, tensor.shape)
    if tensor.numel():
        assert torch.equal(result.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_tensors_of_any_strides_and_gradients_come_back_plain() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    result = as_loaded({"parameter": parameter, "turned": parameter.T})
    assert torch.equal(result["turned"], parameter.detach().T)
    assert type(result["parameter"]) is torch.Tensor
    assert not result["parameter"].requires_grad


def test_generators_go_on_where_they_were() -> None:
    for kind in (np.random.PCG64, np.random.Philox, np.random.MT19937):
        generator = np.random.Generator(kind(3))
        generator.random(5)
        as_dict = as_loaded(generator.bit_generator.state)
        as_object = as_loaded(generator)
        fresh = np.random.Generator(kind(0))
        fresh.bit_generator.state = as_dict
        expected = generator.random(4).tolist()
        assert fresh.random(4).tolist() == expected
        assert as_object.random(4).tolist() == expected
    state = torch.Generator().manual_seed(5).get_state()
    assert torch.equal(as_loaded(state), state)


def test_an_optimiser_goes_on_with_the_same_bits() -> None:
    def stepped(optimiser: torch.optim.Optimizer, weight: torch.nn.Parameter) -> torch.nn.Parameter:
        weight.grad = weight.detach() * 0.3
        optimiser.step()
        return weight

    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = torch.optim.Adam([weight], lr=0.1)
    stepped(optimiser, weight)
    twin = torch.nn.Parameter(weight.detach().clone())
    restored = torch.optim.Adam([twin], lr=0.7)
    restored.load_state_dict(as_loaded(optimiser.state_dict()))
    assert torch.equal(stepped(restored, twin), stepped(optimiser, weight))


def test_what_is_shared_is_shared_again() -> None:
    array = np.zeros(3)
    result = as_loaded({"a": array, "b": array, "view": array[1:]})
    result["a"][1] = 5
    assert result["b"] is result["a"]
    assert result["view"][0] == 5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), r"state\['deep'\]\[0\] is of type object"),
        (len, "builtin_function_or_method"),
        (Path("x"), "Path"),
        (np.zeros(2, "i4,f4"), "array of type"),
        (torch.zeros(2).to_sparse(), "tensor of layout torch.sparse_coo"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_kept_is_refused_by_its_place(value: Any, words: str) -> None:
    with pytest.raises(StateError, match=words) as error:
        state_files({"deep": [value]})
    assert "hint: a state holds plain Python values" in str(error.value)
    assert "environment" not in str(error.value)


BYTES = {"$": "array in file", "name": "four"}  # bytes 0 to 3


@pytest.mark.parametrize(
    "data",
    [
        {"$": "array in file", "name": "000099"}, {"$": "long number", "value": "x"}, {"$": "constant"},
        {"$": "tensor", "dtype": "load", "shape": [], "bytes": {"value": BYTES}},
        {"$": "tensor", "dtype": "float32", "shape": [2], "bytes": {"value": BYTES}},
        {"$": "tensor", "dtype": "float64", "shape": [1], "bytes": {"value": BYTES}},
        {"$": "tuple"}, BYTES,
    ],
    ids=str,
)  # fmt: skip
def test_data_that_is_never_written_is_refused(data: Any) -> None:
    arrays = safetensors.numpy.save({"four": np.arange(4, dtype=np.uint8)})
    content = {"format": 1, "memory": [], "state": data}
    with pytest.raises(StateError):
        state_in({"state.json": json.dumps(content).encode(), "state.safetensors": arrays})


def test_another_format_is_refused() -> None:
    files = state_files(None)
    files["state.json"] = files["state.json"].replace(b'"format": 1', b'"format": 2')
    with pytest.raises(StateError, match="has format 2; this version reads format 1"):
        state_in(files)
