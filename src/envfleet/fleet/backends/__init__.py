"""Backends: where workers run."""
