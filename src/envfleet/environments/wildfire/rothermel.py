"""Rothermel's surface fire spread model after Andrews (2018, RMRS-GTR-371), in Numba kernels.

`fuel_bed` is the fire without wind and slope, with curing herbs (Scott and Burgan 2005). `spread_ellipse` adds wind and
slope. Both act in the plane of the slope: on a hillside, wind and fire travel farther than on the map. Wind above the
limit of 0.9 times the reaction intensity does not make a fire faster.

Internally, units are those of the reports (ft, lb, Btu, min). The kernels return rates in metres per minute. Vectors
are (row, column): row numbers grow to the south, column numbers to the east.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.compilation import kernel

__all__ = ["METRIC_SIZE", "fuel_bed", "midflame_factor", "spread_ellipse", "travel_metric"]

Floats = NDArray[np.float64]

METRIC_SIZE = 5
FEET_PER_METRE = 1 / 0.3048
FEET_PER_MINUTE_OF_KMH = 1000 / 60 * FEET_PER_METRE
MPH_OF_FEET_PER_MINUTE = 60 / 5280
PARTICLE_DENSITY = 32.0  # lb/ft³
TOTAL_MINERALS = 0.0555
MINERAL_DAMPING = 0.174 * 0.010**-0.19  # effective mineral content 1 %
LARGEST_LENGTH_TO_WIDTH = 8.0


@kernel
def _size_class(surface_to_volume: float) -> int:
    """Albini's size class. Net fuel loads are weighted within a class."""
    if surface_to_volume >= 1200.0:
        return 1
    if surface_to_volume >= 192.0:
        return 2
    if surface_to_volume >= 96.0:
        return 3
    if surface_to_volume >= 48.0:
        return 4
    return 5 if surface_to_volume >= 16.0 else 6


@kernel
def _moisture_damping(moisture: float, extinction: float) -> float:
    if moisture >= extinction:
        return 0.0
    r = moisture / extinction
    return 1.0 - 2.59 * r + 5.11 * r**2 - 3.52 * r**3


@kernel
def _live_extinction(load: Floats, ratio: Floats, moisture: Floats, dead_extinction: float) -> float:
    """Moisture at which live fuel stops burning. It rises with the amount of dry dead fuel."""
    dead, dead_moisture, live = 0.0, 0.0, 0.0
    for i in range(6):
        if ratio[i] > 0.0:
            if i < 4:
                fine = load[i] * math.exp(-138.0 / ratio[i])
                dead += fine
                dead_moisture += moisture[i] * fine
            else:
                live += load[i] * math.exp(-500.0 / ratio[i])
    if dead <= 1e-6 or live <= 1e-6:
        return dead_extinction
    return max(dead_extinction, 2.9 * dead / live * (1.0 - dead_moisture / dead / dead_extinction) - 0.226)


