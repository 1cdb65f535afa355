"""Kernels are compiled once: a second process loads them from disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Calls what training, evaluation and the baselines call; prints the numbers of kernels, compilations and cache hits.
PROGRAM = """
import sys
import numba
import numpy as np
from envfleet.environments.wildfire import SurfaceFire, WildfireEnv, draw_fires
from envfleet.environments.wildfire.baselines import burned_hectares, centrality_breaks, greedy_breaks
env = WildfireEnv(grid_size=10, render_mode="rgb_array")
env.reset(seed=1)
env.step(int(np.flatnonzero(env.reset(seed=1)[1]["action_mask"])[0]))
env.render()
landscape, model = env.landscape, SurfaceFire()
fires = draw_fires(landscape, np.random.default_rng(0), 2)
for choose in (centrality_breaks, greedy_breaks):
    burned_hectares(landscape, choose(landscape, 2, fires, model, 60.0), fires, model, 60.0)
kernels = {
    thing
    for name, module in list(sys.modules.items())
    if name.startswith("envfleet.")
    for thing in vars(module).values()
    if isinstance(thing, numba.core.dispatcher.Dispatcher)
}
print(len(kernels))
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels))
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
"""


@pytest.mark.proof
def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    starts = [
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    (kernels, compiled, _), (_, compiled_again, found) = (
        [int(word) for word in start.stdout.split()] for start in starts
    )
    assert compiled >= kernels >= 15  # the program reaches every kernel
    assert compiled_again == 0 and found > 0


def test_importing_the_environment_loads_no_numba() -> None:
    code = "import sys, envfleet.environments.wildfire; print('numba' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
