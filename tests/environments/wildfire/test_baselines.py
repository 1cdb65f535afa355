"""Baselines that an agent has to beat."""

from __future__ import annotations

import numpy as np
import pytest

from envfleet.environments.wildfire import SurfaceFire, draw_fires, generate_landscape
from envfleet.environments.wildfire.baselines import (
    burned_hectares,
    centrality_breaks,
    greedy_breaks,
    no_breaks,
    random_breaks,
    ridge_breaks,
)
from tests.environments.wildfire.test_environment import burns_in_its_row


def test_centrality_beats_random_and_random_beats_nothing() -> None:
    """20 landscapes, 5 % breaks, unseen fires: each paired difference exceeds two standard errors."""
    model, generator, burned = SurfaceFire(), np.random.default_rng(0), []
    for seed in range(20):
        landscape = generate_landscape("mixed", "medium", 25, 1000 + seed)
        plan, test = draw_fires(landscape, generator, 40), draw_fires(landscape, generator, 100)
        placed = (
            no_breaks(),
            random_breaks(landscape, 31, generator),
            centrality_breaks(landscape, 31, plan, model, 120),
        )
        burned.append([burned_hectares(landscape, cells, test, model, 120).mean() for cells in placed])
    nothing, at_random, centrality = np.transpose(burned)
    for worse, better in ((nothing, at_random), (at_random, centrality)):
        saved = worse - better
        assert saved.mean() > 2 * saved.std(ddof=1) / np.sqrt(len(saved))


def test_greedy_burns_less_than_centrality() -> None:
    model, generator = SurfaceFire(), np.random.default_rng(1)
    landscape = generate_landscape("mixed", "medium", 25, 1003)
    plan, test = draw_fires(landscape, generator, 40), draw_fires(landscape, generator, 200)
    cells = greedy_breaks(landscape, 12, plan, model, 120)
    assert len(set(cells.tolist())) == 12
    central = centrality_breaks(landscape, 12, plan, model, 120)
    greedy_area, central_area = (burned_hectares(landscape, c, test, model, 120).mean() for c in (cells, central))
    assert greedy_area < central_area


def test_every_baseline_takes_its_budget_from_cells_that_burn() -> None:
    model, generator = SurfaceFire(), np.random.default_rng(2)
    landscape = generate_landscape("grassland", "medium", 20, 3)
    fires = draw_fires(landscape, generator, 10)
    for cells in (
        random_breaks(landscape, 20, generator),
        ridge_breaks(landscape, 20),
        centrality_breaks(landscape, 20, fires, model, 120),
        centrality_breaks(landscape, 20, fires, model, 120, rounds=7),
    ):
        assert len(set(cells.tolist())) == 20
        assert landscape.burnable.ravel()[cells].all()
    elevation = landscape.layer("elevation").ravel()
    assert elevation[ridge_breaks(landscape, 20)].mean() > elevation.mean()


def test_greedy_with_a_fire_model_of_ones_own() -> None:
    landscape = generate_landscape("grassland", "medium", 8, 3)
    fires = draw_fires(landscape, np.random.default_rng(0), 5)
    cells = greedy_breaks(landscape, 1, fires, burns_in_its_row, 120)
    before = burned_hectares(landscape, no_breaks(), fires, burns_in_its_row, 120)
    after = burned_hectares(landscape, cells, fires, burns_in_its_row, 120)
    assert after.sum() < before.sum()
    best = min(
        burned_hectares(landscape, [cell], fires, burns_in_its_row, 120).sum()
        for cell in range(64)
        if cell not in {fire.ignition for fire in fires}
    )
    assert after.sum() == pytest.approx(best)
