"""Settings and fixtures for all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from envfleet.fleet import hosting, watch
from envfleet.fleet.backends import processes, sequential
from envfleet.fleet.spec import Timeouts
from envfleet.signals import ENDING

# The same examples in every run, without a deadline: neither luck nor load decides.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A shell makes background programs ignore Ctrl-C, and nohup makes them ignore SIGHUP. Tests send both, also to programs
# that they start, which inherit what is ignored.
for _number in ENDING:
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, run slow tests first, so that none of them runs alone at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(params=[None, pytest.param("spawn", marks=pytest.mark.proof)], ids=["default", "spawn"])
def start_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """How worker processes start by default, for tests to which it does not matter: `make proof` also spawns them."""
    if request.param is not None:
        for module in (hosting, processes):
            monkeypatch.setattr(module, "default_start_method", lambda: request.param)
    return request.param


@pytest.fixture
def limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Apply time limits only while an environment is slow on purpose; return the mark for `tests.hanging`.

    On a busy machine an ordinary step can take longer than any limit that a test wants to wait for. Ordinary steps are
    exempt, so the limit can be short.
    """
    mark = tmp_path / "takes-long"
    limit_of = watch.limit_of

    def limit_while_marked(phase: int, timeouts: Timeouts) -> tuple[str, float | None]:
        operation, limit = limit_of(phase, timeouts)
        return operation, limit if _takes_long(mark) else None

    for module in (watch, sequential):
        monkeypatch.setattr(module, "limit_of", limit_while_marked)
    return mark


def _takes_long(mark: Path) -> bool:
    """Whether the process that left the mark still exists: a hung one is killed and cannot remove its mark."""
    try:
        pid = mark.read_text()
    except FileNotFoundError:
        return False
    return bool(pid) and psutil.pid_exists(int(pid))
