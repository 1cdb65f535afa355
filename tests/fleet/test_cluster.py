"""Dividing workers over nodes, what must agree between them, and the numeric fingerprint."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import ResourceError, SettingsError
from envfleet.fleet.cluster import (
    ClusterSettings,
    HostFacts,
    HostLoad,
    Node,
    check_hosts,
    divide,
    next_move,
    reason_of_loss,
    share_out,
)
from envfleet.fleet.numerics import measure_numerics


def nodes(*free: int, cpus: int = 8) -> list[Node]:
    return [Node(str(i), f"10.0.0.{i}", cpus, count) for i, count in enumerate(free)]


@pytest.mark.parametrize(
    ("workers", "free", "counts"),
    [
        (4, (8, 8), [2, 2]),
        (16, (8, 8), [8, 8]),
        (5, (8, 2, 0), [5]),
        (8, (8, 2, 0), [7, 1]),
        (1, (1, 8), [1]),
    ],
)
def test_workers_are_spread_by_free_cpus(workers: int, free: tuple[int, ...], counts: list[int]) -> None:
    plan = divide(workers, nodes(*free))
    assert [len(hosted) for _, hosted in plan] == counts
    assert [worker for _, hosted in plan for worker in hosted] == list(range(workers))
    assert all(len(hosted) <= node.free for node, hosted in plan)


def test_more_workers_than_cpus_are_refused_with_the_numbers() -> None:
    with pytest.raises(ResourceError, match=r"16 workers were asked for, but the cluster has 16 CPUs, of which 4 are"):
        divide(16, nodes(6, 6))
    with pytest.raises(ResourceError, match="hint: wait until CPUs are free"):
        divide(1, nodes(0))


@pytest.mark.parametrize(
    ("workers", "free", "counts"), [(8, (2, 2), [4, 4]), (5, (3, 1, 0), [4, 1]), (2, (2, 2), [1, 1]), (3, (1,), [3])]
)
def test_workers_beyond_the_cpus_are_spread_too(workers: int, free: tuple[int, ...], counts: list[int]) -> None:
    assert [len(hosted) for _, hosted in divide(workers, nodes(*free), overcommit=True)] == counts
    with pytest.raises(ResourceError, match="hint: wait until CPUs are free"):
        divide(workers, nodes(0), overcommit=True)


@pytest.mark.parametrize(
    ("hosts", "free", "move"),
    [
        ([(2, 2), (2, 2)], (0, 0, 4), None),  # every worker has a CPU
        ([(2, 4)], (0, 1, 4), ((2, 3), 2)),
        ([(2, 4)], (0, 1), ((3,), 1)),
        ([(2, 4)], (2,), None),  # it is on that node already
        ([(2, 4), (0, 2)], (0, 0, 1), ((5,), 2)),  # the drained node first
        ([(2, 2), (0, 2)], (0, 0), ((2, 3), None)),  # to one of the other hosts
        ([(0, 0)], (0,), None),
    ],
)
def test_workers_move_to_free_cpus_and_away_from_drained_nodes(
    hosts: list[tuple[int, int]], free: tuple[int, ...], move: Any
) -> None:
    """Host i is on node i; it has some CPUs and the next workers."""
    loads, first = [], 0
    for i, (cpus, workers) in enumerate(hosts):
        loads.append(HostLoad(str(i), cpus, tuple(range(first, first + workers))))
        first += workers
    found = next_move(loads, nodes(*free))
    assert (found and (found[0], found[1] and int(found[1].id))) == move


@pytest.mark.parametrize(
    ("hosts", "workers", "expected"),
    [
        ([(2, 2), (2, 2)], [4, 5], [0, 1]),
        ([(2, 2), (2, 2)], [4, 5, 6], [0, 1, 0]),
        ([(2, 2), (8, 8)], [10, 11, 12, 13, 14], [1, 1, 1, 0, 1]),  # 1.5 workers per CPU on both
        ([(2, 4), (2, 2)], [6, 7, 8], [1, 1, 0]),
        ([(4, 2)], [2, 3], [0, 0]),
    ],
)
def test_workers_are_shared_out_by_load(hosts: list[tuple[int, int]], workers: list[int], expected: list[int]) -> None:
    """Hosts are given as CPUs and workers; a slow host would slow every rollout."""
    loads = [HostLoad(str(number), cpus, range(count)) for number, (cpus, count) in enumerate(hosts)]
    assert share_out(workers, loads) == dict(zip(workers, expected, strict=True))


def test_torch_is_measured_only_where_it_is_loaded() -> None:
    """A worker that only steps must not load it."""
    program = (
        "import sys\n"
        "from envfleet.fleet.numerics import measure_numerics, measure_torch\n"
        "without = measure_numerics(), measure_torch()\n"
        "assert 'torch' not in sys.modules and without[0].torch == without[1] == ''\n"
        "import torch\n"
        "one = measure_torch()\n"
        "torch.set_num_threads(2)\n"
        "from envfleet.fleet import numerics\n"
        "numerics._torch_digest.cache_clear()\n"
        "assert one == measure_torch() == measure_numerics().torch, 'it depends on threads'\n"
        "assert torch.get_num_threads() == 2\n"
        "torch.tanh = torch.sin\n"
        "numerics._torch_digest.cache_clear()\n"
        "assert len(one) == numerics.LENGTH and measure_torch() != one\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_difference_of_torch_is_named_if_both_have_loaded_it() -> None:
    ours = replace(measure_numerics(), torch="a")
    assert replace(ours, torch="b").differences(ours) == ["torch"]
    assert replace(ours, torch="").differences(ours) == ours.differences(replace(ours, torch="")) == []


def test_the_fingerprint_is_the_same_twice_and_names_what_differs() -> None:
    found = measure_numerics()
    assert found == measure_numerics()
    assert replace(found, blas="other", libm="other").differences(found) == ["BLAS", "the C library"]


def test_the_facts_of_a_process_are_measured_once() -> None:
    """Each measurement by a new thread, one for every host that joins, would take megabytes."""
    assert HostFacts.of_this_process() is HostFacts.of_this_process()


@pytest.mark.parametrize(
    ("library", "hint"),
    [("numpy", ": pip install numpy==[^ ]+"), ("ray", ": pip install ray==[^ ]+"), ("python", "")],
)
def test_other_versions_are_refused(library: str, hint: str) -> None:
    ours = HostFacts.of_this_process()
    if library not in ours.versions:
        pytest.skip(f"{library} is not installed")
    theirs = replace(ours, versions={**ours.versions, library: "1.0"})
    said = rf"node b has {library} 1\.0, expected .*\nhint: install the same versions on every node{hint}$"
    with pytest.raises(SettingsError, match=said):
        check_hosts([("a", ours), ("b", theirs)], ClusterSettings())


def test_other_arithmetic_is_a_warning_an_error_or_compared_among_nodes(caplog: pytest.LogCaptureFixture) -> None:
    ours = HostFacts.of_this_process()
    theirs = replace(ours, numerics=replace(ours.numerics, numpy="other"))
    with caplog.at_level(logging.WARNING, "envfleet"):
        check_hosts([("a", ours), ("b", theirs)], ClusterSettings())
        assert "node b" in caplog.text and "computes differently in NumPy" in caplog.text
        caplog.clear()
        check_hosts([("a", theirs), ("b", theirs)], ClusterSettings(numerics="portable"))
        assert not caplog.text
    with pytest.raises(SettingsError, match=r"node b .* computes differently"):
        check_hosts([("a", ours), ("b", theirs)], ClusterSettings(numerics="strict"))


@pytest.mark.parametrize(
    ("error", "text", "words"),
    [
        ("OutOfMemoryError", "", "node n is out of memory (use fewer workers or smaller environments)"),
        ("ActorDiedError", "received SIGTERM", "node n was stopped"),
        ("ActorDiedError", "The actor is dead because its node has died.", "node n is lost (ActorDiedError)"),
        ("ActorDiedError", "because its worker process has died.", "the host process on node n has died"),
        ("ActorUnavailableError", "", "node n is lost (ActorUnavailableError)"),
    ],
)
def test_why_a_host_is_lost(error: str, text: str, words: str) -> None:
    assert reason_of_loss("n", error, text) == words


@pytest.mark.parametrize(
    ("content", "expected"),
    [("env_vars: {A: b}", {"env_vars": {"A": "b"}}), ('{"pip": ["x"]}', {"pip": ["x"]}), ("- a", None), (": {", None)],
)
def test_a_runtime_environment_is_a_mapping_in_a_file(content: str, expected: Any, tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(content)
    settings = ClusterSettings(runtime_env=str(file))
    if expected is None:
        with pytest.raises(SettingsError, match="runtime_env: "):
            settings.read_runtime_env()
    else:
        assert settings.read_runtime_env() == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"env_vars:", "env_vars in .* is None, expected a mapping of names to values\nhint: write env_vars: {NAME"),
        (b"env_vars: [A]", r"env_vars in .* is \['A'\], expected a mapping"),
        (b"env_vars: {FOO: 1}", 'has \'FOO\': 1, expected text for both\nhint: write quotation marks: "FOO": "1"'),
        (b"env_vars: {1: FOO}", "has 1: 'FOO', expected text for both"),
        (b"working_dir: .", "working_dir in .* has '.', expected the address of an archive .*\nhint: your own modules"),
        (b"working_dir: [a]", r"working_dir in .* has \['a'\], expected the address"),
        (b"py_modules: [s3://a/b.zip, /home/me/code]", "py_modules in .* has '/home/me/code', expected the address"),
        (b"py_modules: code", "py_modules in .* is 'code', expected a list\nhint: "),
        (b"pip: [\xe4\xff]", "cannot be read: 'utf-8' codec .*\nhint: it must be a YAML or JSON file in UTF-8"),
    ],
)
def test_mistakes_in_a_runtime_environment_are_named(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"runtime_env: .*{words}"):
        ClusterSettings(runtime_env=str(file)).read_runtime_env()


def test_archives_for_all_nodes_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("working_dir: https://example.com/a.zip\npy_modules: ['s3://bucket/b.zip']\npip:\n")
    assert ClusterSettings(runtime_env=str(file)).read_runtime_env()["working_dir"] == "https://example.com/a.zip"


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="expected one of warn, strict, portable"):
        ClusterSettings(numerics="loose")
    with pytest.raises(SettingsError, match="client protocol"):
        ClusterSettings("ray://10.0.0.1:10001")
