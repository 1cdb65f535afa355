"""Rothermel's model, compared with pyretechnics and with known answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from envfleet.environments.wildfire import Landscape, SurfaceFire, Weather
from envfleet.environments.wildfire.fuels import fuel_models, fuel_table
from envfleet.environments.wildfire.rothermel import FEET_PER_METRE, fuel_bed, midflame_factor, spread_ellipse
from tests.environments.wildfire.grounds import even_ground

REFERENCE = json.loads((Path(__file__).parent / "pyretechnics_reference.json").read_text())
DRY = np.array([0.05, 0.06, 0.07, 0.6, 0.9])


def vector(length: float, azimuth: float) -> tuple[float, float]:
    """Return (row, column) of a vector with this azimuth, clockwise from north."""
    angle = math.radians(azimuth)
    return -length * math.cos(angle), length * math.sin(angle)


def test_agrees_with_pyretechnics_within_a_hundredth_of_a_percent() -> None:
    """Half of that is pyretechnics' 3.281 ft per metre. For fuel that is too wet it returns 1e-15, we return 0."""
    expected, received = [], []
    for case in REFERENCE["cases"]:
        number, *moistures, wind, wind_from, slope, aspect, base, head, length_to_width = case
        bed = fuel_bed(fuel_table()[number], np.array(moistures))
        wind_vector = vector(wind * FEET_PER_METRE, wind_from + 180)
        ellipse = spread_ellipse(bed, *wind_vector, *vector(slope, aspect + 180))
        expected.append([base, head, length_to_width])
        received.append([bed[0] / FEET_PER_METRE, ellipse[0], ellipse[1]])
    assert len(expected) >= 200
    assert len({case[0] for case in REFERENCE["cases"]}) == 53
    ours, theirs = np.array(received), np.array(expected)  # [case, (base rate, rate of the head, length to width)]
    burns = theirs[:, 0] >= 1e-3
    assert np.count_nonzero(burns) >= 250
    np.testing.assert_allclose(ours[burns], theirs[burns], rtol=1e-4)
    np.testing.assert_allclose(ours[~burns], theirs[~burns], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("number", "rate"),
    # Metres per minute without wind and slope at the moistures DRY. (Pyretechnics' 3.281 ft per metre gives 5e-5 less.)
    [(1, 1.4840398), (102, 0.4910218), (145, 0.7519668), (165, 0.3271971), (188, 0.2754327)],
)
def test_pinned_rates(number: int, rate: float) -> None:
    assert fuel_bed(fuel_table()[number], DRY)[0] / FEET_PER_METRE == pytest.approx(rate, rel=1e-6)


def test_herbs_that_cure_become_dead_fuel() -> None:
    """Above 120 % moisture all herbs are green, below 30 % all are cured; in between it is gradual."""
    rates = [fuel_bed(fuel_table()[102], np.array([0.05, 0.06, 0.07, herbs, 0.9]))[0] for herbs in (0.3, 0.75, 1.2)]
    assert rates[0] > 2 * rates[1] > 4 * rates[2] >= 0
    anderson = [fuel_bed(fuel_table()[3], np.array([0.05, 0.06, 0.07, herbs, 0.9]))[0] for herbs in (0.3, 1.2)]
    assert anderson[0] == anderson[1]  # has no herbs


def test_what_cannot_burn_does_not() -> None:
    assert fuel_bed(fuel_table()[98], DRY)[0] == 0
    assert fuel_bed(fuel_table()[1], np.array([0.12, 0.12, 0.12, 0.6, 0.9]))[0] == 0  # its moisture of extinction
    assert fuel_bed(fuel_table()[1], np.array([0.119, 0.12, 0.12, 0.6, 0.9]))[0] > 0


def test_wind_above_its_limit_makes_no_fire_faster() -> None:
    bed = fuel_bed(fuel_table()[101], DRY)
    limit = 0.9 * bed[1]  # ft/min
    at_limit, beyond, below = (spread_ellipse(bed, 0.0, wind, 0.0, 0.0)[0] for wind in (limit, 3 * limit, limit / 2))
    assert beyond == pytest.approx(at_limit, rel=1e-12)
    assert below < 0.9 * at_limit


def test_wind_and_slope_against_each_other() -> None:
    """A wind that blows uphill adds to the slope; across it, the head lies between the two."""
    bed = fuel_bed(fuel_table()[102], DRY)
    calm_flat = spread_ellipse(bed, 0.0, 0.0, 0.0, 0.0)
    assert calm_flat == (bed[0] / FEET_PER_METRE, 1.0, 0.0, 0.0)
    slope = spread_ellipse(bed, 0.0, 0.0, *vector(0.4, 0))
    wind = spread_ellipse(bed, *vector(200.0, 0), 0.0, 0.0)
    both = spread_ellipse(bed, *vector(200.0, 0), *vector(0.4, 0))
    across = spread_ellipse(bed, *vector(200.0, 90), *vector(0.4, 0))
    assert both[0] > max(slope[0], wind[0]) > calm_flat[0]
    assert slope[2] < 0 and slope[3] == pytest.approx(0)  # to the north
    assert across[2] < 0 < across[3]


def test_a_canopy_shelters_the_fire_from_wind() -> None:
    assert midflame_factor(1.0, 0.0, 0.0) == pytest.approx(1.83 / math.log(20.36 / 0.13))
    sheltered = 0.555 / (math.sqrt(0.2 * 60) * math.log((20 + 0.36 * 60) / (0.13 * 60)))
    assert midflame_factor(1.0, 60.0, 0.6) == pytest.approx(sheltered)
    assert midflame_factor(1.0, 60.0, 0.1) == midflame_factor(1.0, 0.0, 0.0)  # too thin to shelter


def test_the_metric_gives_the_rates_of_the_ellipse() -> None:
    """Downwind, a cell takes the time of the head; upwind, (1 + e) / (1 - e) times as long."""
    ground, weather = even_ground(5, 102), Weather(wind_kmh=20, wind_from=270)
    p, _, _, _, v = SurfaceFire().metric(ground, weather)[2, 2]
    bed = fuel_bed(fuel_table()[102], np.array(weather.moistures))
    wind = 20_000 / 60 * FEET_PER_METRE * midflame_factor(1.0, 0.0, 0.0)
    head, length_to_width, *_ = spread_ellipse(bed, 0.0, wind, 0.0, 0.0)
    eccentricity = math.sqrt(length_to_width**2 - 1) / length_to_width
    assert math.sqrt(p) - v == pytest.approx(30 / head)
    assert math.sqrt(p) + v == pytest.approx(30 / head * (1 + eccentricity) / (1 - eccentricity))


def test_a_slope_makes_the_way_longer() -> None:
    """A cell is 30 m wide across a slope and 30 m / cos along it; the symmetric part of the travel time shows it."""
    layers = even_ground(5, 102).layers.copy()
    layers[0], layers[1] = 45.0, 180.0  # faces south, rises to the north
    p, q, r, *_ = SurfaceFire().metric(Landscape(layers), Weather(wind_kmh=0))[2, 2]
    assert p / r == pytest.approx(2.0, rel=1e-6)
    assert q == pytest.approx(0, abs=1e-9 * p)


def test_all_fuel_models_are_there() -> None:
    numbers = [number for number, fuel in fuel_models().items() if fuel.burns]
    assert len([number for number in numbers if number <= 13]) == 13
    assert len([number for number in numbers if number > 100]) == 40
    assert fuel_models()[104].code == "GR4" and fuel_models()[104].dynamic and not fuel_models()[2].dynamic
