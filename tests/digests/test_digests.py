"""Results of fixed short runs are pinned, so that an unintended change is noticed at once.

The bits depend on the CPU and on the torch build. So digests are pinned per fingerprint of the arithmetic, and unknown
machines skip. Equal weights on every backend hold everywhere; `tests/training/test_same_weights.py` tests that.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.digests import pinned
from tests.digests.fingerprint import computes_with, fingerprint
from tests.digests.runs import RUNS, digest_of


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    """The pinned digests of this machine."""
    table, machine = pinned.read(), fingerprint()
    if machine not in table:
        pytest.skip(
            f"no digests are pinned for the arithmetic of this machine (fingerprint {machine}: {computes_with()}); "
            "`make digests` at a commit that is known to be good pins them"
        )
    known: dict[str, str] = table[machine]["digests"]
    return known


@pytest.mark.parametrize("name", RUNS)
def test_results_are_what_they_were(tmp_path: Path, digests: dict[str, str], name: str) -> None:
    if name not in digests:
        pytest.skip(f"the results of {name} changed on another machine; `make digests` pins those of this one")
    received = digest_of(name, tmp_path / "run")
    if received != digests[name]:
        pytest.fail(
            f"the weights of the run {name!r} have changed: expected the digest {digests[name]}, received {received}\n"
            "if that is on purpose: `make digests`, and a line in CHANGELOG.md",
            pytrace=False,
        )


def test_every_run_is_pinned_on_some_machine() -> None:
    known = {name for entry in pinned.read().values() for name in entry["digests"]}
    assert known == set(RUNS), "`make digests` pins them"


def test_digests_are_equal_where_only_the_actor_differs() -> None:
    for entry in pinned.read().values():
        digests = dict(entry["digests"])
        if {"ppo", "ppo-central"} <= digests.keys():
            assert digests["ppo"] == digests.pop("ppo-central")
        assert len(set(digests.values())) == len(digests)


def test_the_fingerprint_is_always_the_same() -> None:
    first = fingerprint()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert fingerprint() == first
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_a_run_that_changed_here_is_dropped_elsewhere() -> None:
    table = {
        "here": {"computes with": "a", "digests": {"same": "1", "changed": "2", "gone": "3"}},
        "there": {"computes with": "b", "digests": {"same": "4", "changed": "5", "gone": "6"}},
    }
    after, said = pinned.renewed(table, "here", "a", {"same": "1", "changed": "7", "new": "8"})
    assert after == {
        "here": {"computes with": "a", "digests": {"same": "1", "changed": "7", "new": "8"}},
        "there": {"computes with": "b", "digests": {"same": "4"}},
    }
    assert said == [
        "changed: 2 became 7",
        "new: 8 is new on this machine",
        "gone: there is no such run any more",
        "digests as before: 1",
        "results have changed: a line in CHANGELOG.md says which and why",
        "`make digests` is due on the machine there too (b)",
    ]


def test_a_new_machine_leaves_the_others_as_they_are() -> None:
    table = {"there": {"computes with": "b", "digests": {"same": "4"}}}
    after, said = pinned.renewed(table, "here", "a", {"same": "1"})
    assert after == {**table, "here": {"computes with": "a", "digests": {"same": "1"}}}
    assert said == ["same: 1 is new on this machine", "digests as before: 0"]
