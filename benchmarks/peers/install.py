"""Create the virtual environments of the other libraries: `python -m benchmarks.peers.install [NAME ...]`.

Each is in `.venvs/NAME` under the project and is rebuilt only if its requirements change. If a library cannot be
installed, the reason is written to `.venvs/NAME.absent` and the benchmarks report it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE.parent.parent / ".venvs"
PROCGEN = HERE.parent.parent / "procgen.txt"  # requirements of the Procgen library
NAMES = ("gymnasium", "stable-baselines3", "tianshou", "pufferlib", "pyretechnics")


def python_of(name: str) -> Path:
    """Return the Python interpreter of a library's virtual environment."""
    return VENVS / name / "bin" / "python"


def reason_of_absence(name: str) -> str | None:
    """Return why a library cannot be measured here, or None if it is installed."""
    note = VENVS / f"{name}.absent"
    if note.exists():
        return note.read_text().strip()
    if not _stamp(name).exists():
        return "not installed (python -m benchmarks.peers.install)"
    return None


def versions() -> dict[str, str]:
    """Return the version of each installed library, or why it is absent."""
    packages = {name: name.replace("-", "_") for name in NAMES}
    return {name: reason_of_absence(name) or version_of(name, package) for name, package in packages.items()}


def version_of(name: str, package: str) -> str:
    """Return the version of a package in a library's virtual environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    command = [str(python_of(name)), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def install(name: str) -> str | None:
    """Install one library; return None, or one line that says why it failed."""
    VENVS.mkdir(exist_ok=True)
    with (VENVS / f"{name}.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # two processes may need it at the same time
        return _install(name)


def _install(name: str) -> str | None:
    note = VENVS / f"{name}.absent"
    wanted = _digest(name)
    stamp = _stamp(name)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    shutil.rmtree(VENVS / name, ignore_errors=True)
    note.unlink(missing_ok=True)
    try:
        _run([sys.executable, "-m", "venv", str(VENVS / name)])
        requirements = HERE / f"{name}.txt"
        if "torch==2.13.0" in requirements.read_text():
            # Pinned and first: the resolver would choose a torch with gigabytes of CUDA.
            _pip(name, "install", "torch==2.13.0")
        if name == "pufferlib":
            _install_pufferlib(requirements)
        else:
            _pip(name, "install", "-r", str(requirements))
        if name == "stable-baselines3":  # compared on CoinRun
            _pip(name, "install", "--no-deps", "--require-hashes", "-r", str(PROCGEN))
    except subprocess.CalledProcessError as error:
        reason = _last_line(error.stderr or error.stdout or str(error))
        note.write_text(f"installation failed: {reason}\n")
        return reason
    stamp.write_text(wanted)
    return None


def _install_pufferlib(requirements: Path) -> None:
    """Install PufferLib without its C games, whose build downloads libraries from outside the package index.

    Version 3.0.0 offers NO_OCEAN for that, but then fails on a name that only the games' branch of its setup.py
    defines. `pufferlib_build` defines it as the empty list that it should be.
    """
    _pip("pufferlib", "install", "-r", str(requirements), "--no-deps", "--no-build-isolation")
    _pip("pufferlib", "install", "-r", str(HERE / "environments.txt"))
    build_settings = {"NO_OCEAN": "1", "NO_TRAIN": "1", "PYTHONPATH": str(HERE / "pufferlib_build")}
    _pip("pufferlib", "install", "pufferlib==3.0.0", "--no-deps", "--no-build-isolation", **build_settings)


def _pip(name: str, *arguments: str, **environment: str) -> None:
    _run([str(python_of(name)), "-m", "pip", "--quiet", *arguments], **environment)


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)


def _stamp(name: str) -> Path:
    return VENVS / name / "installed"


def _digest(name: str) -> str:
    parts = [
        (HERE / f"{name}.txt").read_bytes(),
        (HERE / "environments.txt").read_bytes(),
        *([PROCGEN.read_bytes()] if name == "stable-baselines3" else []),
        sys.version.encode(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _last_line(text: str) -> str:
    errors = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    lines = errors or [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)")
    options = parser.parse_args(arguments)
    for name in options.names or NAMES:
        print(f"{name}: setting up", file=sys.stderr, flush=True)
        reason = install(name)
        print(f"{name}: {'ready' if reason is None else f'absent: {reason}'}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
