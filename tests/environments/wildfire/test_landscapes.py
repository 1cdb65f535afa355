"""Landscapes: immutable, generated from seeds, read from rasters, with clear errors."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet.environments.wildfire import (
    LAYERS,
    Landscape,
    Rasters,
    WildfireEnv,
    generate_landscape,
    write_geotiff,
)
from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES, RISKS
from envfleet.environments.wildfire.sharing import MOST_SHARED, one_copy
from envfleet.errors import SettingsError
from tests.environments.wildfire.grounds import even_ground

FILES = {
    "slope": "slp.tif",
    "aspect": "asp.tif",
    "elevation": "LC20_Elev_220.tif",
    "canopy_cover": "cc.tif",
    "canopy_bulk_density": "cbd.tif",
    "canopy_base_height": "LC22_CBH_220.tif",
    "canopy_height": "ch.tif",
    "fuel_model": "fbfm40.tif",
}
SCALES = {"canopy_bulk_density": 100, "canopy_base_height": 10, "canopy_height": 10}


def write_rasters(
    folder: Path, landscape: Landscape, *, ascii_grid: bool = False, crs: str | None = "EPSG:5070"
) -> None:
    """Write the layers as LANDFIRE stores them: scaled integers."""
    import rasterio

    rows, columns = landscape.shape
    transform = rasterio.Affine(30, 0, 1000, 0, -30, 9000)
    for layer, name in FILES.items():
        values = np.round(landscape.layer(layer) * SCALES.get(layer, 1)).astype(np.int16)
        if ascii_grid:
            head = f"ncols {columns}\nnrows {rows}\nxllcorner 1000\nyllcorner {9000 - 30 * rows}\ncellsize 30\n"
            text = "\n".join(" ".join(map(str, row)) for row in values.tolist())
            (folder / name).with_suffix(".asc").write_text(f"{head}NODATA_value -9999\n{text}\n")
            continue
        grid = {"height": rows, "width": columns, "count": 1, "dtype": "int16", "transform": transform}
        with rasterio.open(folder / name, "w", driver="GTiff", crs=crs, nodata=-9999, **grid) as raster:
            raster.write(values, 1)


def change(path: Path, row: int, column: int, value: float) -> None:
    import rasterio

    with rasterio.open(path, "r+") as raster:
        values = raster.read(1)
        values[row, column] = value
        raster.write(values, 1)


# ---- landscapes ----


def test_a_landscape_cannot_be_changed_not_even_after_a_pickle() -> None:
    given = np.array(even_ground(6, 102).layers)
    landscape = Landscape(given)
    given[:] = 50  # the caller changes its own array
    copy = pickle.loads(pickle.dumps(landscape))
    for one in (landscape, copy):
        assert (one.layer("fuel_model") == 102).all()
        for array in (one.layers, one.layer("slope"), one.burnable, one.ignition_weights):
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 1
    assert copy.layers.tobytes() == landscape.layers.tobytes()
    assert copy.climate == landscape.climate


@pytest.mark.parametrize(
    ("layer", "value", "message"),
    [
        ("slope", 95, r"slope is 95.0 in row 2, column 3; expected 0 to 89 degrees \(1 of 25 cells are outside\)"),
        ("canopy_cover", np.nan, "canopy_cover is nan in row 2, column 3"),
        ("fuel_model", 106.5, "unknown fuel model 106.5"),
        ("fuel_model", 77, "unknown fuel model 77\nhint: known are 1-13"),
    ],
)
def test_values_that_make_no_sense_are_refused(layer: str, value: float, message: str) -> None:
    layers = even_ground(5, 102).layers.copy()
    layers[list(LAYERS).index(layer), 2, 3] = value
    with pytest.raises(SettingsError, match=message):
        Landscape(layers, name="mine")


def test_layers_that_are_missing_or_do_not_match_are_named() -> None:
    layers: dict[str, Any] = {name: np.zeros((4, 4)) for name in LAYERS}
    with pytest.raises(SettingsError, match=r"different shapes: .*elevation \(3, 4\)"):
        Landscape(layers | {"elevation": np.zeros((3, 4))})
    del layers["aspect"]
    with pytest.raises(SettingsError, match="no layer aspect"):
        Landscape(layers)
    with pytest.raises(SettingsError, match="no cell can burn"):
        even_ground(4, 98)


def test_ignitions_follow_their_weights() -> None:
    layers = even_ground(4, 102).layers.copy()
    layers[7, 0, 0] = 99
    weights = np.zeros((4, 4))
    weights[0, 0], weights[1, 2], weights[3, 3] = 5.0, 1.0, 3.0
    landscape = Landscape(layers, ignition_weights=weights)
    cells, counts = np.unique(landscape.draw_ignitions(np.random.default_rng(0), 4000), return_counts=True)
    assert cells.tolist() == [6, 15]  # not the rock
    assert counts[1] / 4000 == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("kind", LANDSCAPE_TYPES)
def test_a_seed_gives_one_landscape(kind: str) -> None:
    one, same, other = (generate_landscape(kind, "medium", 25, seed) for seed in (4, 4, 5))
    assert one.layers.tobytes() == same.layers.tobytes()
    assert (one.layers != other.layers).mean() > 0.3
    assert 0.85 < one.burnable.mean() < 1
    assert 3 < one.layer("slope").max() < 60
    assert len(np.unique(one.layer("fuel_model"))) >= 5


def test_types_and_risks_are_what_their_names_say() -> None:
    cover = {kind: generate_landscape(kind, "medium", 50, 1).layer("canopy_cover").mean() for kind in LANDSCAPE_TYPES}
    assert cover["forest"] > cover["mixed"] > cover["grassland"]
    winds = [generate_landscape("mixed", risk, 25, 1).climate.wind_kmh for risk in RISKS]
    assert winds == sorted(winds) and len(set(winds)) == 3
    with pytest.raises(SettingsError, match="landscape_type is 'desert', expected one of forest, grassland, mixed"):
        generate_landscape("desert")


def test_aspect_points_downhill() -> None:
    landscape = generate_landscape("forest", "medium", 25, 2)
    elevation, aspect = landscape.layer("elevation"), np.radians(landscape.layer("aspect"))
    steep = landscape.layer("slope")[1:-1, 1:-1] > 10
    to_south = (elevation[2:, 1:-1] - elevation[:-2, 1:-1])[steep]
    to_east = (elevation[1:-1, 2:] - elevation[1:-1, :-2])[steep]
    inner = aspect[1:-1, 1:-1][steep]
    assert ((-np.cos(inner) * to_south + np.sin(inner) * to_east) < 0).all()


# ---- rasters ----


@pytest.mark.parametrize("ascii_grid", [False, True])
def test_rasters_come_back_as_they_were(tmp_path: Path, ascii_grid: bool) -> None:
    landscape = generate_landscape("mixed", "medium", 40, 9)
    write_rasters(tmp_path, landscape, ascii_grid=ascii_grid)
    rasters = Rasters(tmp_path)
    assert rasters.shape == (40, 40) and rasters.cell_size == 30
    crop = rasters.crop(5, 12, 20, 25)
    np.testing.assert_allclose(crop.layers, landscape.layers[:, 5:25, 12:37], atol=0.06)
    if not ascii_grid:
        assert crop.geo_reference is not None
        assert crop.geo_reference.transform[2] == 1000 + 12 * 30 and crop.geo_reference.transform[5] == 9000 - 5 * 30


def test_flat_ground_in_landfire_has_aspect_minus_one(tmp_path: Path) -> None:
    write_rasters(tmp_path, generate_landscape("mixed", "medium", 10, 9))
    change(tmp_path / "asp.tif", 1, 1, -1)
    crop = Rasters(tmp_path).crop(0, 0, 10, 10)
    assert crop.layer("aspect")[1, 1] == 0 and crop.layer("slope")[1, 1] == 0


def test_what_is_wrong_with_rasters_is_said(tmp_path: Path) -> None:
    landscape = generate_landscape("mixed", "medium", 12, 9)
    with pytest.raises(SettingsError, match="nowhere is not a folder"):
        Rasters(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"has no raster for slope, aspect, .* \(rasters there: none\)"):
        Rasters(tmp_path)
    write_rasters(tmp_path, landscape)
    (tmp_path / "cbd.tif").rename(tmp_path / "cbd.bak")
    with pytest.raises(SettingsError, match=r"no raster for canopy_bulk_density .*\nhint: .*a name with"):
        Rasters(tmp_path)
    (tmp_path / "cbd.bak").rename(tmp_path / "cbd.tif")
    change(tmp_path / "ch.tif", 3, 4, -9999)
    with pytest.raises(SettingsError, match=r"ch.tif has no data in row 3, column 4 \(1 of 100 cells"):
        Rasters(tmp_path).crop(0, 0, 10, 10)
    change(tmp_path / "ch.tif", 3, 4, 0)
    change(tmp_path / "fbfm40.tif", 2, 2, 177)
    with pytest.raises(SettingsError, match="unknown fuel model 177"):
        Rasters(tmp_path).crop(0, 0, 10, 10)
    with pytest.raises(SettingsError, match="has 12 rows and 12 columns"):
        Rasters(tmp_path).crop(5, 5, 10, 10)
    (tmp_path / "slope.tif").write_bytes(b"no raster")
    with pytest.raises(SettingsError, match=r"has 2 rasters for slope: slope\.tif, slp\.tif"):
        Rasters(tmp_path)


def test_grids_have_to_match_and_be_in_metres(tmp_path: Path) -> None:
    for name, size, crs in (("small", 12, "EPSG:5070"), ("large", 13, "EPSG:5070"), ("degrees", 12, "EPSG:4326")):
        (tmp_path / name).mkdir()
        write_rasters(tmp_path / name, generate_landscape("mixed", "medium", size, 9), crs=crs)
    (tmp_path / "large" / "cc.tif").replace(tmp_path / "small" / "cc.tif")
    with pytest.raises(SettingsError, match=r"cc\.tif has 13 × 13 cells .* and slp\.tif has 12 × 12 cells"):
        Rasters(tmp_path / "small")
    with pytest.raises(SettingsError, match="in the unit degree, expected metres\nhint: reproject"):
        Rasters(tmp_path / "degrees")


@pytest.mark.parametrize(
    ("crs", "said"), [("EPSG:32611", "the coordinate system EPSG:32611"), (None, "no coordinate system")]
)
def test_layers_have_one_coordinate_system(tmp_path: Path, crs: str | None, said: str) -> None:
    """The same corner coordinates mean another place in another coordinate system."""
    for name, system in (("here", "EPSG:5070"), ("elsewhere", crs)):
        (tmp_path / name).mkdir()
        write_rasters(tmp_path / name, generate_landscape("mixed", "medium", 12, 9), crs=system)
    (tmp_path / "elsewhere" / "cc.tif").replace(tmp_path / "here" / "cc.tif")
    expected = rf"cc\.tif has {said}, and slp\.tif has the coordinate system EPSG:5070; .*\nhint: .*gdalwarp -t_srs"
    with pytest.raises(SettingsError, match=expected):
        WildfireEnv(raster_dir=str(tmp_path / "here"), grid_size=10)


def test_an_environment_takes_crops_of_rasters(tmp_path: Path) -> None:
    write_rasters(tmp_path, generate_landscape("mixed", "medium", 40, 9))
    change(tmp_path / "LC20_Elev_220.tif", 0, 0, -9999)  # no crop may hold this cell
    env = WildfireEnv(raster_dir=str(tmp_path), grid_size=20, num_landscapes=3)
    names = []
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        assert observation in env.observation_space
        names.append(env.landscape.name)
    assert len(set(names)) == 3 and names[0] == names[3]
    assert all("row 0, column 0" not in name for name in names)
    with pytest.raises(SettingsError, match="grid_size is 41, and the rasters"):
        WildfireEnv(raster_dir=str(tmp_path), grid_size=41)


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("fbfm40.tif", 177, "unknown fuel model 177\nhint: known are 1-13"),
        ("cc.tif", 130, r"row \d, column \d: canopy_cover is 130.0 in row \d, column \d; expected 0 to 100 %"),
        ("slp.tif", -5, "slope is -5.0 in row .* expected 0 to 89 degrees"),
        ("asp.tif", -30, "aspect is -30.0 in row .* expected 0 to 360 degrees"),
    ],
)
def test_wrong_values_in_rasters_reach_whoever_trains(tmp_path: Path, file: str, value: int, message: str) -> None:
    """Wrong values are not skipped, unlike cells without data, which the same rasters also have."""
    write_rasters(tmp_path, generate_landscape("mixed", "medium", 13, 9))
    for row in range(13):
        change(tmp_path / "ch.tif", row, 0, -9999)  # only crops that start in columns 1 to 3 remain
    change(tmp_path / file, 6, 6, value)  # all of them contain this cell
    env = WildfireEnv(raster_dir=str(tmp_path), grid_size=10)
    with pytest.raises(SettingsError, match=message):
        env.reset(seed=0)


def test_crops_without_data_and_without_fuel_are_passed_over(tmp_path: Path) -> None:
    """A lake and a column without data leave only the right third of the rasters."""
    layers = generate_landscape("mixed", "medium", 30, 9).layers.copy()
    layers[list(LAYERS).index("fuel_model"), :, :15] = 98
    write_rasters(tmp_path, Landscape(layers))
    for row in range(30):
        change(tmp_path / "cbd.tif", row, 18, 32767)
    env = WildfireEnv(raster_dir=str(tmp_path), grid_size=8, num_landscapes=12)
    for number in range(12):
        env.reset(options={"landscape": number})
        assert int(env.landscape.name.rpartition(" ")[2]) > 18
    for row in range(30):
        change(tmp_path / "cbd.tif", row, 25, -9999)
    with pytest.raises(SettingsError, match=r"200 places in .*, and none fits: (cbd\.tif has no data|.*burn)"):
        WildfireEnv(raster_dir=str(tmp_path), grid_size=8).reset(seed=0)


def test_environments_of_a_process_share_crops_until_the_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rasters(tmp_path, generate_landscape("mixed", "medium", 40, 9))
    monkeypatch.chdir(tmp_path.parent)

    def first(folder: str = str(tmp_path), **settings: Any) -> Landscape:
        env = WildfireEnv(raster_dir=folder, grid_size=20, num_landscapes=3, **settings)
        env.reset(options={"landscape": 1})
        return env.landscape

    shared = first()
    assert first() is shared and first(budget_percent=2.0) is shared and first(tmp_path.name) is shared
    for other in (first(landscape_seed=5), first(fire_risk="high")):
        assert other is not shared
    change(tmp_path / "LC20_Elev_220.tif", 20, 20, 8000)
    changed = first()
    assert changed is not shared and changed.layer("elevation").max() == 8000
    with pytest.raises(SettingsError, match=r"canopy_bulk_density is .* expected 0 to 2 kg/m³"):
        first(raster_units="plain")  # other numbers from the same files


def test_threads_that_ask_at_the_same_time_get_the_same_landscape() -> None:
    together = threading.Barrier(2, timeout=100)

    @one_copy
    def slow(size: int, fuel: int) -> Landscape:
        together.wait()  # both threads are building it
        return even_ground(size, fuel)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(slow, (6, 6), (102, 102))
    assert one is other and slow(6, 102) is one  # not built a third time


def test_only_the_last_landscapes_are_kept() -> None:
    made: list[int] = []

    @one_copy
    def noted(number: int) -> Landscape:
        made.append(number)
        return even_ground(4, 102)

    for number in (*range(MOST_SHARED), 0, MOST_SHARED, 0, 1):  # 0 was used recently when 1 was evicted
        noted(number)
    assert made == [*range(MOST_SHARED), MOST_SHARED, 1]


def test_maps_go_to_geotiff(tmp_path: Path) -> None:
    import rasterio

    write_rasters(tmp_path, generate_landscape("mixed", "medium", 12, 9))
    crop = Rasters(tmp_path).crop(2, 3, 8, 8)
    write_geotiff(tmp_path / "breaks.tif", np.eye(8, dtype=np.bool_), crop)
    with rasterio.open(tmp_path / "breaks.tif") as raster:
        assert (raster.read(1) == np.eye(8)).all()
        assert raster.crs.to_epsg() == 5070 and raster.xy(0, 0) == (1000 + 3.5 * 30, 9000 - 2.5 * 30)
    with pytest.raises(SettingsError, match=r"the map has the shape \(3, 3\)"):
        write_geotiff(tmp_path / "other.tif", np.zeros((3, 3)), crop)


def test_whole_rasters_are_one_landscape_that_need_not_be_square(tmp_path: Path) -> None:
    whole = generate_landscape(size=14, seed=3)
    write_rasters(tmp_path, Landscape(whole.layers[:, :10]))
    env = WildfireEnv(raster_dir=str(tmp_path), whole_rasters=True, block_size=2)
    for number in range(2):
        observation, _ = env.reset(seed=number)
        assert observation.shape == (9, 10, 14) and env.action_space.n == 35
        np.testing.assert_allclose(env.landscape.layer("fuel_model"), whole.layer("fuel_model")[:10])
        assert env.landscape.geo_reference is not None and not env.landscapes_are_crops
    with pytest.raises(SettingsError, match="whole_rasters is set without raster_dir"):
        WildfireEnv(whole_rasters=True)
