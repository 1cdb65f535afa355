"""`envfleet doctor --address`: what it says about the nodes of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envfleet import cli
from envfleet.cli import doctor
from envfleet.cli.doctor_cluster import diagnose_cluster
from envfleet.cli.findings import Finding
from envfleet.fleet.cluster import HostFacts, Node, NodeSurvey
from envfleet.fleet.numerics import Numerics

OURS = HostFacts({"python": "3.11.7", "numpy": "2.4.6"}, Numerics("Zen 4", "a", "b", "c", "openblas SkylakeX"))
NODE = Node("1", "10.0.0.2", 8, 6)


def findings(facts: Any, *, node: Node = NODE, token: bool = True) -> list[Any]:
    return diagnose_cluster([NodeSurvey(NODE, OURS), NodeSurvey(node, facts)], token=token, ours=OURS)


def test_a_healthy_cluster() -> None:
    found = findings(OURS, node=Node("2", "10.0.0.3", 4, 4))
    assert [finding.severity for finding in found] == ["ok"] * 5
    assert found[0].text == "2 nodes, 12 CPUs, 10 free"
    assert found[3].text == "python 3.11.7, numpy 2.4.6; the same on all nodes"


@pytest.mark.parametrize(
    ("facts", "severity", "text", "advice"),
    [
        (replace(OURS, versions={**OURS.versions, "numpy": "2.0.0"}), "problem", "has numpy 2.0.0", "numpy==2.4.6"),
        (replace(OURS, versions={"python": "3.11.7"}), "problem", "does not have numpy", "numpy==2.4.6"),
        (
            replace(OURS, numerics=replace(OURS.numerics, blas="x", kernels="openblas Haswell")),
            "warn",
            "computes differently in BLAS (openblas Haswell)",
            "--numerics portable",
        ),
        ("No module named 'envfleet'", "problem", "No module named 'envfleet'", "install envfleet"),
    ],
)
def test_a_node_that_does_not_fit(facts: Any, severity: str, text: str, advice: str) -> None:
    *_, finding, versions, _ = findings(facts)
    assert versions.text.endswith("the same on all nodes" if severity == "warn" else "; not the same on 10.0.0.2")
    assert finding.severity == severity
    assert text in finding.text and advice in finding.advice


def test_a_cluster_that_is_open_or_full() -> None:
    full = Node("1", "10.0.0.2", 8, 0)
    found = diagnose_cluster([NodeSurvey(full, OURS)], token=False, ours=OURS)
    assert [finding.severity for finding in found] == ["warn", "ok", "ok", "warn"]
    assert "run code as you" in found[-1].text and "RAY_AUTH_MODE=token" in found[-1].advice


def test_there_is_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Without Ray it says how to install it, otherwise that nothing answers."""
    assert cli.main(["doctor", "--address", "ray://127.0.0.1:10001"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Ray's client protocol" in said or 'pip install "envfleet[ray]"' in said


def test_a_problem_of_the_cluster_is_none_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fleets without a cluster still run, and the last line must not deny it."""
    monkeypatch.setattr(doctor, "diagnose", lambda facts: [Finding("warn", "memory", "little")])
    assert cli.main(["doctor", "--address", "ray://127.0.0.1:10001"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "fleets run on this machine, but not on the cluster until its problem is solved"
    monkeypatch.setattr(doctor, "diagnose", lambda facts: [Finding("problem", "shared memory", "none")])
    assert cli.main(["doctor", "--address", "ray://127.0.0.1:10001"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "no fleet can run here until the problem is solved"
