"""Landscapes cut from a folder of rasters (LANDFIRE or others with the same layers), and maps written as GeoTIFF."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.landscape import LAYERS, GeoReference, Landscape, NothingBurnsError
from envfleet.environments.wildfire.settings import WildfireSettings
from envfleet.environments.wildfire.sharing import one_copy
from envfleet.environments.wildfire.weather import CLIMATES, Climate
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.paths import expanded
from envfleet.seeding import stream

__all__ = ["RasterCrops", "Rasters", "WholeRasters", "write_geotiff"]

SUFFIXES = (".tif", ".tiff", ".asc")
# Words in a file name, such as LC22_F40_220.tif, that identify its layer.
_NAMES = {
    "slope": ("slope", "slp", "slpd"),
    "aspect": ("aspect", "asp"),
    "elevation": ("elevation", "elev", "dem"),
    "canopy_cover": ("canopy_cover", "cc"),
    "canopy_bulk_density": ("canopy_bulk_density", "cbd"),
    "canopy_base_height": ("canopy_base_height", "cbh"),
    "canopy_height": ("canopy_height", "ch"),
    "fuel_model": ("fuel_model", "fuel", "fbfm40", "f40", "fbfm13", "f13"),
}
_LANDFIRE_SCALES = {"canopy_bulk_density": 0.01, "canopy_base_height": 0.1, "canopy_height": 0.1}
_TRIES = 200  # positions tried to find a usable crop
_LEAST_BURNABLE = 0.5  # share of a crop


@dataclass(frozen=True)
class _Grid:
    """Position of the cells of a raster."""

    shape: tuple[int, int]
    transform: tuple[float, ...]
    crs: Any  # rasterio's, or None
    unit: str

    def __str__(self) -> str:
        (rows, columns), transform = self.shape, self.transform
        return f"{rows} × {columns} cells of {transform[0]:g} from ({transform[2]:g}, {transform[5]:g})"

    @property
    def crs_name(self) -> str:
        """A short name of the coordinate system."""
        if not self.crs:
            return "no coordinate system"
        code = self.crs.to_epsg()
        return f"the coordinate system {f'EPSG:{code}' if code else self.crs.to_wkt()}"


class NoDataError(SettingsError):
    """Part of the rasters has cells without data. Other parts may be usable."""


class Rasters:
    """The eight validated layers of a folder. `crop` reads only a part, so the whole is never in memory.

    Two instances are equal, and give equal crops, if they read the same unchanged files in the same units.
    """

    def __init__(self, folder: str | Path, *, units: str = "landfire") -> None:
        self.folder, self._units = expanded(folder), units
        self._rasterio = _rasterio()
        self.files = _files_by_layer(self.folder)
        self._decides = units, *(_stamp(file) for file in self.files.values())
        grids = {layer: self._grid(file) for layer, file in self.files.items()}
        grid = grids["slope"]
        for layer, other in grids.items():
            self._check_alike(layer, other, grid)
        self.shape, self.transform = grid.shape, grid.transform
        self.crs: str = grid.crs.to_wkt() if grid.crs else ""
        if grid.unit not in {"metre", "meter", "m", "unknown"}:
            raise SettingsError(
                f"{self.files['slope'].name} is in the unit {grid.unit}, expected metres",
                hint="reproject the rasters to a coordinate system in metres, for instance EPSG:5070",
            )
        width, height = abs(grid.transform[0]), abs(grid.transform[4])
        if not np.isclose(width, height, rtol=1e-3):
            raise SettingsError(f"cells are {width:g} × {height:g} m, expected squares")
        self.cell_size = width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rasters) and self._decides == other._decides

    def __hash__(self) -> int:
        return hash(self._decides)

    def crop(self, row: int, column: int, rows: int, columns: int, climate: Climate = CLIMATES["medium"]) -> Landscape:
        """Return the landscape with its upper left cell here. Cells without data and unknown fuels raise an error."""
        layers = {layer: self._read(layer, row, column, rows, columns) for layer in LAYERS}
        flat = layers["aspect"] == -1  # LANDFIRE marks flat ground with -1
        layers["aspect"] = np.where(flat, 0.0, layers["aspect"])
        layers["slope"] = np.where(flat, 0.0, layers["slope"])
        a, b, c, d, e, f = self.transform
        corner = (a, b, c + column * a + row * b, d, e, f + column * d + row * e)
        name = f"{self.folder.resolve().name}, row {row}, column {column}"
        return Landscape(
            layers,
            cell_size=self.cell_size,
            name=name,
            climate=climate,
            geo_reference=GeoReference(self.crs, corner) if self.crs else None,
        )

    def _grid(self, file: Path) -> _Grid:
        try:
            with self._rasterio.open(file) as raster:
                unit = raster.crs.linear_units if raster.crs and not raster.crs.is_geographic else "unknown"
                if raster.crs and raster.crs.is_geographic:
                    unit = "degree"
                return _Grid((raster.height, raster.width), tuple(raster.transform)[:6], raster.crs, unit)
        except self._rasterio.errors.RasterioIOError as error:
            raise SettingsError(f"{file.name} cannot be read as a raster: {error}") from error

    def _check_alike(self, layer: str, grid: _Grid, expected: _Grid) -> None:
        """Refuse layers whose cells are not at the same positions on earth."""
        name, reference = self.files[layer].name, self.files["slope"].name
        tolerance = 1e-6 * abs(expected.transform[0])
        if grid.shape != expected.shape or not np.allclose(grid.transform, expected.transform, rtol=0, atol=tolerance):
            raise SettingsError(
                f"{name} has {grid}, and {reference} has {expected}; expected one grid for all layers",
                hint="align them first, for instance with gdalwarp",
            )
        if grid.crs != expected.crs:
            raise SettingsError(
                f"{name} has {grid.crs_name}, and {reference} has {expected.crs_name}; "
                "expected one coordinate system for all layers",
                hint="bring them into one with gdalwarp -t_srs, or name a missing one with gdal_edit.py -a_srs",
            )

    def _read(self, layer: str, row: int, column: int, rows: int, columns: int) -> NDArray[np.float32]:
        file = self.files[layer]
        if row < 0 or column < 0 or row + rows > self.shape[0] or column + columns > self.shape[1]:
            raise SettingsError(
                f"rows {row} to {row + rows} and columns {column} to {column + columns} were asked for; "
                f"{self.folder.name} has {self.shape[0]} rows and {self.shape[1]} columns"
            )
        with self._rasterio.open(file) as raster:
            window = self._rasterio.windows.Window(column, row, columns, rows)
            values = raster.read(1, window=window)
            missing = ~(raster.read_masks(1, window=window) > 0)
        missing |= ~np.isfinite(values) | (values == -9999) | (values == 32767)  # LANDFIRE's, if undeclared
        if missing.any():
            where_row, where_column = np.argwhere(missing)[0]
            raise NoDataError(
                f"{file.name} has no data in row {row + where_row}, column {column + where_column} "
                f"({np.count_nonzero(missing)} of {missing.size} cells of this part)",
                hint="choose another part, or fill the gaps first",
            )
        scale = _LANDFIRE_SCALES.get(layer, 1.0) if self._units == "landfire" else 1.0
        scaled: NDArray[np.float32] = (values * scale).astype(np.float32)
        return scaled


class RasterCrops:
    """Crops of `grid_size` cells at seeded positions in a folder of rasters. Each is kept once per process."""

    def __init__(self, settings: WildfireSettings) -> None:
        assert settings.raster_dir is not None
        self.count, self._settings = settings.num_landscapes, settings
        self._rasters = Rasters(settings.raster_dir, units=settings.raster_units)
        if min(self._rasters.shape) < settings.grid_size:
            raise SettingsError(
                f"grid_size is {settings.grid_size}, and the rasters of {settings.raster_dir} have "
                f"{self._rasters.shape[0]} rows and {self._rasters.shape[1]} columns"
            )

    def landscape(self, number: int) -> Landscape:
        """Return the first crop of this number's stream with at least half of its cells burnable and none missing."""
        settings = self._settings
        return _crop(self._rasters, settings.grid_size, settings.fire_risk, settings.landscape_seed, number)

    def __reduce__(self) -> tuple[Any, ...]:
        return RasterCrops, (self._settings,)


