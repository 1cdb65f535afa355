"""The backends that every fleet test runs on, and byte-exact comparison of results."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tests.fleet.loop_back import use_loop_back

BACKENDS: dict[str, dict[str, Any]] = {
    "sequential": {"backend": "sequential"},
    "threads": {"backend": "threads", "workers": 2},
    "spawn": {"backend": "processes", "workers": 2, "start_method": "spawn"},
    "fork": {"backend": "processes", "workers": 2, "start_method": "fork"},
    "forkserver": {"backend": "processes", "workers": 2, "start_method": "forkserver"},
    "caller-run": {"backend": "processes", "workers": 2, "start_method": "fork", "trusted": True},
    "portable": {"backend": "processes", "workers": 2, "start_method": "fork"},
    "loop-back": {"backend": "threads", "workers": 2, "start_method": "spawn"},  # workers share nothing, as spawned
    "loop-back-hosts": {"backend": "threads", "workers": 2, "start_method": "spawn"},
}
ALL_TESTS = [name for name in BACKENDS if name != "loop-back-hosts"]  # whose workers start slowly
PROCESSES = ["spawn", "fork", "forkserver", "portable", "loop-back-hosts"]


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of make() for each backend.

    'portable' forces the fallbacks for Linux-only calls; 'loop-back' has no shared memory.
    """
    return use(request.param, monkeypatch)


@pytest.fixture
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of make() for each way to start worker processes."""
    return use(request.param, monkeypatch)


def run_on_backends(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses one of the fixtures on every backend.

    A spawned worker imports for half a second of CPU time, and behaves like a forked one from then on. So `make test`
    spawns workers in a quarter of the tests only, chosen by name. `make proof` runs the rest.
    """
    spawns = crc32(metafunc.function.__name__.encode()) % 4 == 0
    own = str([marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")])
    for fixture, names in (("backend", ALL_TESTS), ("processes", PROCESSES)):
        if fixture in metafunc.fixturenames and fixture not in own:
            marks = {"spawn": () if spawns else (pytest.mark.proof,)}
            cases = [pytest.param(name, marks=marks.get(name, ())) for name in names]
            metafunc.parametrize(fixture, cases, indirect=True)


def use(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    if name == "portable":
        monkeypatch.setenv("ENVFLEET_PORTABLE", "1")
    if name.startswith("loop-back"):
        use_loop_back(name, monkeypatch)
    return dict(BACKENDS[name])


def same(one: Any, other: Any) -> bool:
    """Whether two (nested) results are equal to the byte, including their types."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        if not isinstance(other, np.ndarray) or one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype == object:
            return all(map(same, one.tolist(), other.tolist()))
        return one.tobytes() == other.tobytes()
    if isinstance(one, int | np.integer) and isinstance(other, int | np.integer):
        return int(one) == int(other)  # a Discrete observation may be either
    return bool(one == other) and type(one) is type(other)


def trace(env: Any, steps: int, seed: int) -> list[Any]:
    """Return everything that a vector environment returns for seeded actions."""
    env.action_space.seed(seed)
    results: list[Any] = [env.reset(seed=seed)]
    results += [env.step(env.action_space.sample()) for _ in range(steps)]
    return results
