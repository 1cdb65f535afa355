"""Kernels are compiled once: a second start finds them on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from envfleet.environments.wildfire import SurfaceFire, draw_fires, generate_landscape
from envfleet.environments.wildfire import rothermel, spread
import numpy as np
landscape = generate_landscape(size=10)
fires = draw_fires(landscape, np.random.default_rng(0), 2)
SurfaceFire()(landscape, fires, np.zeros(landscape.shape, np.bool_), 60.0)
kernels = (rothermel.travel_metric, spread.arrival_minutes)
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels))
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
"""


@pytest.mark.slow
def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    starts = [
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [start.stdout.split() for start in starts] == [["2", "0"], ["0", "2"]]


def test_importing_the_environment_loads_no_numba() -> None:
    code = "import sys, envfleet.environments.wildfire; print('numba' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_without_numba_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['numba'] = None; from envfleet.environments.wildfire import WildfireEnv; WildfireEnv()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr and "pip install 'envfleet[wildfire]'" in done.stderr
