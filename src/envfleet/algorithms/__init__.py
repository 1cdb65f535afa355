"""Algorithms: each is one file that reads like its paper, with its settings in `<name>_settings.py`."""
