"""Which folders code is imported from: the current one only if a module is named, a run's folder never."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.importing import make_folder_importable
from tests.cli.conftest import train

SHADOWS = ("csv", "queue", "socket", "secrets")  # standard-library modules that we or torch import
OWN = """
import gymnasium

def make(render_mode=None):
    return gymnasium.make("CartPole-v1")
"""


def shadow_the_standard_library(folder: Path) -> None:
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the current folder was imported')\n")


@pytest.fixture
def clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])


def command(kind: str, folder: Path) -> list[str]:
    """`envfleet` as pip installs it, or `python -m envfleet`."""
    if kind == "module":
        return [sys.executable, "-m", "envfleet"]
    script = folder / "bin" / "envfleet"
    script.parent.mkdir()
    script.write_text("import sys\nfrom envfleet.cli import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("kind", "method", "acting"),
    [
        ("script", "spawn", "central"),
        pytest.param("script", "spawn", "worker", marks=pytest.mark.proof),
        ("module", "forkserver", "worker"),
    ],
)
def test_files_beside_the_user_do_not_replace_the_standard_library(
    kind: str, method: str, acting: str, tmp_path: Path
) -> None:
    """Neither in the command nor in its workers, although the user's own module lies in the same folder."""
    here = tmp_path / "here"
    here.mkdir()
    shadow_the_standard_library(here)
    (here / "beside.py").write_text(OWN)
    flags = ["--env", "beside:make", "--backend", "processes", "--workers", "1", "--n-envs", "2", "--steps", "64"]
    flags += ["--rollout-steps", "32", "--eval-every", "0", "--start-method", method, "--output-dir", "run"]
    flags += ["--acting", acting]
    done = run([*command(kind, tmp_path), "train", "ppo", *flags, "--quiet"], here)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fleet_made_in_such_a_folder(tmp_path: Path) -> None:
    """Workers of a script start too. The script's folder is first on the path; the current one is not on it."""
    (tmp_path / "here").mkdir()
    shadow_the_standard_library(tmp_path / "here")
    (tmp_path / "script.py").write_text(
        "import envfleet\n"
        "if __name__ == '__main__':\n"
        "    with envfleet.make('CartPole-v1', 2, backend='processes', workers=1) as fleet:\n"
        "        fleet.reset()\n"
    )
    done = run([sys.executable, str(tmp_path / "script.py")], tmp_path / "here")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_folder_of_a_run_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cd RUN && envfleet resume .` imports nothing from the run folder, whatever the run recorded."""
    folder = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "beside.py").write_text(OWN)
    assert train(folder, "--env", "beside:make", "--eval-every", "0") == 0
    shadow_the_standard_library(folder)
    (folder / "beside.py").write_text("raise SystemExit('beside.py of the run was imported')\n")
    # Without --trust, the run would be refused before any attempt to import its code.
    done = run([*command("script", tmp_path), "resume", ".", "--trust"], folder)
    assert (done.returncode, "there is no module 'beside'" in done.stderr) == (2, True)
    assert "never in the folder of a run" in done.stderr
    # From the user's own folder the recorded name is found.
    sys.modules.pop("beside")
    sys.path.remove(str(tmp_path))
    assert cli.main(["evaluate", "run", "--trust", "--episodes", "1"]) == 0
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.usefixtures("clean_path")
def test_the_current_folder_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    make_folder_importable()
    make_folder_importable()
    assert sys.path == [*before, str(tmp_path)]


@pytest.mark.usefixtures("clean_path")
@pytest.mark.parametrize("inside", [".", "checkpoints/step-512"])
def test_not_even_a_folder_in_a_run(inside: str, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained / inside)
    before = list(sys.path)
    make_folder_importable()
    assert sys.path == before


@pytest.mark.usefixtures("clean_path")
def test_commands_that_name_no_module_leave_the_path_alone(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert train(tmp_path / "run", "--steps", "64", "--eval-every", "0") == 0
    assert cli.main(["evaluate", str(trained), "--episodes", "1"]) == 0
    assert sys.path == before


@pytest.mark.usefixtures("clean_path")
def test_a_network_of_the_users_own_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self, space):\n"
        "        super().__init__(space.shape[0], 8)\n"
    )
    assert train(tmp_path / "run", "--network", "own_net:Net", "--steps", "64", "--eval-every", "0") == 0
    assert sys.path[-1] == str(tmp_path)
