"""Observations as networks see them, and the choice of encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Leaf, leaves_of
from envfleet.policies.encoders import MLP, GridCNN, ImpalaCNN, NatureCNN, Trunk, image_encoder
from envfleet.policies.inputs import JoinedInputs, checked_leaves, is_image


def _leaf(shape: tuple[int, ...], dtype: type = np.uint8, high: float = 255) -> Leaf:
    return leaves_of(spaces.Box(0, high, shape, dtype))[0]


def _joined(space: spaces.Space[Any], observations: dict[str, Any]) -> list[list[float]]:
    inputs = JoinedInputs(checked_leaves(space), [], normalise=False)
    (vector,) = inputs({name: torch.from_numpy(np.asarray(value)) for name, value in observations.items()})
    assert vector.dtype == torch.float32 and vector.shape[1] == inputs.vector_size
    result: list[list[float]] = vector.tolist()
    return result


def test_vectors_are_joined_in_the_order_of_the_space() -> None:
    space = spaces.Dict(
        {
            "bits": spaces.MultiBinary(2),
            "box": spaces.Box(-9, 9, (2, 1), np.float64),
            "bytes": spaces.Box(0, 255, (1,), np.uint8),
            "choice": spaces.Discrete(3, start=-1),
            "choices": spaces.Tuple([spaces.MultiDiscrete([2, 3], start=[0, 1]), spaces.Box(-5, 5, (), np.int32)]),
        }
    )
    observations = {
        "bits": np.array([[1, 0], [0, 1]], np.int8),
        "box": np.array([[[0.5], [1.5]], [[2.0], [3.0]]]),
        "bytes": np.array([[255], [51]], np.uint8),
        "choice": np.array([-1, 1]),
        "choices/0": np.array([[1, 1], [0, 3]]),
        "choices/1": np.array([-5, 4], np.int32),
    }
    expected = [
        [1, 0, 0.5, 1.5, 1.0, 1, 0, 0, 0, 1, 1, 0, 0, -5],
        [0, 1, 2.0, 3.0, 0.2, 0, 0, 1, 1, 0, 0, 0, 1, 4],
    ]
    np.testing.assert_allclose(_joined(space, observations), expected, rtol=1e-6)


@pytest.mark.parametrize("high", [0, 1, 10, 255])
def test_bytes_are_scaled_by_their_upper_bound(high: int) -> None:
    space = spaces.Box(0, high, (2,), np.uint8)
    largest = min(high, 1)
    np.testing.assert_allclose(_joined(space, {"": np.array([[0, high]], np.uint8)}), [[0, largest]], rtol=1e-6)
    shape, pictures = (10, 10, 2), torch.full((1, 10, 10, 2), high, dtype=torch.uint8)
    of_bytes, of_floats = image_encoder("auto", _leaf(shape, high=high)), image_encoder("auto", _leaf(shape, float, 1))
    of_floats.load_state_dict(of_bytes.state_dict())
    torch.testing.assert_close(of_bytes(pictures), of_floats(torch.full((1, *shape), float(largest))))


def test_a_plain_float_vector_is_read_without_a_copy() -> None:
    inputs = JoinedInputs(checked_leaves(spaces.Box(-1, 1, (3,))), [], normalise=False)
    observation = torch.randn(4, 3)
    assert inputs({"": observation})[0] is observation


def test_what_counts_as_an_image() -> None:
    assert is_image(_leaf((84, 84, 3))) and is_image(_leaf((10, 10, 4), np.float32, 1.0))
    assert is_image(_leaf((10, 10, 4), np.bool_, 1))
    assert not is_image(_leaf((84, 84))) and not is_image(_leaf((4, 4, 4), np.int64))


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_what_no_network_can_read_is_named(space: spaces.Space[Any]) -> None:
    with pytest.raises(SettingsError, match=f"the observation at 'inner/a' is {type(space).__name__}"):
        checked_leaves(spaces.Dict({"inner": spaces.Dict({"a": space})}))


def test_a_hidden_layer_is_orthogonal_with_the_gain_of_published_results() -> None:
    mlp = MLP(16, (8, 8), "tanh")
    for layer in mlp.layers:
        assert isinstance(layer, nn.Linear)
        torch.testing.assert_close(layer.weight @ layer.weight.T, 2.0 * torch.eye(8), rtol=0, atol=1e-5)
        assert not layer.bias.any()


def test_the_mlp_is_a_chain_of_layers_and_activations() -> None:
    vector = torch.linspace(-2, 2, 12).view(3, 4)
    for name, activation in (("tanh", nn.Tanh()), ("relu", nn.ReLU())):
        mlp = MLP(4, (5, 6), name)
        plain = nn.Sequential(mlp.layers[0], activation, mlp.layers[1], activation)
        torch.testing.assert_close(mlp(vector), plain(vector))
    assert MLP(4, (), "tanh")(vector) is vector


@pytest.mark.parametrize(
    ("network", "shape", "expected"),
    [
        ("auto", (84, 84, 3), NatureCNN),
        ("auto", (4, 36, 36), NatureCNN),
        ("auto", (10, 10, 4), GridCNN),
        ("auto", (2, 35, 84), GridCNN),
        ("auto", (1, 1, 1), GridCNN),
        ("nature", (36, 36, 1), NatureCNN),
        ("impala", (10, 12, 3), ImpalaCNN),
        ("impala", (64, 64, 3), ImpalaCNN),
    ],
)
def test_images_get_the_network_that_fits(network: str, shape: tuple[int, ...], expected: type) -> None:
    encoder = image_encoder(network, _leaf(shape))
    assert type(encoder) is expected
    features = encoder(torch.zeros((2, *shape), dtype=torch.uint8))
    assert features.shape == (2, encoder.size) and features.dtype == torch.float32


@pytest.mark.parametrize(("network", "side", "expected"), [("impala", 64, 32), ("nature", 84, 163), ("auto", 10, 1310)])
def test_as_many_images_are_passed_at_once_as_caches_hold(network: str, side: int, expected: int) -> None:
    """The largest outputs have 16 channels of 64 x 64, 32 of 20 x 20, and 16 of 10 x 10: at most 8 MB of float32."""
    encoder = image_encoder(network, _leaf((side, side, 3)))
    assert encoder.rows_at_once == expected
    vector = MLP(4, (8,), "tanh")
    assert Trunk([vector, encoder], 8 + encoder.size).rows_at_once == expected
    assert Trunk([vector], 8).rows_at_once is None
    assert Trunk([encoder, nn.BatchNorm1d(4)], 4).rows_at_once is None  # a user's own may need the whole batch


def test_images_that_are_too_small_for_nature_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"images of 35x84, expected at least 36x36\nhint: use network 'auto'"):
        image_encoder("nature", _leaf((35, 84, 3)))


@pytest.mark.parametrize("network", ["nature", "impala"])
def test_channels_first_and_last_are_the_same_picture(network: str) -> None:
    torch.manual_seed(0)
    last, first = image_encoder(network, _leaf((40, 44, 3))), image_encoder(network, _leaf((3, 40, 44)))
    first.load_state_dict(last.state_dict())
    picture = torch.randint(0, 256, (2, 40, 44, 3), dtype=torch.uint8)
    features = last(picture)
    difference = features - first(picture.permute(0, 3, 1, 2).contiguous())
    assert difference.abs().max() < 1e-5 * features.abs().max()


def convolved(images: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Convolve [n, channels, height, width] with 3×3 kernels and one pixel of zero padding."""
    around = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,dcij->ndhw", windows, weights[f"{name}.weight"]) + weights[f"{name}.bias"][:, None, None]


