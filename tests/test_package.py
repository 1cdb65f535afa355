"""The public surface, and what an import costs."""

from __future__ import annotations

import subprocess
import sys

import envfleet

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
if __name__ == "__main__":
    fleet = envfleet.make("CartPole-v1", 4, backend="processes")
    import sys
    print(*[worker.pid for worker in fleet.statistics().workers])
    print(any("torch" in open(f"/proc/{worker.pid}/maps").read() for worker in fleet.statistics().workers))
    fleet.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "False"


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
