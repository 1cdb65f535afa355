"""Memory: a sequence gives the same outputs as single steps and resets the state where an episode begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from envfleet.policies.memory import Memory

KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])


def _memory(kind: str) -> Memory:
    torch.manual_seed(0)
    return Memory(kind, 3, 4)


@KINDS
def test_it_is_the_one_of_torch(kind: str) -> None:
    memory = _memory(kind)
    theirs = (nn.GRU if kind == "gru" else nn.LSTM)(3, 4)
    weights = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), memory.parameters(), strict=True))
    theirs.load_state_dict(weights)
    features, state = torch.randn(6, 2, 3), torch.randn(2, memory.state_size)
    start = [part.unsqueeze(0).contiguous() for part in state.split(4, dim=1)]
    expected = theirs(features, start[0] if kind == "gru" else tuple(start))[0]
    torch.testing.assert_close(memory.run(features, state, None), expected)


@KINDS
def test_a_sequence_with_episode_starts_is_step_by_step_with_zeroed_state(kind: str) -> None:
    memory = _memory(kind)
    features, state = torch.randn(12, 3, 3), torch.randn(3, memory.state_size)
    for rate in (0.0, 0.1, 0.5, 1.0):
        starts = torch.rand(12, 3) < rate
        outputs = memory.run(features, state, starts)
        now = state
        for step in range(12):
            now = torch.where(starts[step].unsqueeze(1), 0.0, now)
            output, now = memory.step(features[step], now)
            torch.testing.assert_close(outputs[step], output, rtol=0, atol=1e-6)


@KINDS
def test_a_start_in_the_first_row_forgets_the_given_state(kind: str) -> None:
    memory, features = _memory(kind), torch.randn(1, 2, 3)
    starts = torch.tensor([[True, False]])
    forgotten = memory.run(features, torch.full((2, memory.state_size), torch.nan), torch.ones(1, 2, dtype=torch.bool))
    half = memory.run(features, torch.ones(2, memory.state_size), starts)
    assert torch.isfinite(forgotten).all()  # even a NaN state is dropped
    assert torch.equal(half[:, 0], forgotten[:, 0]) and not torch.equal(half[:, 1], forgotten[:, 1])


def test_stretches_of_an_lstm_without_a_start_are_one_fused_call(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, lengths = _memory("lstm"), []
    fused = memory._fused

    def counted(features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lengths.append(len(features))
        return fused(features, state)

    monkeypatch.setattr(memory, "_fused", counted)
    starts = torch.zeros(10, 2, dtype=torch.bool)
    memory.run(torch.randn(10, 2, 3), torch.zeros(2, memory.state_size), starts)
    starts[3, 0] = starts[7, 1] = True
    memory.run(torch.randn(10, 2, 3), torch.zeros(2, memory.state_size), starts)
    assert lengths == [10, 3, 4, 3]


@KINDS
def test_gradients_flow_back_to_the_last_start_and_no_further(kind: str) -> None:
    memory, features = _memory(kind), torch.randn(5, 1, 3, requires_grad=True)
    starts = torch.zeros(5, 1, dtype=torch.bool)
    starts[2] = True
    memory.run(features, torch.zeros(1, memory.state_size), starts)[-1].sum().backward()
    assert features.grad is not None
    assert (features.grad[:2] == 0).all() and (features.grad[2:] != 0).any(dim=2).all()


@KINDS
def test_weights_begin_orthogonal_and_biases_zero(kind: str) -> None:
    memory = _memory(kind)
    torch.testing.assert_close(memory.weight_state.T @ memory.weight_state, torch.eye(4))
    assert not memory.bias_input.any() and not memory.bias_state.any()
