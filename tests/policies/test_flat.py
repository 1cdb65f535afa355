"""All weights as views of one flat array."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from envfleet.errors import SettingsError
from envfleet.policies.flat import FlatParameters
from envfleet.policies.policy import Policy, build_policy
from envfleet.policies.settings import PolicySettings


def _policy(seed: int = 0) -> Policy:
    settings = PolicySettings(hidden=(5, 3), normalise_observations=True)
    return build_policy(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), settings, seed=seed)


def _aligned(size: int, shift: int = 0) -> np.ndarray:
    raw = np.zeros(size + 32, np.float32)
    start = (-raw.ctypes.data % 64) // 4 + shift
    return raw[start : start + size]


def test_weights_stay_what_they_are_and_become_aligned_views() -> None:
    policy = _policy()
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    flat = FlatParameters(policy)
    first, last = flat.data.data_ptr(), flat.data.data_ptr() + 4 * len(flat.data)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert first <= tensor.data_ptr() < last and tensor.data_ptr() % 64 == 0
    assert len(flat.data) == FlatParameters.size_of(policy) == len(flat.numpy())
    assert np.shares_memory(flat.numpy(), policy.body.policy_head.weight.detach().numpy())


def test_parameters_come_first_and_normalisers_are_published_too() -> None:
    policy = _policy()
    flat = FlatParameters(policy)
    policy.update_normaliser({"": torch.full((4, 3), 7.0)})
    buffers = flat.data[len(flat.parameters) :]
    assert len(buffers) == 2 * 16  # mean and inverse standard deviation, three numbers each, padded
    assert buffers[:3].tolist() == [7.0] * 3 and buffers[3:16].tolist() == [0.0] * 13
    assert 7.0 not in flat.parameters.tolist()


def test_weights_written_to_the_array_are_those_of_the_policy() -> None:
    one, other = FlatParameters(_policy(0)), _policy(1)
    copied = FlatParameters(other)
    copied.copy_from(one.numpy())
    wanted = _policy(0).state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in other.state_dict().items())


def test_storage_may_be_given_and_adopted() -> None:
    storage = _aligned(FlatParameters.size_of(_policy()))
    storage[...] = np.nan
    FlatParameters(_policy(0), storage)
    assert np.isfinite(storage).all()  # the padding was overwritten too
    adopted = _policy(1)
    FlatParameters(adopted, storage, adopt=True)
    wanted = _policy(0).state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in adopted.state_dict().items())


@pytest.mark.parametrize("case", ["short", "shifted", "float64", "read-only"])
def test_storage_that_does_not_fit_is_refused(case: str) -> None:
    size = FlatParameters.size_of(_policy())
    storage = {
        "short": _aligned(size - 1),
        "shifted": _aligned(size, shift=1),
        "float64": np.zeros(size),
        "read-only": _aligned(size),
    }[case]
    storage.flags.writeable = case != "read-only"
    with pytest.raises(SettingsError, match=rf"expected a writeable float32 array \({size},\)"):
        FlatParameters(_policy(), storage)


def test_other_types_of_weights_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"parameter 'weight' is torch\.float64"):
        FlatParameters(nn.Linear(2, 2).double())


def test_views_hold_after_load_state_dict() -> None:
    policy = _policy(0)
    flat = FlatParameters(policy)
    policy.load_state_dict(_policy(1).state_dict())
    assert flat.numpy().tobytes() == FlatParameters(_policy(1)).numpy().tobytes()


def test_one_adam_step_on_the_flat_parameter_is_one_on_all_parameters() -> None:
    plain, joined = _policy(), _policy()
    flat = FlatParameters(joined)
    adams = (
        torch.optim.Adam(plain.parameters(), lr=0.1, eps=1e-5),
        torch.optim.Adam([flat.parameters], lr=0.1, eps=1e-5, fused=True),
    )
    torch.manual_seed(0)
    observations, actions = {"": torch.randn(6, 3)}, torch.randn(6, 2)
    for _ in range(3):
        adams[0].zero_grad()
        flat.zero_gradient()
        for policy, adam in zip((plain, joined), adams, strict=True):
            found = policy.evaluate(observations, actions)
            (found.log_probs.mean() + found.values.square().mean() + found.entropy.mean()).backward()
            adam.step()
    start = _policy().state_dict()
    for (name, one), other in zip(plain.named_parameters(), joined.parameters(), strict=True):
        torch.testing.assert_close(other, one, msg=name)
        assert not torch.equal(one, start[name])
        assert (
            other.grad is not None
            and other.grad.untyped_storage().data_ptr() == flat.gradient.untyped_storage().data_ptr()
        )
    held = torch.zeros(len(flat.data), dtype=torch.bool)
    offset = 0
    for tensor in [*joined.parameters(), *joined.inputs.buffers()]:
        held[offset : offset + tensor.numel()] = True
        offset += -(-tensor.numel() // 16) * 16
    assert offset == len(flat.data) and not held.all()
    assert (flat.data[~held] == 0.0).all()  # padding is zero and stays zero


def test_a_copy_of_a_flat_policy_has_weights_of_its_own() -> None:
    policy = _policy()
    flat = FlatParameters(policy)
    copied = copy.deepcopy(policy)
    observations, actions = {"": torch.ones(4, 3)}, torch.zeros(4, 2)
    before = copied.evaluate(observations, actions).values
    flat.data.add_(1.0)
    assert torch.equal(copied.evaluate(observations, actions).values, before)
    assert not torch.equal(policy.evaluate(observations, actions).values, before)


def test_the_span_of_a_submodule_holds_its_weights_and_nothing_else() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 7), torch.nn.Linear(7, 2))
    flat = FlatParameters(module)
    span = flat.span_of(module[1])
    flat.data.zero_()
    flat.data[span] = 1.0
    assert [bool(parameter.any()) for parameter in module.parameters()] == [False, False, True, True, False, False]
    assert all(bool(parameter.all()) for parameter in module[1].parameters())
