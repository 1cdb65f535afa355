"""The memory over a history: as an independent implementation, step by step and whole, in torch and in NumPy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from envfleet.errors import SettingsError
from envfleet.policies.flat import FlatParameters
from envfleet.policies.history import HeadInput, HistoryEncoder, build_history, places_of
from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.inputs import JoinedInputs, checked_leaves
from envfleet.policies.numpy_memory import NumpyHistory
from envfleet.policies.numpy_networks import Product, fits

Array = np.ndarray[Any, Any]
Kind = Literal["gru", "lstm"]
KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])
TIME, BATCH, FEATURES = 9, 4, 8
PARTS = {"action": ("", 3, 5), "reward": ("", 5, 6)}  # observation: 0 to 2, and 6 to 7
OBSERVED = [0, 1, 2, 6, 7]
VECTOR = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)


def encoder_of(kind: Kind = "gru", *, seed: int = 0, scale: float = 1.0, **sizes: int) -> HistoryEncoder:
    torch.manual_seed(seed)
    settings = HistorySettings(memory=kind, memory_size=6, parts=PARTS, **sizes)
    places = {name: (start, stop) for name, (_, start, stop) in PARTS.items()}
    return HistoryEncoder(FEATURES, places, settings, scale)


def rows_of(seed: int = 1) -> torch.Tensor:
    return torch.randn(TIME, BATCH, FEATURES, generator=torch.Generator().manual_seed(seed))


@KINDS
def test_it_is_three_embeddings_and_torchs_memory(kind: Kind) -> None:
    encoder, rows = encoder_of(kind, scale=0.5), rows_of()
    action, reward, observation = encoder.action, encoder.reward, encoder.observation
    assert action is not None and reward is not None and observation is not None
    parts = [(action, rows[..., 3:5] * 0.5), (reward, rows[..., 5:6]), (observation, rows[..., OBSERVED])]
    assert [layer.out_features for layer, _ in parts] == [16, 16, 32]
    embedded = torch.cat([(part @ layer.weight.T + layer.bias).clamp(min=0.0) for layer, part in parts], dim=2)
    theirs = (nn.GRU if kind == "gru" else nn.LSTM)(64, 6)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    theirs.load_state_dict(dict(zip(names, encoder.memory.parameters(), strict=True)))
    torch.testing.assert_close(encoder.run(rows), theirs(embedded)[0])
    assert torch.equal(encoder.observed(rows), rows[..., OBSERVED])


@KINDS
def test_a_sequence_is_its_steps_one_after_the_other(kind: Kind) -> None:
    encoder, rows = encoder_of(kind), rows_of()
    starts = torch.rand(TIME, BATCH, generator=torch.Generator().manual_seed(2)) < 0.2
    first = torch.randn(BATCH, encoder.memory_size, generator=torch.Generator().manual_seed(3))
    outputs, state = encoder.run(rows, first, starts), first
    for time in range(TIME):
        output, state = encoder.step(rows[time], state.masked_fill(starts[time].unsqueeze(1), 0.0))
        torch.testing.assert_close(outputs[time], output, rtol=0, atol=1e-6)
    assert encoder.memory_size == (6 if kind == "gru" else 12) and encoder.units == 6


@pytest.mark.parametrize(
    ("off", "columns"), [("action", [3, 4]), ("reward", [5]), ("observation", OBSERVED)], ids=lambda value: str(value)
)
def test_an_embedding_of_size_0_leaves_its_part_out(off: str, columns: list[int]) -> None:
    encoder, rows = encoder_of(**{f"{off}_embedding": 0}), rows_of()
    before = encoder.run(rows)
    for column in range(FEATURES):
        changed = rows.clone()
        changed[..., column] += 1.0
        assert torch.equal(encoder.run(changed), before) == (column in columns)


def test_settings_that_cannot_be_get_a_sentence() -> None:
    with pytest.raises(SettingsError, match="all have the size 0, so the memory would read nothing"):
        HistorySettings(action_embedding=0, reward_embedding=0, observation_embedding=0)
    with pytest.raises(SettingsError, match=r"reads the previous reward, which the observation does not(?s:.*)history"):
        HistorySettings(parts={"action": ("", 0, 1)})
    assert HistorySettings(action_embedding=0, reward_embedding=0).input_size == 32  # needs no parts


def test_settings_are_plain_data_in_a_checkpoint() -> None:
    settings = HistorySettings(memory="lstm", memory_size=7, reward_embedding=3, parts=PARTS)
    plain = settings.to_json()
    assert plain["parts"] == {"action": ["", 3, 5], "reward": ["", 5, 6]}
    assert HistorySettings.from_json(plain) == settings


def test_parts_are_found_in_the_joined_vector_of_any_observation() -> None:
    space = spaces.Dict(
        action=spaces.Box(-1, 1, (2,), np.float32),
        colour=spaces.Discrete(3),  # one-hot
        image=spaces.Box(0, 255, (36, 36, 3), np.uint8),
        reward=spaces.Box(-np.inf, np.inf, (1,), np.float32),
    )
    leaves = checked_leaves(space)
    inputs = JoinedInputs(leaves, [leaf for leaf in leaves if leaf.name == "image"], normalise=False)
    assert places_of(inputs, {"action": ("action", 0, 2), "reward": ("reward", 0, 1)}) == {
        "action": (0, 2),
        "reward": (5, 6),
    }


@pytest.mark.parametrize(
    ("low", "high", "scale"), [([-0.1, -2.0], [0.1, 4.0], [10.0, 0.25]), ([-np.inf, 0], [np.inf, 0], [1.0, 1.0])]
)
def test_actions_are_scaled_by_their_bounds(low: list[float], high: list[float], scale: list[float]) -> None:
    inputs = JoinedInputs(checked_leaves(VECTOR), [], normalise=False)
    actions = spaces.Box(np.float32(low), np.float32(high))
    encoder = build_history(inputs, FEATURES, actions, HistorySettings(parts=PARTS))
    np.testing.assert_allclose(encoder.action_scale, scale, rtol=1e-6)
    assert build_history(inputs, FEATURES, spaces.Discrete(2), HistorySettings(parts=PARTS)).action_scale == 1.0


def test_a_normalised_action_is_not_scaled_again() -> None:
    inputs = JoinedInputs(checked_leaves(VECTOR), [], normalise=True)
    space = spaces.Box(-4.0, 4.0, (2,), np.float32)
    assert build_history(inputs, FEATURES, space, HistorySettings(parts=PARTS)).action_scale == 1.0


def test_a_head_reads_the_memory_and_the_current_observation_and_action() -> None:
    torch.manual_seed(0)
    head = HeadInput(6, 5, 7, action_size=2)
    assert head.size == 13 and head.embedding is not None
    remembered, observed = torch.randn(BATCH, 6), torch.randn(BATCH, 5)
    actions = torch.randn(BATCH, 2, requires_grad=True)
    current = torch.cat([observed, actions], dim=1) @ head.embedding.weight.T + head.embedding.bias
    joined = torch.cat(head(remembered, observed, actions), dim=1)
    torch.testing.assert_close(joined, torch.cat([remembered, current.clamp(min=0.0)], dim=1))
    torch.cat(head(remembered, observed, actions, frozen=True), dim=1).sum().backward()
    assert head.embedding.weight.grad is None and actions.grad is not None and actions.grad.any()
    (alone,) = HeadInput(6, 5, 0)(remembered, observed)
    assert torch.equal(alone, remembered)


# ---- in NumPy


@KINDS
@pytest.mark.parametrize("sizes", [{}, {"action_embedding": 0}, {"reward_embedding": 0, "observation_embedding": 3}])
@pytest.mark.parametrize("embedding", [0, 5])
def test_it_is_the_same_in_numpy(kind: Kind, sizes: dict[str, int], embedding: int) -> None:
    encoder = encoder_of(kind, scale=0.5, **sizes)
    head = HeadInput(encoder.units, encoder.observation_size, embedding)
    flat = FlatParameters(nn.ModuleList([encoder, head]))
    flat.numpy()[...] += np.random.default_rng(0).normal(size=len(flat.numpy())).astype(np.float32) * 0.2
    in_numpy = NumpyHistory(encoder, head, BATCH)
    state, expected = np.zeros((BATCH, encoder.memory_size), np.float32), torch.zeros(BATCH, encoder.memory_size)
    for rows in rows_of():
        with torch.inference_mode():
            output, expected = encoder.step(rows, expected)
            wanted = torch.cat(head(output, encoder.observed(rows)), dim=1)
        found = in_numpy(rows.numpy(), state)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
        np.testing.assert_allclose(state, expected, atol=2e-6)
    before = in_numpy(rows.numpy(), np.zeros_like(state)).copy()
    flat.numpy()[...] *= 2.0  # weights that arrive later are used
    assert not np.allclose(in_numpy(rows.numpy(), np.zeros_like(state)), before)


@pytest.mark.parametrize(("inputs", "outputs", "rows"), [(128, 384, 8), (256, 256, 8), (376, 128, 1), (9000, 20, 1)])
def test_a_large_product_is_computed_in_pieces_of_one_thread(inputs: int, outputs: int, rows: int) -> None:
    generator = np.random.default_rng(0)
    layer = nn.Linear(inputs, outputs)
    values = generator.normal(size=(rows, inputs)).astype(np.float32)
    product = Product(layer.weight, layer.bias, rows)
    assert not fits(inputs * outputs, rows)
    assert len(product._pieces) > 1
    for weight, _ in product._pieces:
        assert fits(weight.size, rows) or weight.shape[1] == 1
    with torch.no_grad():
        np.testing.assert_allclose(product(values), layer(torch.from_numpy(values)), atol=1e-4)


def test_a_small_product_is_one() -> None:
    layer = nn.Linear(64, 64)
    assert len(Product(layer.weight, layer.bias, 8)._pieces) == 1
