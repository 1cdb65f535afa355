"""Errors about missing libraries name the command that installs them; Numba's cache finds a writable folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest

import envfleet
from envfleet import cli, kernels
from envfleet.errors import MissingExtraError
from envfleet.extras import procgen_installation

COMMANDS = {
    "train": ["train", "ppo", "--steps", "64", "--env"],
    "train, wrapped": ["train", "ppo", "--steps", "64", "--wrappers", "tests.test_extras:wrap", "--env"],
    "check": ["check"],
    "bench": ["bench", "demo", "--seconds", "1", "--env"],
    "demo": ["demo", "--seconds", "1", "--env"],
}


def wrap(env: Any) -> Any:
    return env


@pytest.mark.parametrize(
    ("env", "module", "hint"),
    [
        ("HalfCheetah-v5", "mujoco", 'pip install "envfleet[mujoco]"'),
        ("LunarLander-v3", "Box2D", 'pip install "envfleet[box2d]"'),
        ("envfleet/GameBoy-v0", "pyboy", 'pip install "envfleet[gameboy]"'),
        ("procgen/coinrun", "procgen", procgen_installation()),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_environment_without_its_simulator(
    command: str,
    env: str,
    module: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "procgen_gym", None)  # has Procgen's library too
    monkeypatch.chdir(tmp_path)
    assert cli.main([*COMMANDS[command], env]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("error: the environment ")
    assert error[0].endswith(f" needs {module}, which is not installed")
    assert error[1:] == [f"hint: {hint}"]
    assert list(tmp_path.iterdir()) == []


def test_help_without_the_simulator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyboy", None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "ppo", "--env", "envfleet/GameBoy-v0", "--help"])
    assert ended.value.code == 0
    assert "--rom" in capsys.readouterr().out


def test_help_for_a_class_that_cannot_be_imported_without_its_simulator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("mujoco", "envfleet.environments.meta.locomotion"):
        monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["train", "ppo", "--env", "envfleet/AntDir-v0", "--help"]) == 2
    assert "AntDir needs mujoco, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["sequential", "threads", "processes"])
def test_a_fleet_of_it(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match="needs mujoco"):
        envfleet.make("HalfCheetah-v5", 2, backend=backend)


# ---- kernels ----


def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a home folder and an installation that are not writable."""
    refuse = [name for name in vars(numba.core.caching) if name.lstrip("_").startswith(("InTree", "UserWide"))]
    assert len(refuse) >= 2

    def cannot(locator: Any) -> None:
        raise PermissionError

    for name in refuse:
        monkeypatch.setattr(getattr(numba.core.caching, name), "ensure_cache_path", cannot, raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")


COMPILES = """
from envfleet import kernels

kernel = kernels.compiler()

@kernel
def double(number):
    return 2 * number

@kernel
def quadruple(number):  # compiles the one above
    return double(double(number))

print(flush=True)
input()  # until both are ready
assert quadruple(4) == 16
print(sum(each.stats.cache_misses[signature] for each in (double, quadruple) for signature in each.signatures))
"""


def test_one_process_compiles_and_the_others_read_its_result(tmp_path: Path) -> None:
    script = tmp_path / "compiles.py"
    script.write_text(COMPILES)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    compiled = [int(process.communicate()[0]) for process in both]
    assert sorted(compiled) == [0, 2]


def test_a_process_that_never_finishes_compiling_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_LONGEST_WAIT", 0.1)
    monkeypatch.setattr(kernels, "_turns", kernels._Turns())
    kernel: Any = kernels.compiler()(double)
    holds = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(); input()"
    lock = Path(kernel.stats.cache_path, "envfleet-kernels.lock")
    command = [sys.executable, "-c", holds, lock]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert kernel(4) == 8
        holder.kill()


@pytest.mark.usefixtures("unwritable")
def test_kernels_are_kept_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(double)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kernel = kernels.compiler()(double)
    assert kernel(4) == 8
    folder = tmp_path / f"envfleet-kernels-{os.getuid()}"
    assert list(folder.rglob("*.nbi")) and folder.stat().st_mode & 0o777 == 0o700
    assert numba.config.CACHE_DIR == ""


@pytest.mark.usefixtures("unwritable")
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached kernels are loaded as code, and every user can create folders in the temporary directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"envfleet-kernels-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    for plant in (lambda: planted.mkdir(), lambda: planted.symlink_to("theirs")):
        plant()
        planted.lstat()
        if not planted.is_symlink():
            planted.chmod(0o777)
        assert kernels.compiler()(double)(4) == 8
        assert list(planted.iterdir()) == []
        planted.unlink() if planted.is_symlink() else planted.rmdir()


@pytest.mark.usefixtures("unwritable")
def test_kernels_that_cannot_be_kept_are_compiled_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert kernels.compiler()(double)(4) == 8