@kernel
def fuel_bed(fuel: Floats, moistures: Floats) -> tuple[float, float, float, float, float]:
    """The fire without wind and slope in one fuel (a row of `fuel_table`), at the moistures of its five classes.

    Returns the rate of spread (ft/min), the reaction intensity (Btu/ft²/min), and a, b, c. Wind (U in ft/min) and slope
    (rise over run) multiply the rate by 1 + a * U**b and 1 + c * slope**2.
    """
    depth, dead_extinction, heat, dynamic = fuel[0], fuel[1], fuel[2], fuel[3]
    if depth <= 0.0:
        return 0.0, 0.0, 0.0, 1.0, 0.0
    # Classes: dead 1 h, 10 h, 100 h, dead herbs, live herbs, live wood.
    load, ratio, moisture = np.zeros(6), np.zeros(6), np.zeros(6)
    for i in range(3):
        load[i], ratio[i], moisture[i] = fuel[4 + i], fuel[9 + i], moistures[i]
    for i in range(4, 6):
        load[i], ratio[i], moisture[i] = fuel[3 + i], fuel[8 + i], moistures[i - 1]
    if dynamic > 0.0:
        green = max(0.0, min(1.0, moisture[4] / 0.9 - 1.0 / 3.0))
        load[3], ratio[3], moisture[3] = load[4] * (1.0 - green), ratio[4], moisture[0]
        load[4] *= green
    surface = ratio * load / PARTICLE_DENSITY
    dead_surface, live_surface = surface[:4].sum(), surface[4:].sum()
    total_surface = dead_surface + live_surface
    live_extinction = _live_extinction(load, ratio, moisture, dead_extinction)

    sigma, heat_per_area, heat_sink = 0.0, 0.0, 0.0
    for first, end, category_surface, extinction in (
        (0, 4, dead_surface, dead_extinction),
        (4, 6, live_surface, live_extinction),
    ):
        if category_surface <= 1e-6:
            continue
        net_load, category_moisture = 0.0, 0.0
        for i in range(first, end):
            share = surface[i] / category_surface
            share_of_size = 0.0
            for j in range(first, end):
                if _size_class(ratio[j]) == _size_class(ratio[i]):
                    share_of_size += surface[j] / category_surface
            net_load += share_of_size * load[i] * (1.0 - TOTAL_MINERALS)
            category_moisture += share * moisture[i]
            sigma += surface[i] / total_surface * ratio[i]
            if ratio[i] > 0.0:
                preignition = 250.0 + 1116.0 * moisture[i]
                heat_sink += surface[i] / total_surface * math.exp(-138.0 / ratio[i]) * preignition
        heat_per_area += net_load * heat * _moisture_damping(category_moisture, extinction) * MINERAL_DAMPING
    bulk_density = load.sum() / depth
    packing = bulk_density / PARTICLE_DENSITY
    optimum = 3.348 * sigma**-0.8189
    relative = packing / optimum
    exponent = 133.0 * sigma**-0.7913
    velocity = sigma**1.5 / (495.0 + 0.0594 * sigma**1.5) * relative**exponent * math.exp(exponent * (1.0 - relative))
    intensity = velocity * heat_per_area
    propagating_flux = math.exp((0.792 + 0.681 * math.sqrt(sigma)) * (packing + 0.1)) / (192.0 + 0.2595 * sigma)
    rate = intensity * propagating_flux / (bulk_density * heat_sink)

    wind_exponent = 0.02526 * sigma**0.54
    wind_factor = 7.47 * math.exp(-0.133 * sigma**0.55) * relative ** (-0.715 * math.exp(-3.59e-4 * sigma))
    return rate, intensity, wind_factor, wind_exponent, 5.275 * packing**-0.3


@kernel
def midflame_factor(fuel_depth: float, canopy_height: float, canopy_cover: float) -> float:
    """Ratio of midflame wind to wind 20 ft above the vegetation (Andrews 2012). Heights in ft, cover 0-1."""
    filled = canopy_cover / 3.0
    if filled >= 0.05 and canopy_height >= 6.0:
        shelter = math.log((20.0 + 0.36 * canopy_height) / (0.13 * canopy_height))
        return 0.555 / (math.sqrt(filled * canopy_height) * shelter)
    if fuel_depth <= 0.0:
        return 0.0
    return 1.83 / math.log((20.0 + 0.36 * fuel_depth) / (0.13 * fuel_depth))