class WholeRasters:
    """One landscape: all cells of a folder of rasters. It need not be square."""

    count = 1

    def __init__(self, settings: WildfireSettings) -> None:
        assert settings.raster_dir is not None
        self._rasters = Rasters(settings.raster_dir, units=settings.raster_units)
        self._risk = settings.fire_risk

    def landscape(self, number: int) -> Landscape:
        """Return the landscape; every number gives the same one."""
        return _whole(self._rasters, self._risk)


# Environments in the threads of one process share landscapes.
@one_copy
def _whole(rasters: Rasters, risk: str) -> Landscape:
    return rasters.crop(0, 0, *rasters.shape, CLIMATES[risk])


@one_copy
def _crop(rasters: Rasters, size: int, risk: str, seed: int, number: int) -> Landscape:
    """Skip unusable positions. Problems with the rasters themselves raise an error."""
    generator = stream(seed, number)
    reason = "fewer than half of the cells burn"
    for _ in range(_TRIES):
        row, column = (int(generator.integers(extent - size + 1)) for extent in rasters.shape)
        try:
            crop = rasters.crop(row, column, size, size, CLIMATES[risk])
        except (NoDataError, NothingBurnsError) as error:
            reason = str(error)
            continue
        if crop.burnable.mean() >= _LEAST_BURNABLE:
            return crop
    raise SettingsError(f"{_TRIES} places in {rasters.folder} were tried, and none fits: {reason}")


