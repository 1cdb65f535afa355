"""Fleet tests run on every backend."""

from tests.fleet.backends import backend, processes
from tests.fleet.backends import run_on_backends as pytest_generate_tests

__all__ = ["backend", "processes", "pytest_generate_tests"]
