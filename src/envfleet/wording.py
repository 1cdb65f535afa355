"""Words that messages share: quoted values, counts, durations, suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["NOT_AN_OBJECT", "counted", "did_you_mean", "duration", "listed", "one_line", "shown", "there_are"]

# Advice if an environment object is given in place of a function.
NOT_AN_OBJECT = "an environment object cannot be copied: give a function that builds one, e.g. lambda: MyEnv()"


def shown(value: Any) -> str:
    """The repr of a value on one line, shortened if long."""
    return one_line(repr(value))


def one_line(text: str) -> str:
    """The text on one line, cut at 80 characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 80 else f"{joined[:77]}..."


def counted(count: int, noun: str) -> str:
    """A count: 1 episode, 2 episodes."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def there_are(count: int, noun: str) -> str:
    """A sentence with a count: there is 1 group, there are 2 groups."""
    return f"there {'is' if count == 1 else 'are'} {counted(count, noun)}"


def listed(words: Sequence[str]) -> str:
    """Words in a sentence: a; a and b; a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def duration(seconds: float) -> str:
    """A duration in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def did_you_mean(word: Any, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the nearest known word, or return `otherwise` if none is near."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise
