"""A Ray cluster: connecting to it, and its nodes. The only module that imports Ray."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import traceback
from typing import Any

from envfleet.errors import EnvfleetError, MissingExtraError, ResourceError, SettingsError
from envfleet.fleet.backends.entry import SINGLE_THREADED
from envfleet.fleet.cluster import ClusterSettings, HostFacts, Node, NodeSurvey
from envfleet.machine import usable_cores

try:
    import ray
    from ray.exceptions import ActorDiedError, AuthenticationError, RayError, RayTaskError
    from ray.runtime_env import RuntimeEnv
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise MissingExtraError(
        "backend='ray' needs ray, which is not installed", hint='pip install "envfleet[ray]"'
    ) from None

__all__ = [
    "INLINE_LIMITS",
    "ActorDiedError",
    "NodeAffinitySchedulingStrategy",
    "RayError",
    "RayTaskError",
    "RuntimeEnv",
    "connect",
    "draining_nodes",
    "head_of",
    "inline_bytes",
    "live_nodes",
    "ray",
    "survey",
]

_log = logging.getLogger("envfleet")

SURVEY_SECONDS = 60.0
PROBE_SECONDS = 10.0  # for a connection to the head
# Ray sends smaller values within calls and replies. Larger ones go through its object stores, which takes longer up to
# some MB, and a finished rollout there is lost with its node. Every process reads the variables when it connects. The
# second one limits all values of a call together; by default it would be 10 MiB.
INLINE, INLINE_BYTES = "RAY_max_direct_call_object_size", 16 * 2**20
INLINE_LIMITS = dict.fromkeys((INLINE, "RAY_task_rpc_inlined_bytes_limit"), str(INLINE_BYTES))
DEFAULT_INLINE_BYTES = 100 * 2**10


def connect(settings: ClusterSettings, workers: int | None = None) -> None:
    """Connect to the cluster, or start one on this machine if no address is given."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for name, limit in INLINE_LIMITS.items():
        os.environ.setdefault(name, limit)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _probe(settings.address)
        if settings.address is None:
            _start_local({"num_cpus": max(workers or 0, usable_cores()), "include_dashboard": False, **quiet})
        else:
            ray.init(settings.address, **quiet)
    except EnvfleetError:
        raise
    except Exception as error:  # a node that starts too slowly is a bare Exception
        raise _no_connection(settings.address, error) from None
    finally:
        if in_main_thread and handler is not None:  # Ray has replaced it
            signal.signal(signal.SIGTERM, handler)


def _start_local(settings: dict[str, Any]) -> None:
    """Start a cluster on this machine; once more if it took too long, since Ray's limit of 30 s is fixed."""
    try:
        ray.init("local", **settings)
    except Exception as error:
        _end_processes(error)
        if not _took_too_long(error):
            raise
    else:
        return
    _log.warning("a local Ray cluster did not start in the 30 s that Ray gives it: it is started once more")
    try:
        ray.init("local", **settings)
    except Exception as error:
        _end_processes(error)
        raise


def _took_too_long(error: Exception) -> bool:
    return "timed out" in str(error).lower()


def _end_processes(error: Exception) -> None:
    """End the processes of a cluster that failed to start; Ray forgets them, and they would run on beside the next."""
    from ray._private.node import Node as RayNode  # there is no public function for this

    ray.shutdown()
    for frame, _ in traceback.walk_tb(error.__traceback__):  # the only place that still refers to the node
        node = frame.f_locals.get("self")
        if isinstance(node, RayNode):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


def _probe(address: str | None) -> None:
    """Raise SettingsError if nobody listens at the address: Ray would try for many minutes without a word."""
    head = _head_at(address)
    if head is None:
        return
    try:
        socket.create_connection(head, PROBE_SECONDS).close()
    except OSError as error:
        host, port = head
        found = f" (found by address {address!r})" if address == "auto" else ""
        raise SettingsError(
            f"nobody listens at {host}:{port}{found}, expected the head of a Ray cluster: {error}",
            hint=f"start it there with ray start --head --port={port}, or check address, network and firewall",
        ) from None


