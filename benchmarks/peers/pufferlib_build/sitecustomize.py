"""Read by Python while PufferLib 3.0.0 is built with NO_OCEAN=1: gives its setup.py the name it forgot."""

import builtins

builtins.c_extension_paths = []  # type: ignore[attr-defined]
