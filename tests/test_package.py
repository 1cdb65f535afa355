"""The public API, and the cost of importing it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import envfleet
from envfleet.environments import REGISTERED, register_with_gymnasium

HEAVY = ["torch", "ray", "pyboy", "stable_baselines3", "mujoco", "matplotlib", "rich", "tyro", "gymnasium", "numpy"]


def loaded_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_bare_import_loads_nothing_heavy() -> None:
    assert loaded_after("import envfleet") == set()


def test_the_fleet_needs_no_more_than_gymnasium_and_numpy() -> None:
    assert loaded_after("from envfleet import make") == {"gymnasium", "numpy"}


def test_a_stepping_worker_imports_no_torch_though_the_script_does() -> None:
    program = """
import torch, envfleet
fleet = envfleet.make("CartPole-v1", 4, backend="processes")
import sys
print(*[worker.pid for worker in fleet.statistics().workers])
print(any("torch" in open(f"/proc/{worker.pid}/maps").read() for worker in fleet.statistics().workers))
fleet.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "False"


def test_environments_are_registered_as_soon_as_gymnasium_is_loaded() -> None:
    """`import envfleet` does not load Gymnasium, which takes several times as long to import as everything else."""
    program = (
        "import sys, envfleet; print('gymnasium' in sys.modules); "
        "import gymnasium; print('envfleet/GameBoy-v0' in gymnasium.registry, gymnasium.__spec__.loader)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "False"
    assert after.startswith("True <_frozen_importlib_external.SourceFileLoader")  # our import hook is gone


def test_environments_are_registered_if_gymnasium_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(gymnasium.registry, "envfleet/GameBoy-v0")
    register_with_gymnasium()
    assert gymnasium.spec("envfleet/GameBoy-v0").entry_point == REGISTERED["envfleet/GameBoy-v0"][0]


def test_exported_names_are_sorted_and_real() -> None:
    assert envfleet.__all__ == sorted(envfleet.__all__)
    for name in envfleet.__all__:
        assert getattr(envfleet, name) is not None
    assert set(envfleet.__all__) <= set(dir(envfleet))


def test_every_error_is_named_in_the_docstring_of_its_module() -> None:
    from envfleet import errors

    assert errors.__doc__ is not None
    for name in errors.__all__:
        if name.endswith("Error"):
            assert name in errors.__doc__
            assert issubclass(getattr(errors, name), errors.EnvfleetError)


def test_an_installed_wheel_works(tmp_path: Path) -> None:
    """From the wheel alone, outside the source tree, a fleet of processes steps."""
    root, target = Path(__file__).parents[1], tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(root)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("envfleet-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True, capture_output=True)
    program = """
import envfleet
fleet = envfleet.make("CartPole-v1", 4, backend="processes")
fleet.reset()
print(fleet.step(fleet.action_space.sample())[0].shape, envfleet.__file__)
fleet.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"(4, 4) {target / 'envfleet' / '__init__.py'}"
    assert (target / "envfleet" / "py.typed").is_file()
