"""Loaded by Python while PufferLib 3.0.0 is built with NO_OCEAN=1: defines the name that its setup.py forgot."""

import builtins

builtins.c_extension_paths = []  # type: ignore[attr-defined]
