"""Values come back from plain data with type, bits and identity; everything else is refused."""

from __future__ import annotations

import dataclasses
import enum
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from envfleet.errors import StateError
from envfleet.fleet.state import capture, restore
from tests.fleet.continuation import Holder, as_bytes, through_files


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Move(enum.Flag):
    UP = 1
    LEFT = 2


Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass(frozen=True)
class Settings:
    size: int
    folder: Path
    weights: tuple[float, ...] = ()


def carried_over(value: Any, now: Any = None) -> Any:
    """Pass `value` through files to another environment that held `now`; return what it holds then."""
    target = Holder(value=now)
    restore(target, through_files(capture(Holder(value=value))))
    return target.value


VALUES = [
    None, True, 7, 2**200, -0.0, 0.1, float("inf"), float("-inf"), "text", "", b"", b"\x00\xff",
    1.5 - 2j, range(3, 9, 2), [], [1, [2.0, None]], (), (1, (2,), [3]), {}, {"a": {"b": 1}}, {"$": "tuple"},
    {1: "one", (2, 3): "pair", None: 0}, {1, 2}, frozenset({1}), deque([1, 2, 3], maxlen=3), deque(),
    OrderedDict(b=1, a=2), Counter("abca"), Colour.BLUE, Level.LOW, Point(1, 2.5), bytearray(b"abc"),
    np.float32(0.1), np.float64("nan"), np.int8(-3), np.uint64(2**63), np.bool_(True), np.str_("Wort"),
    np.bytes_(b"ab"), np.complex64(1 + 2j), np.longdouble("0.1"), np.datetime64("2020-02-02"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_keep_type_and_bits(value: Any) -> None:
    result = carried_over(value)
    assert type(result) is type(value)
    assert as_bytes(result) == as_bytes(value)
    if isinstance(value, deque):
        assert result.maxlen == value.maxlen


hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
nested = st.recursive(
    hashable | npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0, max_side=3)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.builds(deque, st.lists(inner, max_size=4))
    ),
    max_leaves=12,
)


@given(nested)
@settings(deadline=None)  # a shared machine may be slow
def test_nested_values_keep_types_and_bits(value: Any) -> None:
    assert as_bytes(carried_over(value)) == as_bytes(value)


def test_not_a_number_stays_not_a_number() -> None:
    result = carried_over(float("nan"))
    assert type(result) is float
    assert np.isnan(result)


def test_a_default_dictionary_keeps_its_default() -> None:
    result = carried_over(defaultdict(list, {3: [1]}))
    result[4].append(2)
    assert result == {3: [1], 4: [2]}


