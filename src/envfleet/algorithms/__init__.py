"""Algorithms: each one file that reads like its paper, with its settings in `settings.py`."""
