from tests.fleet.backends import backend, processes

__all__ = ["backend", "processes"]