ARRAYS = [
    np.array(3.5),
    np.zeros((0, 3), np.int16),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.arange(6.0).reshape(2, 3).T,
    np.arange(24.0)[::-2],
    np.zeros((4, 5, 3), np.float32).transpose(2, 0, 1),
    np.arange(60.0).reshape(4, 5, 3).transpose(1, 0, 2).copy(order="K"),
    np.array([["S", "FH"]]),
    np.array([b"ab", b"c"]),
    np.array([1 + 2j, 3]),
    np.array(["2020-01-01"], "M8[D]"),
    np.array([np.nan, -0.0, np.inf]),
    np.array([True, False]),
    np.array([0.1, 2], np.longdouble),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_keep_type_shape_bytes_and_layout(array: np.ndarray) -> None:
    result = carried_over(array)
    assert as_bytes(result) == as_bytes(array)
    assert result.flags.writeable
    assert result.strides == array.strides


def test_an_array_of_objects_keeps_them() -> None:
    array = np.array([[None, "x"], [(1, 2), 3]], object)
    result = carried_over(array)
    assert result.dtype == object
    assert result.tolist() == array.tolist()


GENERATORS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("kind", GENERATORS)
def test_generators_draw_and_spawn_the_same(kind: type) -> None:
    generator = np.random.Generator(kind(11))
    generator.spawn(2)
    generator.integers(5, dtype=np.uint32)  # buffers half of a 64-bit draw
    result = carried_over(generator)
    assert result is not generator
    assert result.spawn(1)[0].random() == generator.spawn(1)[0].random()
    assert [result.integers(100, dtype=np.uint32) for _ in range(9)] == [
        generator.integers(100, dtype=np.uint32) for _ in range(9)
    ]


def test_generators_of_the_older_kinds_draw_the_same() -> None:
    older, numpys = random.Random(3), np.random.RandomState(4)
    older.gauss(0, 1), numpys.standard_normal()  # each buffers a second draw
    result, numpys_result = carried_over((older, numpys))
    assert [result.gauss(0, 1) for _ in range(5)] == [older.gauss(0, 1) for _ in range(5)]
    assert numpys_result.standard_normal(5).tolist() == numpys.standard_normal(5).tolist()


def test_functions_stay_and_must_be_the_same() -> None:
    assert carried_over(len, now=len) is len
    assert carried_over({"f": np.sin}, now={"f": np.sin}) == {"f": np.sin}
    with pytest.raises(StateError, match=r"Holder\.value is len in the state, and sum in this environment"):
        carried_over(len, now=sum)
    with pytest.raises(StateError, match=r"is len in the state"):
        carried_over([len], now=[])


def test_settings_keep_their_paths_and_get_their_numbers() -> None:
    result = carried_over(Settings(3, Path("there"), (0.5,)), now=Settings(1, Path("here")))
    assert result == Settings(3, Path("here"), (0.5,))
    with pytest.raises(StateError, match="Settings in the state, and None here"):
        carried_over(Settings(3, Path("there")), now=None)


# ---- identity and memory ----


class Keeper(gymnasium.Wrapper):
    """A wrapper with the given attributes."""

    def __init__(self, env: gymnasium.Env, **values: Any) -> None:
        super().__init__(env)
        vars(self).update(values)


def test_a_setting_newer_than_the_state_stays_as_built() -> None:
    """A later version of an environment may have more settings, with defaults."""
    state = capture(Holder(value=Settings(3, Path("a"), (1.0,))))
    fields = state["layers"][0]["attributes"]["value"]["fields"]
    del fields["weights"]
    fresh = Holder(value=Settings(4, Path("a"), (2.0,)))
    restore(fresh, state)
    assert fresh.value == Settings(3, Path("a"), (2.0,))
    del fields["size"]  # has no default
    with pytest.raises(StateError, match="damaged"):
        restore(fresh, state)


def test_what_two_layers_share_is_shared_again() -> None:
    state, log, generator = np.zeros(3), [1], np.random.default_rng(1)
    log.append(log)  # a cycle
    inner = Holder(state=state, log=log, generator=generator)
    original = Keeper(inner, last=state, seen=(log,), generator=generator, base=inner)
    fresh = Keeper(Holder())
    restore(fresh, through_files(capture(original)))
    assert fresh.last is fresh.env.state
    assert fresh.seen[0] is fresh.env.log
    assert fresh.env.log[1] is fresh.env.log
    assert fresh.generator is fresh.env.generator
    assert fresh.base is fresh.env


@pytest.mark.parametrize("loop", [deque(), {1: None}, OrderedDict()], ids=repr)
def test_a_container_that_contains_itself_does_so_again(loop: Any) -> None:
    loop.append([loop]) if isinstance(loop, deque) else loop.update({1: [loop]})
    result = carried_over(loop)
    assert type(result) is type(loop)
    assert (result[0] if isinstance(result, deque) else result[1])[0] is result


def test_views_see_the_memory_of_others_again() -> None:
    memory = np.arange(12.0)
    grid = memory.reshape(3, 4)
    original = Keeper(Holder(memory=memory), row=grid[1], backwards=grid[:, ::-1], apart=np.zeros(2))
    fresh = Keeper(Holder())
    restore(fresh, through_files(capture(original)))
    fresh.env.memory[4] = -1
    assert fresh.row.tolist() == [-1, 5, 6, 7]
    assert fresh.backwards.tolist() == [[3, 2, 1, 0], [7, 6, 5, -1], [11, 10, 9, 8]]
    fresh.row[3] = -2
    assert fresh.env.memory[7] == -2


def test_views_of_memory_in_an_unusual_order_see_it_again() -> None:
    frame = np.arange(60.0).reshape(4, 5, 3).transpose(1, 0, 2).copy(order="K")
    fresh = Holder()
    restore(fresh, through_files(capture(Holder(frame=frame, corner=frame[2:4, 1]))))
    assert as_bytes(fresh.corner) == as_bytes(frame[2:4, 1])
    fresh.frame[3, 1] = -1
    assert fresh.corner.tolist() == [frame[2, 1].tolist(), [-1, -1, -1]]


def test_views_that_do_not_overlap_take_only_their_part() -> None:
    large = np.zeros(10_000)
    state = capture(Holder(first=large[:2], second=large[5:7], third=large[20:30:5]))
    assert state["memory"] == []
    assert state["layers"][0]["attributes"]["first"]["value"].nbytes == 16


def test_setting_a_state_leaves_constants_alone() -> None:
    constant = np.zeros(3)
    moved = Holder(state=constant.copy())
    moved.state += 1
    fresh = Holder(state=constant)
    restore(fresh, capture(moved))
    assert fresh.state.tolist() == [1, 1, 1]
    assert constant.tolist() == [0, 0, 0]


def test_memory_of_a_simulator_is_written_in_place() -> None:
    buffer = bytearray(16)
    fresh = Holder(screen=np.frombuffer(buffer, np.float64))
    elsewhere = bytearray(np.array([1.5, 2.5]).tobytes())
    restore(fresh, capture(Holder(screen=np.frombuffer(elsewhere, np.float64))))
    assert np.frombuffer(bytes(buffer), np.float64).tolist() == [1.5, 2.5]


# ---- refused values ----


@dataclasses.dataclass
class Mutable:
    x: int = 0


class OwnList(list):
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (Mutable(), "Mutable"),
        (iter([]), "list_iterator"),
        (OwnList(), "OwnList"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (np.zeros(1, "i4,f4"), "array of type"),
        (gymnasium.make("CartPole-v1"), "TimeLimit"),
        (defaultdict(lambda: 0), "defaultdict of"),
        (Move.UP | Move.LEFT, "combination of flags"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_state_that_is_not_plain_data_is_named(value: Any, named: str) -> None:
    env = wrappers.TimeLimit(Holder(deep={"list": [0, value]}), 5)
    with pytest.raises(StateError, match=rf"Holder\.deep\['list'\]\[1\] .*{named}") as error:
        capture(env)
    assert "hint: " in str(error.value)
    assert "get_state()" in str(error.value)


def test_an_enumeration_that_no_other_process_finds_is_refused() -> None:
    class Local(enum.Enum):
        ONE = 1

    with pytest.raises(StateError, match=r"Holder\.value .*Local, which another process could not find"):
        capture(Holder(value=Local.ONE))


def test_a_class_without_a_module_is_named() -> None:
    class NoModule(type):
        __module__ = property()  # type: ignore[assignment]  # as for some classes of C libraries: reading it fails

    with pytest.raises(StateError, match=r"Holder\.value is of type .*Handle, which is not plain data"):
        capture(Holder(value=NoModule("Handle", (), {})()))


def evil(*_: Any) -> None:
    raise AssertionError("code was run")


class Trap(tuple):
    """A tuple whose construction would run code."""

    __slots__ = ()
    _fields = ()
    __new__ = evil


@pytest.mark.parametrize(
    "data",
    [
        {"$": "pickle", "value": "cos\nsystem\n"},
        {"$": ["tuple"]},
        {"$": "tuple"},
        {"$": "tuple", "items": 3},
        {"$": "same", "place": "Holder.nowhere"},
        {"$": "constant", "description": "evil"},
        {"$": "enum", "class": "os:system", "name": "x"},
        {"$": "enum", "class": "not_loaded_module:Colour", "name": "RED"},
        {"$": "named tuple", "class": "subprocess:Popen", "items": ["true"]},
        {"$": "mapping", "type": "defaultdict", "factory": "eval", "keys": [], "values": []},
        {"$": "generator", "state": {"bit_generator": "Popen"}, "seed": None},
        {"$": "scalar", "dtype": "O", "value": 1},
        {"$": "array", "value": np.zeros(8, np.uint8), "dtype": "O", "shape": [1], "foreign": False},
        {"$": "array", "value": np.array([evil], object), "foreign": False},
        {"$": "array", "memory": 0, "dtype": "<f8", "shape": [9], "strides": [8], "offset": 0},
        {"$": "array", "memory": 0, "dtype": "<f8", "shape": [2], "strides": [8], "offset": -8},
        {"$": "object", "class": "subprocess.Popen", "attributes": {}},
        {"$": "frozen", "class": "subprocess.Popen", "fields": {}},
        np.zeros(2),
        (1, 2),
    ],
    ids=lambda data: str(data).partition(" at 0x")[0],  # the same in every process
)
def test_data_that_capture_never_writes_is_refused(data: Any) -> None:
    state = capture(Holder(value=1))
    state["memory"] = [{"value": np.zeros(2)}]
    state["layers"][0]["attributes"]["value"] = data
    with pytest.raises(StateError):
        restore(Holder(value=1), state)


def test_reading_a_named_tuple_runs_no_constructor() -> None:
    state = capture(Holder(value=Point(1, 2)))
    state["layers"][0]["attributes"]["value"]["class"] = f"{__name__}:Trap"
    sys.modules.setdefault(__name__, sys.modules[Holder.__module__])
    fresh = Holder(value=None)
    restore(fresh, state)
    assert type(fresh.value) is Trap
