"""A landscape: eight layers of terrain, canopy and fuel on one grid, validated once and immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envfleet.environments.wildfire.fuels import fuel_models
from envfleet.environments.wildfire.weather import CLIMATES, Climate
from envfleet.errors import SettingsError

__all__ = ["LAYERS", "GeoReference", "Landscape", "NothingBurnsError"]

# In the order of the observation's channels: name -> unit, smallest and largest plausible value.
LAYERS: dict[str, tuple[str, float, float]] = {
    "slope": ("degrees", 0.0, 89.0),
    "aspect": ("degrees clockwise from north", 0.0, 360.0),
    "elevation": ("m", -500.0, 9000.0),
    "canopy_cover": ("%", 0.0, 100.0),
    "canopy_bulk_density": ("kg/m³", 0.0, 2.0),
    "canopy_base_height": ("m", 0.0, 100.0),
    "canopy_height": ("m", 0.0, 120.0),
    "fuel_model": ("number", 1.0, 255.0),
}


class NothingBurnsError(SettingsError):
    """Raised if a landscape is all water, rock or fields."""


@dataclass(frozen=True)
class GeoReference:
    """Position of a landscape on earth: coordinate system as WKT, and affine transform of its upper left corner."""

    crs: str
    transform: tuple[float, float, float, float, float, float]


class Landscape:
    """Layers as read-only arrays, so that any number of environments and threads can share a landscape."""

    def __init__(
        self,
        layers: Mapping[str, ArrayLike] | NDArray[np.float32],
        *,
        cell_size: float = 30.0,
        name: str = "landscape",
        climate: Climate = CLIMATES["medium"],
        ignition_weights: ArrayLike | None = None,
        geo_reference: GeoReference | None = None,
    ) -> None:
        """Take `layers` by name or as one array in the order of `LAYERS`, in the units of `LAYERS`.

        Fires begin in burnable cells, with equal probability or in proportion to `ignition_weights`.
        """
        self.layers = _stacked(layers, name)  # [layer, row, column], float32
        self.cell_size, self.name, self.climate, self.geo_reference = cell_size, name, climate, geo_reference
        if not (np.isfinite(cell_size) and cell_size > 0):
            raise SettingsError(f"{name}: cell_size is {cell_size}, expected metres above 0")
        _check_values(self.layers, name)
        self.burnable = _read_only(np.isin(self.layers[7], [n for n, fuel in fuel_models().items() if fuel.burns]))
        if not self.burnable.any():
            raise NothingBurnsError(f"{name}: no cell can burn", hint="choose another part of the rasters")
        self.ignition_weights = _weights(ignition_weights, self.burnable, name)  # [row, column], sums to 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.layers.shape[1], self.layers.shape[2]

    @property
    def hectares_per_cell(self) -> float:
        """The area of a cell on the map."""
        return self.cell_size**2 / 10_000

    def layer(self, name: str) -> NDArray[np.float32]:
        """One layer by name: [row, column]."""
        layer: NDArray[np.float32] = self.layers[list(LAYERS).index(name)]
        return layer

    def draw_ignitions(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw the cells (row * columns + column) where fires begin."""
        edges = np.cumsum(self.ignition_weights, dtype=np.float64)
        cells = np.searchsorted(edges, generator.random(count) * edges[-1], side="right")
        ignitions: NDArray[np.int64] = np.minimum(cells, edges.size - 1).astype(np.int64)
        return ignitions

    def __reduce__(self) -> tuple[Any, ...]:  # unpickled arrays are writable
        arguments = (self.layers, self.cell_size, self.name, self.climate, self.ignition_weights, self.geo_reference)
        return _rebuilt, arguments


def _rebuilt(
    layers: Any, cell_size: float, name: str, climate: Climate, weights: Any, reference: GeoReference | None
) -> Landscape:
    return Landscape(
        layers, cell_size=cell_size, name=name, climate=climate, ignition_weights=weights, geo_reference=reference
    )


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array = np.array(array, order="C")  # a copy, because the caller may change the original
    array.setflags(write=False)
    return array


def _stacked(layers: Mapping[str, ArrayLike] | NDArray[np.float32], name: str) -> NDArray[np.float32]:
    if isinstance(layers, Mapping):
        if missing := [layer for layer in LAYERS if layer not in layers]:
            raise SettingsError(f"{name}: no layer {', '.join(missing)}; expected {', '.join(LAYERS)}")
        shapes = {layer: np.shape(layers[layer]) for layer in LAYERS}
        if len(set(shapes.values())) > 1:
            shown = ", ".join(f"{layer} {shape}" for layer, shape in shapes.items())
            raise SettingsError(f"{name}: the layers have different shapes: {shown}")
        layers = np.stack([np.asarray(layers[layer], np.float32) for layer in LAYERS])
    stacked = np.asarray(layers, np.float32)
    if stacked.ndim != 3 or stacked.shape[0] != len(LAYERS) or min(stacked.shape) < 2:
        raise SettingsError(
            f"{name}: the layers have the shape {stacked.shape}, expected ({len(LAYERS)}, rows, columns) with at least "
            "2 rows and columns"
        )
    return _read_only(stacked)


def _check_values(layers: NDArray[np.float32], name: str) -> None:
    for (layer, (unit, low, high)), values in zip(LAYERS.items(), layers, strict=True):
        wrong = ~((values >= low) & (values <= high))  # also true for NaN
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise SettingsError(
                f"{name}: {layer} is {values[row, column]} in row {row}, column {column}; expected {low:g} to {high:g} "
                f"{unit} ({np.count_nonzero(wrong)} of {values.size} cells are outside)"
            )
    numbers = np.unique(layers[7])
    if unknown := [f"{number:g}" for number in numbers if number not in fuel_models()]:
        raise SettingsError(
            f"{name}: unknown fuel model {', '.join(unknown)}",
            hint="known are 1-13 (Anderson), 101-204 (Scott and Burgan) and 91, 92, 93, 98, 99 (do not burn)",
        )


def _weights(weights: ArrayLike | None, burnable: NDArray[np.bool_], name: str) -> NDArray[np.float64]:
    given = np.ones(burnable.shape) if weights is None else np.asarray(weights, np.float64)
    if given.shape != burnable.shape or not np.isfinite(given).all() or (given < 0).any():
        raise SettingsError(
            f"{name}: ignition weights of shape {given.shape}, expected numbers from 0 on in {burnable.shape}"
        )
    possible = np.where(burnable, given, 0.0)
    if not possible.sum() > 0:
        raise SettingsError(f"{name}: no cell that burns has an ignition weight above 0")
    return _read_only(possible / possible.sum())