def _head_at(address: str | None) -> tuple[str, int] | None:
    """Host and port of the head; None if Ray starts a cluster, or if the address has another form."""
    if address == "auto":
        from ray._private.services import canonicalize_bootstrap_address  # there is no public function for this

        address = canonicalize_bootstrap_address(address)  # a variable or a file may name a cluster that is gone
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _no_connection(address: str | None, error: Exception) -> EnvfleetError:
    text = str(error).strip().splitlines()
    reason = text[0] if text else type(error).__name__
    refused = isinstance(error, AuthenticationError) or "AuthenticationError" in str(error.__cause__)
    if refused or "token" in reason.lower():
        return SettingsError(
            f"the cluster at address {address!r} refused the connection: the token is missing or wrong",
            hint="use the token of the cluster: copy ~/.ray/auth_token from its head, or set RAY_AUTH_TOKEN_PATH; "
            "set RAY_AUTH_MODE=token",
        )
    if address is None:
        hint = None
        if "path length" in reason:  # of its sockets
            hint = "set RAY_TMPDIR to a folder with a short path"
        elif _took_too_long(error):
            hint = "the machine may be too busy: wait for other work to end, or use --backend processes"
        return ResourceError(f"a local Ray cluster could not be started: {reason}", hint=hint)
    return SettingsError(
        f"there is no Ray cluster at address {address!r}: {reason}",
        hint="run this on a node of the cluster: ray start --head on one machine, ray start --address=HEAD:6379 on "
        "the others; versions of Python and Ray must be the same on all nodes",
    )


def inline_bytes() -> int:
    """The size from which on this process sends values through the object store; the user may have connected it."""
    return int(os.environ.get(INLINE, DEFAULT_INLINE_BYTES))


def head_of() -> str:
    """The address of the head of the cluster."""
    return str(ray.get_runtime_context().gcs_address)


def draining_nodes() -> dict[str, float | None]:
    """Nodes that will be stopped, by id: the seconds that are left, or None if they have no deadline."""
    from ray._private.state import state  # there is no public function for this

    deadlines = state.get_draining_nodes()
    return {node: max(0.0, at / 1000.0 - time.time()) if at else None for node, at in deadlines.items()}


def live_nodes() -> list[Node]:
    """The nodes of the cluster that take work, those with the most free CPUs first."""
    from ray._private.state import available_resources_per_node  # there is no public function for this

    free, draining = available_resources_per_node(), draining_nodes()
    nodes = [
        Node(
            each["NodeID"],
            each["NodeManagerAddress"],
            int(each["Resources"].get("CPU", 0)),
            int(free.get(each["NodeID"], {}).get("CPU", 0)),
        )
        for each in ray.nodes()
        if each["Alive"] and each["NodeID"] not in draining
    ]
    return sorted(nodes, key=lambda node: (-node.free, node.name))


def survey(settings: ClusterSettings) -> tuple[list[NodeSurvey], bool]:
    """Ask every node of a running cluster about itself; also return whether the cluster requires a token."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    connect(settings)
    ask = ray.remote(num_cpus=0, max_retries=0, runtime_env={"env_vars": SINGLE_THREADED})(_facts)
    nodes = live_nodes()
    places = [NodeAffinitySchedulingStrategy(node.id, soft=False) for node in nodes]
    answers = [ask.options(scheduling_strategy=place).remote() for place in places]
    found = []
    for node, answer in zip(nodes, answers, strict=True):
        try:
            facts: HostFacts | str = ray.get(answer, timeout=SURVEY_SECONDS)
        except RayError as error:
            facts = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        found.append(NodeSurvey(node, facts))
    return found, bool(is_token_auth_enabled())


def _facts() -> HostFacts:
    return HostFacts.of_this_process()
