"""A Ray cluster of several "machines" on this one, for tests that kill nodes and cut cables.

Each node has a network namespace with its own address, a process namespace (killing its first process is a power cut)
and its own /dev/shm. A bridge in a further namespace connects them, so the network of this machine is not touched.
It needs root, iproute2 and util-linux: `python -m tests.cluster.namespaces` says whether it works here.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["NamespaceCluster", "namespaces_work"]

NET = "10.79.0"
PORT = 6379
MEMORY_BYTES = 8 * 2**30  # of each node, as Ray sees it
_LETTERS = itertools.cycle("abcdefghijklmnopqrstuvwxyz")
START_SECONDS = 240.0
INSTALLED = "/dev/shm/site-packages"  # a folder for packages, of each node alone
ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")


def namespaces_work() -> bool:
    """Whether this machine lets us make namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None or not RAY.exists():
        return False
    name = f"envfleet-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return tried.returncode == 0


class NamespaceCluster:
    """Node 0 is the head, where drivers run; nodes 1 to `nodes` join it, with `cpus` each."""

    def __init__(self, nodes: int, *, cpus: int = 1, head_cpus: int = 0, later: int = 0) -> None:
        """`later` nodes have an address but are not started yet."""
        self._folder = folder = Path(tempfile.mkdtemp(prefix="ef"))  # paths of sockets have at most 107 characters
        self._cpus, self._head_cpus = cpus, head_cpus
        self._prefix = f"ef{os.getpid()}{next(_LETTERS)}"  # several clusters may exist
        self._switch = f"{self._prefix}sw"
        self._outer: dict[int, subprocess.Popen[bytes]] = {}
        self._token = folder / "token"
        self._token.write_text(secrets.token_hex(32))
        self._token.chmod(0o600)
        _ip("netns", "add", self._switch)
        self._in(self._switch, "link", "add", "br0", "type", "bridge")
        self._in(self._switch, "link", "set", "br0", "up")
        try:
            for node in range(nodes + later + 1):
                self._wire(node)
            self.start(0)
            self.wait_for(lambda: self._alive() == 1)
            for node in range(1, nodes + 1):
                self.start(node)
            self.wait_for(lambda: self._all_alive(nodes + 1))
        except BaseException:
            self.close()
            raise

    # --- nodes

    def address(self, node: int) -> str:
        return f"{NET}.{10 + node}"

    def start(self, node: int) -> None:
        """Start a node, or start it again after `kill`."""
        folder = self._folder / str(node)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "cgroup" / "memory").mkdir(parents=True)
        self.fill_memory(node, 0.1)
        command = [str(RAY), "start", "--block", "--disable-usage-stats", "--temp-dir", str(folder / "ray")]
        command += ["--node-ip-address", self.address(node), "--object-store-memory", str(200 * 2**20)]
        if node == 0:
            command += ["--head", "--port", str(PORT), "--include-dashboard=false", "--num-cpus", str(self._head_cpus)]
        else:
            command += ["--address", f"{self.address(0)}:{PORT}", "--num-cpus", str(self._cpus)]
        mounts = f"mount -t tmpfs -o size=512m tmpfs /dev/shm; mount --bind {folder}/cgroup /sys/fs/cgroup"
        inside = f"{mounts}; {' '.join(command)} & wait"
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        with (folder / "out").open("wb") as out:
            self._outer[node] = subprocess.Popen(
                ["ip", "netns", "exec", f"{self._prefix}{node}", *unshared, "bash", "-c", inside],
                env=self._environment(node),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                start_new_session=True,
            )

    def kill(self, node: int) -> None:
        """End all processes of a node at once, as a power cut would."""
        os.kill(self._first(node), signal.SIGKILL)
        self._outer.pop(node).wait()

    def fill_memory(self, node: int, share: float) -> None:
        """Let Ray believe that this share of the node's memory is used: its control group is made of our files."""
        files = self._folder / str(node) / "cgroup" / "memory"
        (files / "memory.limit_in_bytes").write_text(f"{MEMORY_BYTES}\n")
        (files / "memory.usage_in_bytes").write_text(f"{int(share * MEMORY_BYTES)}\n")
        (files / "memory.stat").write_text("total_inactive_file 0\ntotal_active_file 0\n")

    def drain(self, node: int, seconds: int = 900) -> None:
        """Announce that a node will be stopped, as a cloud does before it takes a machine back."""
        program = (
            f"import ray, logging, subprocess; ray.init('auto', logging_level=logging.ERROR, log_to_driver=False); "
            f"(found,) = [each['NodeID'] for each in ray.nodes() if each['NodeManagerAddress'] == "
            f"'{self.address(node)}' and each['Alive']]; "
            f"subprocess.run(['{RAY}', 'drain-node', '--address', '{self.address(0)}:{PORT}', '--node-id', found, "
            f"'--reason', 'DRAIN_NODE_REASON_PREEMPTION', '--reason-message', 'a test', "
            f"'--deadline-remaining-seconds', '{seconds}'], check=True)"
        )
        self.run(0, [sys.executable, "-c", program])

    def cut(self, node: int) -> None:
        """Pull the network cable of a node."""
        self._in(self._switch, "link", "set", f"p{node}", "down")

    def heal(self, node: int) -> None:
        self._in(self._switch, "link", "set", f"p{node}", "up")

    def shape(self, node: int, rate: str) -> None:
        """Limit the cable of a node in both directions, for example to "1gbit". Only 128 kB may pass at once."""
        for namespace, device in ((self._switch, f"p{node}"), (f"{self._prefix}{node}", "eth0")):
            limit = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
            _ip("netns", "exec", namespace, "tc", "qdisc", "replace", "dev", device, *limit)

    def processes(self, node: int, named: str) -> list[int]:
        """The processes of a node whose command line contains this text, as this machine numbers them."""
        listed = subprocess.run(
            ["pgrep", "-f", named, "--ns", str(self._first(node)), "--nslist", "pid"],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(pid) for pid in listed.stdout.split()]

    def popen(self, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program on a node."""
        entered = ["nsenter", "-t", str(self._first(node)), "-n", "-m", "-p", f"--wd={ROOT}", "--"]
        return subprocess.Popen(
            [*entered, *command],
            env=self._environment(node),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, node: int, command: Sequence[str], seconds: float = 200.0) -> str:
        """Run a program on a node; return what it printed to stdout and stderr."""
        with self.popen(node, command) as process:
            try:
                out, errors = process.communicate(timeout=seconds)
            except BaseException:
                process.kill()
                raise
        assert process.returncode == 0, errors[-3000:]
        return out + errors

    def install(self, node: int, file: str, text: str) -> None:
        """Write a file of a package that only this node has."""
        path = f"{INSTALLED}/{file}"
        self.run(node, ["bash", "-c", 'mkdir -p "$(dirname "$0")"; printf %s "$1" > "$0"', path, text])

    def uninstall(self, node: int) -> None:
        """Remove all packages that only this node has."""
        self.run(node, ["rm", "-rf", INSTALLED])

    def wait_for(self, true: Any, seconds: float = START_SECONDS) -> None:
        until = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < until, self._outputs()
            time.sleep(0.3)

    def alive(self) -> int:
        """How many nodes the head knows to be alive."""
        return self._alive()

    def __enter__(self) -> NamespaceCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes and remove the namespaces."""
        for node in list(self._outer):
            try:
                self.kill(node)
            except (OSError, subprocess.CalledProcessError):
                process = self._outer.pop(node)
                process.kill()
                process.wait()
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for name in [line.split()[0] for line in listed.splitlines() if line.startswith(self._prefix)]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- inside

    def _wire(self, node: int) -> None:
        """Make a namespace with an address and connect it to the bridge."""
        name = f"{self._prefix}{node}"
        _ip("netns", "add", name)
        _ip("link", "add", f"p{node}", "netns", self._switch, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._in(self._switch, "link", "set", f"p{node}", "master", "br0", "up")
        self._in(name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._in(name, "link", "set", device, "up")

    @staticmethod
    def _in(namespace: str, *arguments: str) -> None:
        _ip("netns", "exec", namespace, "ip", *arguments)

    def _environment(self, node: int) -> dict[str, str]:
        folder = self._folder / str(node)
        given = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {
            **given,
            "HOME": str(folder),
            "PATH": f"{RAY.parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([INSTALLED, os.environ.get("PYTHONPATH", "")]),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def _first(self, node: int) -> int:
        """The first process of a node, as this machine numbers it."""
        listed = subprocess.run(
            ["pgrep", "-P", str(self._outer[node].pid)], capture_output=True, text=True, check=True
        ).stdout
        return int(listed.split()[0])

    def _alive(self) -> int:
        program = (
            "import ray, logging; ray.init('auto', logging_level=logging.ERROR, log_to_driver=False); "
            "print('alive', sum(node['Alive'] for node in ray.nodes()))"
        )
        try:
            out = self.run(0, [sys.executable, "-c", program], 60.0)
        except (AssertionError, subprocess.SubprocessError):
            return 0
        return int(out.split("alive ")[1].split()[0])

    def _all_alive(self, count: int) -> bool:
        """Whether all nodes are alive; start those again that gave up because the machine is busy (after 30 s)."""
        for node, process in list(self._outer.items()):
            if process.poll() is not None:
                self.start(node)
        return self._alive() == count

    def _outputs(self) -> str:
        return "\n".join(file.read_text()[-800:] for file in sorted(self._folder.glob("*/out")))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.stdout.write(f"namespaces work here: {namespaces_work()}\n")
