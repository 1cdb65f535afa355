"""Write pyretechnics' results for random fuels, moistures, winds and slopes, for the tests of our fire model.

    python -m benchmarks.peers.install pyretechnics
    .venvs/pyretechnics/bin/python benchmarks/peers/pyretechnics_reference.py

The file holds only numbers, no code of pyretechnics.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyretechnics.fuel_models as fm
import pyretechnics.surface_fire as sf

OUTPUT = Path(__file__).parents[2] / "tests" / "environments" / "wildfire" / "pyretechnics_reference.json"
CASES = 300
SEED = 7
COLUMNS = [
    *("fuel_model", "moisture_1h", "moisture_10h", "moisture_100h", "moisture_herbs", "moisture_wood"),
    *("midflame_wind_m_per_min", "wind_from_degrees", "slope_rise_over_run", "aspect_degrees"),
    *("base_rate_m_per_min", "head_rate_m_per_min", "length_to_width"),
]


def case(generator: np.random.Generator, burnable: list[int]) -> list[float]:
    fuel = int(generator.choice(burnable))
    dead = np.sort(generator.uniform(0.02, 0.25, 3))
    herbs, wood = generator.uniform(0.3, 1.5), generator.uniform(0.5, 1.8)
    wind, wind_from = generator.uniform(0, 400) * generator.integers(0, 2), generator.uniform(0, 360)
    slope, aspect = generator.uniform(0, 1) * generator.integers(0, 2), generator.uniform(0, 360)
    inputs = np.round([*dead, herbs, wood, wind, wind_from, slope, aspect], 4).tolist()
    *moistures, wind, wind_from, slope, aspect = inputs
    # Their classes: dead 1 h, 10 h, 100 h, dead herbs (computed by pyretechnics), live herbs, live wood.
    classes = (*moistures[:3], 0.0, *moistures[3:])
    base = sf.calc_surface_fire_behavior_no_wind_no_slope(fm.moisturize(fm.get_fuel_model(fuel), classes))
    head = sf.calc_surface_fire_behavior_max(base, wind, wind_from, slope, aspect)
    read = [_field(base, "base_spread_rate"), _field(head, "max_spread_rate"), _field(head, "length_to_width_ratio")]
    return [fuel, *inputs, *(float(f"{value:.7g}") for value in read)]


def _field(result: object, name: str) -> float:
    return float(result[name] if isinstance(result, dict) else getattr(result, name))


def main() -> None:
    generator = np.random.default_rng(SEED)
    burnable = [number for number in fm.list_fuel_model_numbers() if not 91 <= number <= 99]
    cases = [case(generator, burnable) for _ in range(CASES)]
    lines = ",\n".join(f"    {json.dumps(row)}" for row in cases)
    made = "benchmarks/peers/pyretechnics_reference.py"
    about = {"version": version("pyretechnics"), "made_by": made, "seed": SEED, "columns": COLUMNS}
    head = json.dumps(about, indent=2)[:-2]
    OUTPUT.write_text(f'{head},\n  "cases": [\n{lines}\n  ]\n}}\n')
    print(f"{len(cases)} cases, {len({row[0] for row in cases})} fuel models")


if __name__ == "__main__":
    main()
