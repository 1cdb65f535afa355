"""Simulate fires with pyretechnics: `.venvs/pyretechnics/bin/python benchmarks/peers/pyretechnics_spread.py IN OUT`.

IN (.npz): layers [case, 8, row, column] as in our landscapes, weathers [case, 7], ignitions [case], minutes,
cell_size, repeats. OUT (.npz): arrival [case, row, column] in minutes (infinite where nothing burned) and
seconds [case], the median over the repeats. Surface fire only: the canopy is set too high to catch fire.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyretechnics.eulerian_level_set as els
from pyretechnics.space_time_cube import SpaceTimeCube

WIND_10M_OVER_20FT = 1.15  # as pyretechnics converts it back
BAND_MINUTES = 60


def cubes_of(layers: np.ndarray, weather: np.ndarray, shape: tuple[int, int, int]) -> dict[str, SpaceTimeCube]:
    """Return the inputs of pyretechnics, whose rows start in the south; ours start in the north."""
    slope, aspect, _, cover, _, _, height, fuel = layers[:, ::-1]
    wind_kmh, wind_from, dead_1h, dead_10h, dead_100h, herbs, wood = map(float, weather)
    inputs = {
        "slope": np.tan(np.radians(slope)),
        "aspect": aspect,
        "fuel_model": fuel,
        "canopy_cover": cover / 100,
        "canopy_height": height,
        "canopy_base_height": 100.0,
        "canopy_bulk_density": 0.0,
        "wind_speed_10m": wind_kmh * WIND_10M_OVER_20FT,
        "upwind_direction": wind_from,
        "fuel_moisture_dead_1hr": dead_1h,
        "fuel_moisture_dead_10hr": dead_10h,
        "fuel_moisture_dead_100hr": dead_100h,
        "fuel_moisture_live_herbaceous": herbs,
        "fuel_moisture_live_woody": wood,
        "foliar_moisture": 0.9,
    }
    return {
        name: SpaceTimeCube(shape, np.ascontiguousarray(value, np.float32) if np.ndim(value) else value)
        for name, value in inputs.items()
    }


def main() -> None:
    given = np.load(sys.argv[1])
    minutes, cell_size = float(given["minutes"]), float(given["cell_size"])
    count, _, rows, columns = given["layers"].shape
    shape = (int(np.ceil(minutes / BAND_MINUTES)), rows, columns)
    arrival, seconds = np.full((count, rows, columns), np.inf), np.empty(count)
    for case in range(count):
        cubes = cubes_of(given["layers"][case], given["weathers"][case], shape)
        row, column = divmod(int(given["ignitions"][case]), columns)
        taken = []
        for _ in range(int(given["repeats"])):
            started = time.perf_counter()
            state = els.SpreadState(shape).ignite_cell((rows - 1 - row, column))
            done = els.spread_fire_with_phi_field(cubes, state, (BAND_MINUTES, cell_size, cell_size), 0.0, minutes)
            taken.append(time.perf_counter() - started)
        found = done["spread_state"].get_full_matrices(["time_of_arrival"])["time_of_arrival"][::-1]
        arrival[case] = np.where(found >= 0, found, np.inf)
        arrival[case, row, column] = 0.0
        seconds[case] = np.median(taken)
    np.savez(sys.argv[2], arrival=arrival, seconds=seconds)


if __name__ == "__main__":
    main()
