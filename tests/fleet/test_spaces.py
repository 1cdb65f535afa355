"""Property tests: writing to and reading from arrays, for every space."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.fleet.infos import ColumnTable, ColumnWriter, add_info
from envfleet.fleet.spaces import BatchWriter, Leaf, leaves_of, pick, rebuild
from envfleet.fleet.validation import Misfit, fit

FIXED = st.one_of(
    st.builds(
        lambda shape, dtype: spaces.Box(0, 100, tuple(shape), dtype),
        st.lists(st.integers(1, 3), max_size=3),
        st.sampled_from([np.float32, np.float64, np.uint8, np.int32, np.int64]),
    ),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-3, 3)),
    st.builds(lambda sizes: spaces.MultiDiscrete(sizes), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    st.builds(lambda n: spaces.MultiBinary(n), st.integers(1, 4)),
)
SPACES = st.recursive(
    FIXED,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(parts)),
    ),
    max_leaves=5,
)


@settings(deadline=None)
@given(SPACES, st.integers(0, 1000))
def test_batches_are_those_of_gymnasium(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    samples = [space.sample() for _ in range(4)]
    expected = concatenate(space, samples, create_empty_array(space, 4))
    parts = {}
    for leaf in leaves_of(space):
        out = np.empty((4, *leaf.shape), leaf.dtype)
        assert BatchWriter(leaf, [out], validate=True).write([pick(s, leaf.path) for s in samples], 0)
        parts[leaf.path] = out
        assert all(fit(leaf, pick(sample, leaf.path), bounds=True)[1] == [] for sample in samples)
    received = rebuild(space, parts)
    for leaf in leaves_of(space):
        assert np.array_equal(pick(expected, leaf.path), pick(received, leaf.path))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    (leaf,) = leaves_of(spaces.Box(0, 1, shape, np.float32))
    writer = BatchWriter(leaf, [np.zeros((2, *shape), np.float32)], validate=True)
    assert writer.write([np.zeros(shape, np.float32)] * 2, 0)


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3), 0.5),
        (spaces.Discrete(3), "a"),
        (spaces.Discrete(3), None),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8)),
        (spaces.MultiDiscrete([2, 2]), np.array([0, 2])),
        (spaces.Box(0, 1, (), np.float64), np.float64("nan")),
        (spaces.Box(0, 1, (2,), np.float32), np.array([0, np.nan], np.float32)),
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.array([0, np.nan], np.float32)),
        (spaces.Box(-np.inf, 1, (2,), np.float32), np.array([0, 2], np.float32)),
        (spaces.Box(0, 1, (2,), np.float32), np.zeros((1, 2), np.float32)),
        (spaces.Box(0, 200, (2,), np.uint8), np.array([0, 201], np.uint8)),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.0, 1.0])),
    ],
)
def test_what_does_not_belong_is_noticed_and_named(space: spaces.Space[Any], bad: Any) -> None:
    (leaf,) = leaves_of(space)
    space.seed(0)
    good = space.sample()
    writer = BatchWriter(leaf, [np.zeros((3, *leaf.shape), leaf.dtype)], validate=True)
    assert writer.write([good, good, good], 0)
    assert not writer.write([good, bad, good], 0)
    with pytest.raises(Misfit):
        fit(leaf, bad, bounds=True)


def test_object_leaves_are_told_apart() -> None:
    space = spaces.Dict(
        {"x": spaces.Box(0, 1, (2,)), "say": spaces.Text(5), "many": spaces.Sequence(spaces.Discrete(2))}
    )
    assert {leaf.name: leaf.fixed for leaf in leaves_of(space)} == {"x": True, "say": False, "many": False}
    assert isinstance(leaves_of(space)[0], Leaf)


def test_columns_take_what_they_can_and_leave_the_rest() -> None:
    area = np.zeros(4096, np.uint8)
    table, writer = ColumnTable(area, 4), ColumnWriter(area, 4, start=2, stop=4)
    first = {"x": 1.5, "n": 3, "ok": True, "none": None, "deep": {"y": np.float32(2), "text": "a"}, "grid": np.ones(2)}
    table.learn(first)
    writer.define(table.definitions)
    other = {"x": 2, "n": 2.5, "grid": np.ones(3), "deep": {}}  # other types and shapes
    left = writer.write([(0, first), (1, other)])
    assert left[0] == (0, {"none": None, "deep": {"text": "a"}})
    assert left[1][0] == 1 and left[1][1].keys() == {"x", "n", "grid"}
    infos: dict[str, Any] = {}
    table.read(writer.present, [slice(2, 4)], infos)
    assert infos["x"].tolist() == [1.5, 0] and infos["_x"].tolist() == [True, False]
    assert infos["n"].dtype == np.int64 and infos["ok"].tolist() == [True, False]
    assert infos["deep"]["y"].dtype == np.float32 and infos["_deep"].tolist() == [True, True]
    assert infos["grid"].tolist() == [[1, 1], [0, 0]]
    assert "none" not in infos
    assert writer.write([]) == []
    assert writer.present == 0 and not area.any()


@pytest.mark.parametrize(
    "infos",
    [
        [{"x": 1.0, "n": 1}, {"x": 2.0, "n": 2}],  # same keys and types: written key by key
        [{"n": 1, "x": 1.0}, {"x": 2.0, "n": 2}],
        [{"x": 1.0}, {"x": 2.0, "n": 2}],
        [{"x": 1.0, "n": 1}, {"x": 2.0}],
        [{"x": 1.0, "n": 1}, {"x": 2.0, "n": 2.5}],
        [{"x": 1.0, "n": 1}, {"x": 2.0, "m": 1}],
        [{"x": 1.0, "n": 1}, {"x": 2.0, "n": 2**70}],
        [{"x": 1.0, "n": 1}, None],
        [None, {"n": 7}],
        [None, None],
    ],
)
@pytest.mark.parametrize("before", [[], [(0, {"x": 9.0, "n": 9}), (1, {"x": 9.0, "n": 9})], [(1, {"n": 9})]])
def test_columns_hold_the_infos_of_one_step_and_nothing_of_the_step_before(infos: list[Any], before: list[Any]) -> None:
    area = np.zeros(4096, np.uint8)
    table, writer = ColumnTable(area, 3), ColumnWriter(area, 3, start=1, stop=3)
    table.learn({"x": 1.0, "n": 1})
    writer.define(table.definitions)
    writer.write(before)
    left = dict(writer.write([(i, info) for i, info in enumerate(infos) if info is not None]))
    found: dict[str, Any] = {}
    table.read(writer.present, [slice(1, 3)], found)
    for key, kind in (("x", float), ("n", int)):
        fits = [bool(info) and type(info.get(key)) is kind and abs(info[key]) < 2**63 for info in infos]
        stored = [info[key] if fit else None for info, fit in zip(infos, fits, strict=True)]
        assert found.get(key, np.zeros(2)).tolist() == [value or 0 for value in stored]
        assert found.get(f"_{key}", np.zeros(2, bool)).tolist() == [value is not None for value in stored]
        for i, info in enumerate(infos):
            if info and key in info and stored[i] is None:
                assert left[i][key] == info[key]


def test_arrays_of_one_shape_have_a_column_and_others_are_left() -> None:
    area = np.zeros(4096, np.uint8)
    table, writer = ColumnTable(area, 2), ColumnWriter(area, 2, start=0, stop=2)
    table.learn({"action_mask": np.ones(3, np.int8)})
    writer.define(table.definitions)
    masks = [np.array([1, 0, 1], np.int8), np.array([0, 1, 1], np.int8)]
    assert writer.write([(i, {"action_mask": mask}) for i, mask in enumerate(masks)]) == []
    infos: dict[str, Any] = {}
    table.read(writer.present, [slice(0, 2)], infos)
    assert infos["action_mask"].tolist() == [[1, 0, 1], [0, 1, 1]] and infos["_action_mask"].all()
    ((left, info),) = writer.write([(0, {"action_mask": masks[0]}), (1, {"action_mask": np.ones(4, np.int8)})])
    assert left == 1 and len(info["action_mask"]) == 4


def test_infos_of_different_types_are_kept_whole() -> None:
    infos: dict[str, Any] = {}
    for row, value in enumerate([1, 2.5, "text"]):
        add_info(infos, {"key": value}, row, 3)
    assert infos["key"].tolist() == [1.0, 2.5, "text"] and infos["_key"].all()
    infos = {}
    add_info(infos, {"grid": np.zeros(2)}, 0, 2)
    add_info(infos, {"grid": np.ones(3)}, 1, 2)
    assert infos["grid"][1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("columns", [False, True])
def test_dictionaries_and_other_values_under_one_key(columns: bool) -> None:
    """As objects, whichever comes first and whichever has a column."""
    for values in itertools.permutations([{"r": 1.5, "text": "a"}, None, 7]):
        area = np.zeros(4096, np.uint8)
        table, writer = ColumnTable(area, 3), ColumnWriter(area, 3, start=0, stop=3)
        if columns:
            for value in values:
                table.learn({"key": value})
            writer.define(table.definitions)
        left = writer.write([(i, {"key": value}) for i, value in enumerate(values)])
        infos: dict[str, Any] = {}
        table.read(writer.present, [slice(0, 3)], infos)
        for row, info in left:
            add_info(infos, info, row, 3)
        assert infos["key"].tolist() == list(values) and infos["_key"].all()


def test_integers_of_more_than_64_bits_are_objects() -> None:
    infos: dict[str, Any] = {}
    add_info(infos, {"one": 2**63, "other": 1}, 0, 2)
    add_info(infos, {"one": 1, "other": 2**63}, 1, 2)
    assert infos["one"].tolist() == [2**63, 1] and infos["other"].tolist() == [1, 2**63]
    table = ColumnTable(np.zeros(4096, np.uint8), 2)
    table.learn({"one": 2**63})
    assert table.count == 0


def test_a_new_writer_removes_what_another_one_has_left() -> None:
    area = np.zeros(4096, np.uint8)
    table = ColumnTable(area, 2)
    table.learn({"x": 1.5})
    for value in ([(0, {"x": 2.5})], []):
        writer = ColumnWriter(area, 2, start=0, stop=2)
        writer.define(table.definitions)
        writer.write(value)
    assert not area.any()