def write_geotiff(path: str | Path, values: NDArray[Any], landscape: Landscape) -> None:
    """Write values [row, column] as a GeoTIFF of the landscape, georeferenced if the landscape is."""
    rasterio = _rasterio()
    if values.shape != landscape.shape:
        raise SettingsError(f"the map has the shape {values.shape}, and the landscape {landscape.shape}")
    reference = landscape.geo_reference
    transform = rasterio.Affine(landscape.cell_size, 0, 0, 0, -landscape.cell_size, 0)
    if reference is not None:
        transform = rasterio.Affine(*reference.transform)
    data = values.astype(np.uint8) if values.dtype == np.bool_ else values
    grid = {"height": data.shape[0], "width": data.shape[1], "count": 1, "dtype": data.dtype, "transform": transform}
    with rasterio.open(path, "w", driver="GTiff", crs=reference.crs if reference else None, **grid) as raster:
        raster.write(data, 1)


def _rasterio() -> Any:
    try:
        import rasterio
        import rasterio.windows
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "rasters are read by rasterio, which is not installed", hint="pip install 'envfleet[wildfire]'"
        ) from error
    return rasterio


def _files_by_layer(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise SettingsError(f"raster_dir {folder} is not a folder")
    files: dict[str, list[Path]] = {layer: [] for layer in LAYERS}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in SUFFIXES and (layer := _layer_of(file.stem.lower())):
            files[layer].append(file)
    found = ", ".join(file.name for file in sorted(folder.iterdir()) if file.suffix.lower() in SUFFIXES) or "none"
    if missing := [layer for layer, candidates in files.items() if not candidates]:
        wanted = "; ".join(f"{layer}: a name with {' or '.join(_NAMES[layer])}" for layer in missing)
        raise SettingsError(
            f"{folder} has no raster for {', '.join(missing)} (rasters there: {found})", hint=f"expected {wanted}"
        )
    for layer, candidates in files.items():
        if len(candidates) > 1:
            names = ", ".join(file.name for file in candidates)
            raise SettingsError(f"{folder} has {len(candidates)} rasters for {layer}: {names}", hint="leave one there")
    return {layer: candidates[0] for layer, candidates in files.items()}


def _layer_of(stem: str) -> str | None:
    words = set(re.split(r"[^a-z0-9]+", stem))
    for layer, names in _NAMES.items():
        if any(name == stem or name in words for name in names):
            return layer
    return next((layer for layer, names in _NAMES.items() if names[0] in stem), None)


def _stamp(file: Path) -> tuple[Path, int, int]:
    """A file with its modification time and size, which change with its content."""
    status = file.stat()
    return file.resolve(), status.st_mtime_ns, status.st_size