@kernel
def spread_ellipse(
    bed: tuple[float, float, float, float, float],
    wind_row: float,
    wind_column: float,
    rise_row: float,
    rise_column: float,
) -> tuple[float, float, float, float]:
    """A fire's ellipse from its fuel bed, the midflame wind (ft/min) and the gradient of the ground (rise over run).

    Returns the rate of the head (m/min), the ratio of length to width, and the head's direction on the map. The
    direction has length 1 in the plane of the slope; without wind and slope it is (0, 0).
    """
    rate, intensity, wind_factor, wind_exponent, slope_factor = bed
    # Projected onto the slope, a map vector v gets the height v · rise.
    wind = math.sqrt(wind_row**2 + wind_column**2 + (wind_row * rise_row + wind_column * rise_column) ** 2)
    rise_squared = rise_row**2 + rise_column**2
    push_row, push_column = 0.0, 0.0
    if wind > 0.0:
        by_wind = wind_factor * wind**wind_exponent / wind
        push_row, push_column = by_wind * wind_row, by_wind * wind_column
    if rise_squared > 0.0:
        by_slope = slope_factor * rise_squared / math.sqrt(rise_squared + rise_squared**2)
        push_row, push_column = push_row + by_slope * rise_row, push_column + by_slope * rise_column
    push = math.sqrt(push_row**2 + push_column**2 + (push_row * rise_row + push_column * rise_column) ** 2)
    if push <= 0.0 or rate <= 0.0:
        return rate / FEET_PER_METRE, 1.0, 0.0, 0.0
    effective_wind = (push / wind_factor) ** (1.0 / wind_exponent)
    limited_push = push
    if effective_wind > 0.9 * intensity:
        effective_wind = 0.9 * intensity
        limited_push = wind_factor * effective_wind**wind_exponent
    mph = effective_wind * MPH_OF_FEET_PER_MINUTE
    length_to_width = 0.936 * math.exp(0.1147 * mph) + 0.461 * math.exp(-0.0692 * mph) - 0.397
    length_to_width = max(1.0, min(LARGEST_LENGTH_TO_WIDTH, length_to_width))
    return rate * (1.0 + limited_push) / FEET_PER_METRE, length_to_width, push_row / push, push_column / push


@kernel
def travel_metric(
    layers: NDArray[np.float32], fuels: Floats, moistures: Floats, wind_kmh: float, wind_from: float, cell_size: float
) -> Floats:
    """Travel time of fire through each cell, in any direction, under one weather: [row, column, 5].

    A fire grows as an ellipse with the ignition at its focus. The time for a displacement d on the map is (|d| - e h ·
    d) / (R (1 - e)), with lengths in the plane of the slope, e the eccentricity, R and h the rate and direction of the
    head. Per cell this reduces to five numbers (p, q, r, u, v): minutes(d) = sqrt(p d0² + 2 q d0 d1 + r d1²) - u d0 - v
    d1, for d in cells. If fire cannot spread in a cell, p is infinite.
    """
    rows, columns = layers.shape[1], layers.shape[2]
    metric = np.empty((rows, columns, METRIC_SIZE))
    beds = np.full((fuels.shape[0], 5), -1.0)
    wind_angle = math.radians(wind_from + 180.0)
    for row in range(rows):
        for column in range(columns):
            number = int(layers[7, row, column])
            if beds[number, 0] < 0.0:
                beds[number] = fuel_bed(fuels[number], moistures)
            bed = (beds[number, 0], beds[number, 1], beds[number, 2], beds[number, 3], beds[number, 4])
            if bed[0] <= 0.0:
                metric[row, column] = np.inf
                continue
            cover, height = layers[3, row, column] / 100.0, layers[6, row, column] * FEET_PER_METRE
            wind = wind_kmh * FEET_PER_MINUTE_OF_KMH * midflame_factor(fuels[number, 0], height, cover)
            rise = math.tan(math.radians(layers[0, row, column]))
            upslope = math.radians(layers[1, row, column] + 180.0)
            rise_row, rise_column = -rise * math.cos(upslope), rise * math.sin(upslope)
            rate, ratio, head_row, head_column = spread_ellipse(
                bed, -wind * math.cos(wind_angle), wind * math.sin(wind_angle), rise_row, rise_column
            )
            eccentricity = math.sqrt(ratio**2 - 1.0) / ratio
            slowness = cell_size / (rate * (1.0 - eccentricity))
            head_rise = head_row * rise_row + head_column * rise_column
            metric[row, column, 0] = slowness**2 * (1.0 + rise_row**2)
            metric[row, column, 1] = slowness**2 * rise_row * rise_column
            metric[row, column, 2] = slowness**2 * (1.0 + rise_column**2)
            metric[row, column, 3] = slowness * eccentricity * (head_row + head_rise * rise_row)
            metric[row, column, 4] = slowness * eccentricity * (head_column + head_rise * rise_column)
    return metric