def largest(images: np.ndarray) -> np.ndarray:
    """Max-pool with 3×3 windows and a stride of 2."""
    around = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(axis=(4, 5))


def test_impala_is_the_network_of_the_paper() -> None:
    """Against figure 3 of Espeholt et al. (2018), written out in NumPy.

    Three sections, each a convolution, a max-pool and two residual blocks (relu, convolution, relu, convolution).
    """
    torch.manual_seed(0)
    encoder = image_encoder("impala", _leaf((20, 16, 3)))
    weights = {name: value.double().numpy() for name, value in encoder.state_dict().items()}
    pictures = np.random.default_rng(0).integers(0, 256, (2, 20, 16, 3), np.uint8)
    found = pictures.transpose(0, 3, 1, 2) / 255.0
    for section in range(3):
        first = 4 * section  # index of the section's layers: convolution, max-pool, block, block
        found = largest(convolved(found, weights, f"convolutions.{first}"))
        for block in (first + 2, first + 3):
            inner = convolved(np.maximum(found, 0), weights, f"convolutions.{block}.first")
            found = found + convolved(np.maximum(inner, 0), weights, f"convolutions.{block}.second")
    flat = np.maximum(found, 0).reshape(2, -1)
    expected = np.maximum(flat @ weights["linear.weight"].T + weights["linear.bias"], 0)
    with torch.no_grad():
        assert np.allclose(encoder(torch.from_numpy(pictures)).numpy(), expected, atol=1e-5)
    assert expected.shape == (2, 256) and sum(each.size for each in weights.values()) == 97_600 + 193 * 256


@pytest.mark.parametrize("network", ["nature", "impala", "auto"])
def test_features_begin_at_the_scale_of_one(network: str) -> None:
    torch.manual_seed(0)
    encoder = image_encoder(network, _leaf((12, 12, 3) if network == "auto" else (64, 64, 3)))
    shape = (16, encoder.height, encoder.width, 3)
    assert 0.2 < encoder(torch.randint(0, 256, shape, dtype=torch.uint8)).std().item() < 2.0


def test_a_picture_with_channels_last_reaches_the_convolutions_without_a_copy_of_its_layout() -> None:
    encoder, seen = image_encoder("nature", _leaf((40, 40, 3))), []
    encoder.convolutions.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    encoder(torch.zeros(2, 40, 40, 3, dtype=torch.uint8))
    assert seen[0].shape == (2, 3, 40, 40) and seen[0].is_contiguous(memory_format=torch.channels_last)


def test_bytes_are_scaled_and_floats_are_taken_as_they_are() -> None:
    torch.manual_seed(0)
    picture = torch.randint(0, 256, (2, 10, 10, 2), dtype=torch.uint8)
    leaves = (_leaf((10, 10, 2)), _leaf((10, 10, 2), np.float32, 1.0), _leaf((10, 10, 2), np.float32, 255.0))
    of_bytes, of_floats, of_large_floats = (image_encoder("auto", leaf) for leaf in leaves)
    for other in (of_floats, of_large_floats):
        other.load_state_dict(of_bytes.state_dict())
    expected = of_bytes(picture)
    torch.testing.assert_close(of_floats(picture.float() / 255), expected)
    torch.testing.assert_close(of_large_floats(picture.float()), expected)
