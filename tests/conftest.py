"""What holds for the tests of every folder."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from envfleet.fleet import watch
from envfleet.fleet.places import sequential
from envfleet.fleet.plan import Timeouts

# The same examples in every run, however long they take: neither luck nor load decides.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# A shell that starts the suite in the background lets it ignore Ctrl-C, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes the slow tests come first, so that none is left to one of them at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Time limits hold only while an environment takes long on purpose; returns the mark for `tests.hanging`.

    An ordinary step can take longer on a busy machine than any limit that a test would like to wait for. So it is not
    under the limit, which can then be short.
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
    """Whether the process that left the mark is still there: one that hung is killed and cannot remove it."""
    try:
        pid = mark.read_text()
    except FileNotFoundError:
        return False
    return bool(pid) and psutil.pid_exists(int(pid))
