"""The spellings of a setting: `n_envs` in Python, `training.n_envs` or `n-envs` in a file, `--n-envs` as a flag."""

from __future__ import annotations

__all__ = ["as_flag", "dotted_name", "last_name"]


def dotted_name(key: str) -> str:
    """A key of a file or a flag, with its section if it has one, as Python spells it."""
    return key.removeprefix("--").replace("-", "_")


def last_name(key: str) -> str:
    """As `dotted_name`, without the section."""
    return dotted_name(key).rpartition(".")[2]


def as_flag(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"
