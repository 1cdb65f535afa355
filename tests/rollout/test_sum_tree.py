"""The sum tree draws in proportion to priorities and is bit-identical when rebuilt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.rollout.sum_tree import SumTree

Array = np.ndarray[Any, Any]


def drawn_at(tree: SumTree, fractions: Array) -> Array:
    """Return the entries at these fractions of the mass: a batch of one has only one part."""
    batches = [tree.draw_batch(fraction[None], among=1, correction=0.0) for fraction in fractions]
    return np.concatenate([entries for entries, _ in batches])


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 70), seed=st.integers(0, 1_000))
def test_entries_are_those_of_the_running_sum(capacity: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    tree = SumTree(capacity)
    priorities = np.where(generator.random(capacity) < 0.3, 0.0, generator.random(capacity))
    priorities[generator.integers(capacity)] = 1.0
    tree.set(np.arange(capacity), priorities)
    assert tree.total == pytest.approx(priorities.sum())
    uniform = generator.random(200)
    edges = np.cumsum(priorities)
    safe = np.abs(uniform[:, None] * edges[-1] - edges).min(axis=1) > 1e-9  # the others are decided by rounding
    expected = np.searchsorted(edges, uniform * edges[-1], side="right")
    drawn = drawn_at(tree, uniform)
    assert np.array_equal(drawn[safe], expected[safe])
    assert (priorities[drawn] > 0.0).all()


def test_a_batch_is_drawn_from_equal_parts_and_counts_as_schaul_et_al_have_it() -> None:
    generator = np.random.default_rng(1)
    tree, priorities = SumTree(50), generator.random(50)
    tree.set(np.arange(50), priorities)
    uniform = generator.random(16)
    entries, weights = tree.draw_batch(uniform, among=40, correction=0.4)
    assert np.array_equal(entries, drawn_at(tree, (np.arange(16) + uniform) / 16))
    expected = (40 * priorities[entries] / priorities.sum()) ** -0.4
    np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-6)


def test_priorities_of_errors() -> None:
    tree = SumTree(8)
    errors = np.array([-2.0, 0.0, 0.5], np.float32)
    assert tree.set_by_error(np.array([1, 4, 6]), errors, 0.6) == pytest.approx(2.0**0.6)
    np.testing.assert_allclose(tree.state()[[1, 4, 6]], (np.abs(errors) + 1e-6) ** 0.6, rtol=1e-6)


def test_the_last_share_of_the_mass_does_not_fall_off_the_end() -> None:
    tree = SumTree(5)
    tree.set(np.array([0, 1]), np.array([0.1, 0.2]))
    assert drawn_at(tree, np.array([np.nextafter(1.0, 0.0), 1.0])).tolist() == [1, 1]


def test_a_tree_put_back_from_its_leaves_is_the_same_to_the_bit() -> None:
    generator = np.random.default_rng(0)
    tree, other = SumTree(1_000), SumTree(1_000)
    for _ in range(300):
        tree.set(generator.integers(1_000, size=64), generator.random(64))
    other.restore(tree.state())
    uniform = generator.random(2_000)
    assert other.total == tree.total and np.array_equal(drawn_at(other, uniform), drawn_at(tree, uniform))
