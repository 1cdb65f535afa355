"""Targets: what a measurement should reach, what it reached, and why it missed."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

Target = dict[str, Any]
Quartiles = Mapping[str, float]
SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def target(name: str, sign: str, wanted: float, measured: float | Quartiles | None, why: str = "") -> Target:
    """`measured` is None if the measurement is absent. `why` explains a miss; without it, the spread may."""
    spread = None if measured is None or isinstance(measured, float | int) else measured
    middle = spread["median"] if spread else measured
    reaches = SIGNS[sign]
    if spread and not why and any(reaches(spread[end], wanted) for end in ("lower", "upper")):
        why = f"the middle half of the rounds spreads from {spread['lower']:.3g} to {spread['upper']:.3g}"
    form = ",.0f" if abs(wanted) >= 1000 else ".4g"
    return {
        "target": name,
        "wanted": f"{sign} {wanted:{form}}",
        "measured": middle,
        "reached": middle is not None and reaches(middle, wanted),
        "why": why,
    }


def at_least(name: str, measured: float | Quartiles | None, wanted: float, why: str = "") -> Target:
    return target(name, ">=", wanted, measured, why)


def at_most(name: str, measured: float | Quartiles | None, wanted: float, why: str = "") -> Target:
    return target(name, "<=", wanted, measured, why)


def below(name: str, measured: float | Quartiles | None, wanted: float, why: str = "") -> Target:
    return target(name, "<", wanted, measured, why)
