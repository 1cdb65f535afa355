"""A cluster as plain values: its settings, its nodes, how workers are divided over them, and what must agree."""

from __future__ import annotations

import functools
import logging
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from envfleet.errors import ResourceError, SettingsError
from envfleet.fleet.numerics import Numerics, measure_numerics
from envfleet.paths import expanded

__all__ = [
    "ClusterSettings",
    "HostFacts",
    "HostLoad",
    "Node",
    "NodeSurvey",
    "check_hosts",
    "check_torch",
    "divide",
    "next_move",
    "numeric_differences",
    "reason_of_loss",
    "refuse_other_versions",
    "share_out",
]

_log = logging.getLogger("envfleet")

NUMERICS = ("warn", "strict", "portable")
# Libraries whose versions must be the same on all nodes: results depend on them, or messages between nodes (Ray).
LIBRARIES = ("envfleet", "numpy", "gymnasium", "numba", "torch", "ray")


@dataclass(frozen=True)
class ClusterSettings:
    """Which cluster to use, and how.

    Args:
        address: of a Ray cluster, or "auto" on one of its nodes; None starts a cluster on this machine.
        runtime_env: a YAML or JSON file with a runtime environment for Ray.
        numerics: if nodes compute differently than this machine: "warn", refuse it ("strict"), or use the same kernels
            on all nodes ("portable").
        overcommit: start more workers than the cluster has CPUs; they spread over nodes that join later.
    """

    address: str | None = None
    runtime_env: str | None = None
    numerics: str = "warn"
    overcommit: bool = False

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise SettingsError(f"numerics is {self.numerics!r}, expected one of {', '.join(NUMERICS)}")
        if self.address is not None and self.address.startswith("ray://"):
            raise SettingsError(
                f"address is {self.address!r}, which is Ray's client protocol: it is too slow for training",
                hint="run this command on a node of the cluster, with address auto",
            )

    def read_runtime_env(self) -> dict[str, Any]:
        """The content of the file `runtime_env`."""
        if self.runtime_env is None:
            return {}
        import yaml

        try:
            content = yaml.safe_load(expanded(self.runtime_env).read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise SettingsError(
                f"runtime_env: {self.runtime_env} cannot be read: {error}",
                hint="it must be a YAML or JSON file in UTF-8",
            ) from None
        if not isinstance(content, dict):
            raise SettingsError(
                f"runtime_env: {self.runtime_env} holds a {type(content).__name__}, expected a mapping",
                hint='for example {"pip": ["package"], "env_vars": {"NAME": "value"}}',
            )
        _check_variables(self.runtime_env, content.get("env_vars", {}))
        _check_addresses(self.runtime_env, content)
        return content


def _check_variables(file: str, variables: Any) -> None:
    """Raise SettingsError unless the variables in a runtime environment map text to text, as Ray expects."""
    if not isinstance(variables, dict):
        raise SettingsError(
            f"runtime_env: env_vars in {file} is {variables!r}, expected a mapping of names to values",
            hint="write env_vars: {NAME: value}, or leave it out",
        )
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise SettingsError(
                f"runtime_env: env_vars in {file} has {name!r}: {value!r}, expected text for both",
                hint=f'write quotation marks: "{name}": "{value}"',
            )


def _check_addresses(file: str, content: dict[str, Any]) -> None:
    """Raise SettingsError if a runtime environment names folders of this machine, which Ray does not send to hosts."""
    modules = content.get("py_modules") or []
    if not isinstance(modules, list):
        raise SettingsError(
            f"runtime_env: py_modules in {file} is {modules!r}, expected a list", hint="write py_modules: [address]"
        )
    named = [("working_dir", content.get("working_dir")), *(("py_modules", module) for module in modules)]
    for key, place in named:
        if place and (not isinstance(place, str) or "://" not in place):
            raise SettingsError(
                f"runtime_env: {key} in {file} has {place!r}, expected the address of an archive for all nodes",
                hint="your own modules are sent without this; put other files into a .zip at https://, s3:// or gs://, "
                "or copy them to every node",
            )


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    id: str
    name: str  # its address, for messages
    cpus: int
    free: int


@dataclass(frozen=True)
class HostFacts:
    """Versions and numerics of a host's machine, reported at the start."""

    versions: dict[str, str]
    numerics: Numerics

    @classmethod
    @functools.cache  # each measurement in a new thread costs megabytes that are never freed
    def of_this_process(cls) -> HostFacts:
        versions = {"python": platform.python_version()}
        for library in LIBRARIES:
            try:
                versions[library] = metadata.version(library)
            except metadata.PackageNotFoundError:
                continue  # used from a folder
        return cls(versions, measure_numerics())


@dataclass(frozen=True)
class NodeSurvey:
    """A node with the facts of its machine, or the reason why it does not answer."""

    node: Node
    facts: HostFacts | str


@dataclass(frozen=True)
class HostLoad:
    """What a host does."""

    node: str  # id of its node
    cpus: int  # that it has; 0 if its node is being drained
    workers: Sequence[int]


def divide(workers: int, nodes: Sequence[Node], *, overcommit: bool = False) -> list[tuple[Node, range]]:
    """The workers of each node, one per CPU; they are spread over the nodes with the most free CPUs.

    With `overcommit`, there may be more workers than CPUs.
    """
    cpus, free = sum(node.cpus for node in nodes), sum(node.free for node in nodes)
    if workers > free and not (overcommit and free):
        taken = f", of which {cpus - free} are taken" if free < cpus else ""
        less = f"use --workers {free}, or add nodes (--overcommit starts now and uses them when they join)"
        raise ResourceError(
            f"{workers} workers were asked for, but the cluster has {cpus} CPUs{taken}",
            hint=less if free else "wait until CPUs are free, or add nodes",
        )
    counts = {node: 0 for node in nodes if node.free}
    for _ in range(workers):
        counts[max(counts, key=lambda node: node.free - counts[node])] += 1
    plan, first = [], 0
    for node, count in counts.items():
        if count:
            plan.append((node, range(first, first + count)))
            first += count
    return plan


def next_move(hosts: Sequence[HostLoad], nodes: Sequence[Node]) -> tuple[Sequence[int], Node | None] | None:
    """Workers that share CPUs, or whose node is being drained, and the node with the most free CPUs for them.

    The node is None if no CPU is free for workers that must leave a drained node. Return None if nothing has to move.
    """
    for host in sorted(hosts, key=lambda host: host.cpus > 0):
        places = [node for node in nodes if node.free > 0 and node.id != host.node]
        excess = len(host.workers) - host.cpus
        if excess > 0 and places:
            node = max(places, key=lambda node: node.free)
            return host.workers[-min(excess, node.free) :], node
        if host.workers and not host.cpus:
            return host.workers, None
    return None


def share_out(workers: Sequence[int], hosts: Sequence[HostLoad]) -> dict[int, int]:
    """The host of each worker, by its place in `hosts`: each worker goes where the fewest share a CPU; then the first.

    A rollout waits for its slowest host, so one host must not get all workers.
    """
    counts = [len(host.workers) for host in hosts]
    found = {}
    for worker in workers:
        chosen = min(range(len(hosts)), key=lambda each: ((counts[each] + 1) / max(1, hosts[each].cpus), each))
        counts[chosen] += 1
        found[worker] = chosen
    return found


def check_hosts(
    hosts: Sequence[tuple[str, HostFacts]], settings: ClusterSettings, first: HostFacts | None = None
) -> None:
    """Compare the hosts, each with the name of its node, with this process. Raise an error if they do not fit.

    `first` is the first host of the fleet, if it is not among these.
    """
    ours = HostFacts.of_this_process()
    for name, facts in hosts:
        refuse_other_versions(name, facts, ours)
    # With pinned kernels, the nodes are compared with each other: this process has loaded its own already.
    like = (first or hosts[0][1]).numerics if settings.numerics == "portable" else ours.numerics
    differences = numeric_differences([(name, facts.numerics) for name, facts in hosts], like)
    if differences and settings.numerics == "strict":
        raise SettingsError(
            f"{differences[0]}, so the same seed could give other weights there",
            hint="--numerics portable uses the same kernels on all nodes, --numerics warn accepts the difference",
        )
    for difference in differences:
        _log.warning("%s: the same seed may give other weights than on one machine", difference)


def check_torch(node: str, theirs: str, expected: str, settings: ClusterSettings) -> None:
    """Compare the digest of torch on a node with the expected one, as `check_hosts` does with other libraries."""
    if theirs == expected:
        return
    than = "the first node" if settings.numerics == "portable" else "this machine"
    difference = f"node {node} computes differently in torch than {than}"
    if settings.numerics == "strict":
        raise SettingsError(
            f"{difference}, so the same seed could give other weights there",
            hint="--numerics portable uses the same kernels on all nodes, --numerics warn accepts the difference",
        )
    _log.warning("%s: the same seed may give other weights than on one machine", difference)


def refuse_other_versions(node: str, theirs: HostFacts, ours: HostFacts) -> None:
    """Raise an error if a library on a node has another version than here."""
    for library, version in ours.versions.items():
        found = theirs.versions.get(library)
        if found != version:
            has = f"has {library} {found}" if found else f"does not have {library}"
            command = "" if library == "python" else f": pip install {library}=={version}"
            raise SettingsError(
                f"node {node} {has}, expected {version} as on this machine",
                hint=f"install the same versions on every node{command}",
            )


def numeric_differences(hosts: Sequence[tuple[str, Numerics]], ours: Numerics) -> list[str]:
    """A sentence for each node that computes differently."""
    return [
        f"node {name} ({theirs.cpu}; {theirs.kernels}) computes differently in {' and '.join(libraries)} than this "
        f"machine ({ours.cpu}; {ours.kernels})"
        for name, theirs in hosts
        if (libraries := theirs.differences(ours))
    ]


def reason_of_loss(node: str, error: str, text: str) -> str:
    """Why the host on a node is lost, in words; `error` is the name of Ray's exception."""
    words = " ".join(text.split())
    if error == "OutOfMemoryError":
        return f"node {node} is out of memory (use fewer workers or smaller environments)"
    if error == "RuntimeEnvSetupError":
        return f"node {node} could not set up the runtime environment: {words}"
    if error == "ActorDiedError" and "creation task" in words:
        return f"node {node} could not start a host: {words[-600:]}"
    if error == "ActorDiedError" and "SIGTERM" in words:
        return f"node {node} was stopped"
    if error == "ActorDiedError" and "worker process has died" in words:
        return f"the host process on node {node} has died"
    return f"node {node} is lost ({error})"
