"""The compiler settings of the wildfire kernels."""

from __future__ import annotations

from envfleet.kernels import compiler

__all__ = ["kernel"]

# No fast-math: the same inputs must give the same bytes.
kernel = compiler(error_model="numpy")
