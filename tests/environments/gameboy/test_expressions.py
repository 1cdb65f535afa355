"""Expressions in game files: arithmetic, comparisons and conditions work, everything else is refused."""

from __future__ import annotations

import pytest

from envfleet.environments.gameboy.expressions import compile_all
from envfleet.errors import SettingsError

LENGTHS = {"health": 0, "hearts": 0, "enemy_x": 3}
VALUES = [3, 4, [10, 20, 30]]


def computed(*texts: str) -> tuple[object, ...]:
    return compile_all(texts, LENGTHS, where="a test")(VALUES)


def test_arithmetic_comparisons_and_conditions() -> None:
    assert computed("health / hearts", "hearts - health * 2", "enemy_x[2] - enemy_x[0]") == (0.75, -2, 20)
    assert computed("health > 2 and not hearts == 3", "min(health, 1)", "abs(health - hearts)") == (True, 1, 1)
    assert computed("7 if health else 8", "health << 4 | 1", "-health % 5", "hearts // 3") == (7, 49, 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("helth", "no value 'helth' in memory; did you mean health"),
        ("enemy_x", "enemy_x is a list of 3"),
        ("enemy_x[3]", r"enemy_x\[3\] does not exist: enemy_x is a list of 3"),
        ("health[0]", "health is one number"),
        ("enemy_x[health]", "does not exist"),
        ("health +", "expected an expression"),
        ("'text'", "is not a number"),
        ("open('file')", "none of abs, min and max"),
        ("health.real", "more than arithmetic"),
        ("[1, 2]", "more than arithmetic"),
        ("(lambda: 1)()", "none of abs, min and max"),
        ("2 ** 99 ** 99", "more than arithmetic"),
        ("_values", "no value '_values'"),
        ("(health := 1)", "more than arithmetic"),
    ],
)
def test_everything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        computed(text)
