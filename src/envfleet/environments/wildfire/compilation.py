"""How kernels of the wildfire model are compiled."""

from __future__ import annotations

from envfleet.kernels import compiler

__all__ = ["kernel"]

# No fast mathematics: the same inputs give the same bytes.
kernel = compiler("the wildfire model", "wildfire", error_model="numpy")
