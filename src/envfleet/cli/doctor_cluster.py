"""What `envfleet doctor --address` says about a cluster: nodes, versions, numerics, authentication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from envfleet.cli.findings import Finding
from envfleet.errors import EnvfleetError, SettingsError
from envfleet.fleet.cluster import ClusterSettings, HostFacts, Node, NodeSurvey, refuse_other_versions

__all__ = ["cluster_findings", "diagnose_cluster"]


def cluster_findings(address: str) -> list[Finding]:
    """Connect to the cluster, ask each node about itself, and return what that means."""
    try:
        from envfleet.fleet.backends.ray_cluster import survey

        nodes, token = survey(ClusterSettings(address))
    except EnvfleetError as error:
        return [Finding("problem", "cluster", str(error).partition("\nhint:")[0], error.hint or "")]
    return diagnose_cluster(nodes, token=token, ours=HostFacts.of_this_process())


def diagnose_cluster(nodes: Sequence[NodeSurvey], *, token: bool, ours: HostFacts) -> list[Finding]:
    """Return one finding for the cluster, one for each node, and those for versions and authentication."""
    cpus, free = sum(each.node.cpus for each in nodes), sum(each.node.free for each in nodes)
    text = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}, {cpus} CPUs, {free} free"
    advice = "" if free else "no worker fits: wait until CPUs are free, or add nodes (ray start --address=HEAD:6379)"
    return [
        Finding("ok" if free else "warn", "cluster", text, advice),
        *(_node(each.node, each.facts, ours) for each in nodes),
        _versions(nodes, ours),
        _authentication(token),
    ]


def _node(node: Node, facts: HostFacts | str, ours: HostFacts) -> Finding:
    subject, text = f"node {node.name}", f"{node.cpus} CPUs, {node.free} free"
    if isinstance(facts, str):
        advice = "install envfleet and the same Python on it, then run this command again"
        return Finding("problem", subject, f"{text}; it does not answer: {facts}", advice)
    text += f"; {facts.numerics.cpu}"
    severity: Literal["ok", "warn", "problem"] = "ok"
    try:
        refuse_other_versions(node.name, facts, ours)
    except SettingsError as error:
        return Finding("problem", subject, f"{text}; {str(error).partition(chr(10))[0]}", error.hint or "")
    different, advice = facts.numerics.differences(ours.numerics), ""
    if different:
        severity, text = "warn", f"{text}; computes differently in {' and '.join(different)} ({facts.numerics.kernels})"
        advice = "--numerics portable uses the same kernels on all nodes; --numerics strict refuses this node"
    return Finding(severity, subject, text, advice)


def _versions(nodes: Sequence[NodeSurvey], ours: HostFacts) -> Finding:
    """The versions on this machine, and whether all nodes have them; the findings of the nodes name differences."""
    listed = ", ".join(f"{library} {version}" for library, version in ours.versions.items())
    others = [each.node.name for each in nodes if not _has_versions(each.facts, ours)]
    where = f"not the same on {', '.join(others)}" if others else "the same on all nodes"
    return Finding("ok", "versions", f"{listed}; {where}")


def _has_versions(facts: HostFacts | str, ours: HostFacts) -> bool:
    return not isinstance(facts, str) and facts.versions.items() >= ours.versions.items()


def _authentication(token: bool) -> Finding:
    if token:
        advice = "it is sent in clear text: use a private network, TLS or a VPN, never the open internet"
        return Finding("ok", "authentication", f"a token is required; {advice}")
    advice = (
        "make one with `ray get-auth-token --generate`, copy ~/.ray/auth_token (mode 600) to every node, and set "
        "RAY_AUTH_MODE=token on all of them before `ray start`"
    )
    return Finding("warn", "authentication", "none: anyone who can reach the ports can run code as you", advice)
