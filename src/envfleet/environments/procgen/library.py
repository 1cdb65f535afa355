"""The C library of openai/procgen through ctypes: one game per handle.

The interface is gym3's `libenv.h`. A handle gets its buffers once and writes into them at every step. We give the
library no threads, so it steps in the calling thread. ctypes releases the GIL meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char, c_char_p, c_float, c_int, c_int32, c_uint8, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from envfleet.errors import MissingExtraError, StateError
from envfleet.extras import PROCGEN_MODULES, procgen_installation

__all__ = ["PICTURE", "SCREEN", "Game", "find_library"]

PICTURE = (64, 64, 3)
SCREEN = (512, 512, 3)
_VERSION = 1
_ACTIONS = 15
_FORCED_RESET = -1
_LARGEST_STATE = 2**20
_UINT8, _INT32 = 1, 2  # enum libenv_dtype


class _Option(Structure):
    _fields_ = [("name", c_char * 128), ("dtype", c_int), ("count", c_int), ("data", c_void_p)]


class _Options(Structure):
    _fields_ = [("items", POINTER(_Option)), ("count", c_int)]


class _Buffers(Structure):
    _fields_ = [
        ("ob", POINTER(c_void_p)),
        ("rew", POINTER(c_float)),
        ("first", POINTER(c_uint8)),
        ("info", POINTER(c_void_p)),
        ("ac", POINTER(c_void_p)),
    ]


def find_library() -> Path:
    """The file of the library. Raises MissingExtraError if no package has it."""
    name = "libenv.dylib" if sys.platform == "darwin" else "libenv.so"
    for module in PROCGEN_MODULES:
        spec = importlib.util.find_spec(module)  # not imported: the packages require gym and gym3
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            file = Path(folder) / "data" / "prebuilt" / name
            if file.is_file():
                return file
    raise MissingExtraError("Procgen's library is not installed", hint=procgen_installation())


@functools.cache
def _library() -> tuple[ctypes.CDLL, Path]:
    """Load the library once per process. Also returns the folder of its images."""
    file = find_library()
    return _declared(ctypes.CDLL(str(file), mode=os.RTLD_LOCAL | os.RTLD_NOW)), file.parents[1] / "assets"


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    library.libenv_make.restype = c_void_p
    library.libenv_make.argtypes = [c_int, _Options]
    library.libenv_set_buffers.argtypes = [c_void_p, POINTER(_Buffers)]
    library.get_state.argtypes = [c_void_p, c_int, c_char_p, c_int]
    library.set_state.argtypes = [c_void_p, c_int, c_char_p, c_int]
    for function in (library.libenv_act, library.libenv_observe, library.libenv_close, library.libenv_set_buffers):
        function.restype = None
    for function in (library.libenv_act, library.libenv_observe, library.libenv_close):
        function.argtypes = [c_void_p]
    library.set_state.restype = None
    version = library.libenv_version()
    if version != _VERSION:
        raise MissingExtraError(
            f"Procgen's library speaks version {version} of its interface, expected {_VERSION}",
            hint=procgen_installation(),
        )
    return library


class Game:
    """One game of the library. After an end it starts the next level at once."""

    def __init__(self, game: str, seed: int, options: Mapping[str, int | bool], *, draws_screen: bool) -> None:
        self._library, assets = _library()
        self.picture: NDArray[np.uint8] = np.zeros(PICTURE, np.uint8)  # the observation
        self.screen: NDArray[np.uint8] | None = np.zeros(SCREEN, np.uint8) if draws_screen else None
        self._reward, self._first, self._action = c_float(), c_uint8(), c_int32()
        self._previous_level, self._complete, self._level = c_int32(), c_uint8(), c_int32()
        given: dict[str, int | bool | str] = {
            "env_name": game,
            "num_actions": _ACTIONS,
            "rand_seed": seed,
            "num_threads": 0,
            "render_human": draws_screen,
            "resource_root": f"{assets}{os.sep}",  # read when the first game of the process is made
            **options,
        }
        in_c, kept = _options_of(given)
        self._handle: c_void_p | None = c_void_p(self._library.libenv_make(1, in_c))
        del kept
        pointers = [ctypes.addressof(info) for info in (self._previous_level, self._complete, self._level)]
        if self.screen is not None:
            pointers.append(self.screen.ctypes.data)
        buffers = _Buffers(
            (c_void_p * 1)(self.picture.ctypes.data),
            ctypes.pointer(self._reward),
            ctypes.pointer(self._first),
            (c_void_p * len(pointers))(*pointers),
            (c_void_p * 1)(ctypes.addressof(self._action)),
        )
        self._library.libenv_set_buffers(self._handle, ctypes.byref(buffers))
        self._act = self._library.libenv_act

    def step(self, action: int) -> tuple[float, bool]:
        """Return the reward and whether the episode ended. After an end, `picture` is the first of the next episode."""
        self._action.value = action
        self._act(self._handle)
        return self._reward.value, self._first.value != 0

    def begin_next(self) -> None:
        """Abandon the current level and start the next one."""
        self.step(_FORCED_RESET)

    @property
    def level(self) -> int:
        """Number of the current level."""
        return self._level.value

    @property
    def solved(self) -> bool:
        """Whether the last step solved a level."""
        return self._complete.value != 0

    def draw_screen(self) -> NDArray[np.uint8]:
        """Return the large image for human viewers."""
        assert self.screen is not None, "made without a screen"
        self._library.libenv_observe(self._handle)
        return self.screen.copy()

    def save(self) -> bytes:
        data = ctypes.create_string_buffer(_LARGEST_STATE)
        size = self._library.get_state(self._handle, 0, data, _LARGEST_STATE)
        return data.raw[:size]

    def load(self, state: bytes) -> None:
        """Restore a state of the same game. The library aborts the process on any other state."""
        if not isinstance(state, bytes) or len(state) > _LARGEST_STATE:
            raise StateError(f"received a state of the game that is {type(state).__name__}, expected bytes")
        self._library.set_state(self._handle, 0, state, len(state))

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.libenv_close(handle)


def _options_of(values: Mapping[str, int | bool | str]) -> tuple[_Options, list[object]]:
    """The options in the library's form, and the objects to keep alive until the library has read them."""
    items = (_Option * len(values))()
    kept: list[object] = [items]
    for item, (name, value) in zip(items, values.items(), strict=True):
        memory: ctypes.Array[c_uint8] | c_uint8 | c_int32
        if isinstance(value, str):
            data = value.encode()
            memory, item.dtype, item.count = (c_uint8 * len(data))(*data), _UINT8, len(data)
        elif isinstance(value, bool):
            memory, item.dtype, item.count = c_uint8(value), _UINT8, 1
        else:
            memory, item.dtype, item.count = c_int32(value), _INT32, 1
        item.name, item.data = name.encode(), ctypes.addressof(memory)
        kept.append(memory)
    return _Options(items, len(values)), kept
