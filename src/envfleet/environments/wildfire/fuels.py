"""The standard fuel models: Anderson's 13, Scott and Burgan's 40, and the non-burnable ones."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

__all__ = ["FuelModel", "fuel_models", "fuel_table"]

TABLE_SIZE = 256  # fuel model numbers are bytes
_FIRST_DYNAMIC = 100  # Scott and Burgan's models with a herbaceous load turn it into dead fuel as it cures


@dataclass(frozen=True)
class FuelModel:
    """A fuel model as printed in the reports, in their units. Classes: dead 1 h, 10 h, 100 h, live herbs, live wood."""

    number: int
    code: str
    depth: float  # ft
    moisture_of_extinction: float  # of dead fuel, fraction
    heat_content: float  # Btu/lb
    loads: tuple[float, ...]  # lb/ft²
    surface_to_volume: tuple[float, ...]  # 1/ft

    @property
    def burns(self) -> bool:
        """Whether a fire can spread in it."""
        return self.depth > 0

    @property
    def dynamic(self) -> bool:
        """Whether cured herbs count as dead fuel."""
        return self.number > _FIRST_DYNAMIC and self.loads[3] > 0


@functools.cache
def fuel_models() -> dict[int, FuelModel]:
    """All fuel models by number."""
    text = resources.files("envfleet.environments.wildfire").joinpath("fuel_models.csv").read_text("utf-8")
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")][1:]
    return {int(row[0]): _from_row(row) for row in rows}


def _from_row(row: list[str]) -> FuelModel:
    depth, extinction_percent, thousand_btu, *rest = map(float, row[2:])
    loads, ratios = tuple(rest[:5]), tuple(rest[5:])
    return FuelModel(int(row[0]), row[1], depth, extinction_percent / 100, thousand_btu * 1000, loads, ratios)


@functools.cache
def fuel_table() -> NDArray[np.float64]:
    """Read-only table for the kernels: [number, (depth, extinction, heat, dynamic, 5 loads, 5 ratios)]."""
    table = np.zeros((TABLE_SIZE, 14))
    for number, fuel in fuel_models().items():
        figures = (fuel.depth, fuel.moisture_of_extinction, fuel.heat_content, float(fuel.dynamic))
        table[number] = (*figures, *fuel.loads, *fuel.surface_to_volume)
    table.setflags(write=False)
    return table
