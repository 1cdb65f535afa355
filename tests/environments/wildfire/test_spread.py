"""Minimum travel time: closed forms, breaks, and pyretechnics' fires."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from envfleet.environments.wildfire import Fire, Landscape, SurfaceFire, Weather, draw_fires, generate_landscape
from envfleet.environments.wildfire.centrality import path_centrality
from envfleet.environments.wildfire.spread import arrival_minutes
from tests.environments.wildfire.grounds import even_ground

CALM = Weather(wind_kmh=0)
REFERENCE = np.load(Path(__file__).parent / "pyretechnics_spread.npz")


def spread(
    landscape: Landscape, weather: Weather, minutes: float, breaks: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the arrival times of a fire from the middle."""
    rows, columns = landscape.shape
    breaks = np.zeros(landscape.shape, np.bool_) if breaks is None else breaks
    return SurfaceFire()(landscape, [Fire(rows // 2 * columns + columns // 2, weather)], breaks, minutes)[0]


def ellipse_metric(size: int, length_to_width: float, azimuth: float) -> NDArray[np.float64]:
    """Return the metric of 30 m cells that a head fire crosses at 1 m/min: [1, size, size, 5]."""
    eccentricity = math.sqrt(length_to_width**2 - 1) / length_to_width
    slowness, angle = 30 / (1 - eccentricity), math.radians(azimuth)
    along = slowness * eccentricity
    return np.tile(
        [slowness**2, 0.0, slowness**2, -along * math.cos(angle), along * math.sin(angle)], (1, size, size, 1)
    )


def test_without_wind_a_circle() -> None:
    arrival = spread(even_ground(41, 102), CALM, 1e9)
    rows, columns = np.mgrid[:41, :41] - 20
    per_cell = arrival[20, 21]
    np.testing.assert_allclose(arrival, per_cell * np.hypot(rows, columns), rtol=0.005)


@pytest.mark.parametrize(("length_to_width", "azimuth"), [(1.5, 90.0), (2.0, 110.0), (3.0, 20.0), (4.0, 222.0)])
def test_in_wind_an_ellipse_with_the_ignition_in_its_focus(length_to_width: float, azimuth: float) -> None:
    size, minutes = 81, 900.0  # the head travels 30 cells
    middle = size * size // 2
    breaks = np.zeros((size, size), np.bool_)
    zero = np.zeros(1, np.int64)
    arrival = arrival_minutes(ellipse_metric(size, length_to_width, azimuth), zero, np.array([middle]), breaks, 1e9)[0]
    rows, columns = np.mgrid[:size, :size] - size // 2
    eccentricity = math.sqrt(length_to_width**2 - 1) / length_to_width
    angle = math.radians(azimuth)
    ahead = columns * math.sin(angle) - rows * math.cos(angle)
    exact = 30 * (np.hypot(rows, columns) - eccentricity * ahead) / (1 - eccentricity)
    burned = arrival <= minutes
    length = 30 * (1 + (1 - eccentricity) / (1 + eccentricity))  # cells, head and back
    area = math.pi / 4 * length**2 / length_to_width
    assert burned.sum() == pytest.approx(area, rel=0.05)
    assert (arrival >= exact - 1e-6).all()  # no path is quicker than the straight line
    assert np.median((arrival / np.maximum(exact, 1e-9))[burned & (exact > 0)]) < 1.01
    across = rows * math.sin(angle) + columns * math.cos(angle)
    ratio = np.ptp(ahead[burned]) / np.ptp(across[burned])
    assert ratio == pytest.approx(length_to_width, rel=0.12)  # the width is only a few cells


def test_nothing_burns_behind_a_break_across_the_valley() -> None:
    layers = even_ground(31, 102).layers.copy()
    layers[7, :10], layers[7, 21:] = 99, 99  # rock on both sides of the valley
    valley, breaks = Landscape(layers), np.zeros((31, 31), np.bool_)
    wind = Weather(wind_kmh=25, wind_from=270)
    assert np.isfinite(spread(valley, wind, 600, breaks)[10:21, 21:]).all()
    breaks[10:21, 20] = True
    arrival = spread(valley, wind, 600, breaks)
    assert not np.isfinite(arrival[:, 20:]).any()
    assert np.isfinite(arrival[10:21, 19]).all()
    breaks[14, 20] = False  # a gap
    assert np.isfinite(spread(valley, wind, 600, breaks)[10:21, 21:]).any()


def test_a_diagonal_line_of_breaks_holds_and_one_corner_does_not() -> None:
    ground = even_ground(21, 102)
    breaks = np.zeros((21, 21), np.bool_)
    breaks[np.arange(21), 24 - np.arange(4, 25)] = True  # the diagonal from (0, 20) to (20, 0)
    ignition = [Fire(5 * 21 + 5, CALM)]
    arrival = SurfaceFire()(ground, ignition, breaks, 1e9)[0]
    rows, columns = np.mgrid[:21, :21]
    assert np.isfinite(arrival[rows + columns < 20]).all()
    assert not np.isfinite(arrival[rows + columns >= 20]).any()
    single = np.zeros((21, 21), np.bool_)
    single[5, 6] = True
    free = SurfaceFire()(ground, ignition, np.zeros_like(single), 1e9)[0]
    beside = SurfaceFire()(ground, ignition, single, 1e9)[0]
    assert beside[6, 6] == free[6, 6]  # one break beside a corner does not block the diagonal step
    assert beside[5, 7] > free[5, 7]


def test_a_break_only_delays_what_lies_behind_it() -> None:
    landscape = generate_landscape("mixed", "high", 25, 3)
    fires = draw_fires(landscape, np.random.default_rng(0), 20)
    breaks, model = np.zeros((25, 25), np.bool_), SurfaceFire()
    without = model(landscape, fires, breaks, 120)
    breaks[12, 5:20] = True
    with_breaks = model(landscape, fires, breaks, 120)
    assert not np.isfinite(with_breaks[:, breaks]).any()
    later = np.where(np.isfinite(with_breaks), with_breaks, 1e9) - np.where(np.isfinite(without), without, 1e9)
    assert later.min() > -0.5  # minutes; only a few kinds of paths are tried, so an arrival can be slightly earlier
    assert (later > 1).any()


def test_many_fires_in_one_call_are_the_same_fires() -> None:
    landscape, model = generate_landscape("forest", "high", 25, 1), SurfaceFire()
    fires, breaks = draw_fires(landscape, np.random.default_rng(5), 12), np.zeros((25, 25), np.bool_)
    together = model(landscape, fires, breaks, 120)
    alone = np.concatenate([SurfaceFire()(landscape, [fire], breaks, 120) for fire in fires])
    assert together.tobytes() == alone.tobytes()
    longer = model(landscape, fires, breaks, 240)
    assert (longer[np.isfinite(together)] == together[np.isfinite(together)]).all()
    assert np.isfinite(longer).sum() > np.isfinite(together).sum()


def test_a_fire_that_begins_in_a_break_does_not_burn() -> None:
    breaks = np.zeros((5, 5), np.bool_)
    breaks[2, 2] = True
    assert not np.isfinite(spread(even_ground(5, 102), CALM, 1e9, breaks)).any()


def test_centrality_counts_what_a_cell_leads_to() -> None:
    corridor = np.full((1, 3, 6), np.inf)
    corridor[0, 1] = [0, 1, 2, 3, 4, 5]
    corridor[0, 0, 5] = 8  # 3 later than the cell below; 4 / sqrt(2) per unit distance later than the diagonal one
    expected = np.zeros((3, 6))
    expected[1] = [7, 6, 5, 4, 3, 2]
    expected[0, 5] = 1
    np.testing.assert_array_equal(path_centrality(corridor, np.array([-1])), expected)
    three = path_centrality(np.concatenate([corridor] * 3), np.array([-1, 6, 8]))  # the corridor begins with cell 6
    expected *= 3
    expected[1, 0] -= 7
    expected[1, 2] -= 5
    np.testing.assert_array_equal(three, expected)


def test_fires_burn_what_pyretechnics_burns() -> None:
    """Pyretechnics uses another method (a level set), so cells differ at the edge and behind one-cell bottlenecks."""
    areas, shared, orders = [], [], []
    for layers, weather, ignition, theirs in zip(
        *(REFERENCE[key] for key in ("layers", "weathers", "ignitions", "arrival")), strict=True
    ):
        landscape = Landscape(layers)
        fire = Fire(int(ignition), Weather(*map(float, weather)))
        ours = SurfaceFire()(landscape, [fire], np.zeros(landscape.shape, np.bool_), 120)[0]
        both = np.isfinite(ours) & np.isfinite(theirs)
        areas.append([np.isfinite(ours).sum(), np.isfinite(theirs).sum()])
        shared.append(both.sum() / np.isfinite(theirs).sum())
        ranks = [np.argsort(np.argsort(arrival[both])) for arrival in (ours, theirs)]
        orders.append(np.corrcoef(*ranks)[0, 1])
    assert len(areas) >= 10
    ours_total, theirs_total = np.sum(areas, axis=0)
    assert ours_total == pytest.approx(theirs_total, rel=0.1)
    assert np.median(shared) > 0.9
    assert np.median(orders) > 0.9
