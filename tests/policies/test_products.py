"""Products of matrices: the same values by both libraries, and bits that depend on nothing but the numbers."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from envfleet.policies import products
from envfleet.policies.products import linear, product

LARGE, SMALL = (256, 128, 96), (8, 128, 96)  # above and below the size from which oneDNN is used


@pytest.fixture(params=["torch's choice", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(products, "prefers_onednn", lambda: request.param == "oneDNN")
    if request.param == "oneDNN" and not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this build of torch has no oneDNN")
    return str(request.param)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact(left: Tensor, right: Tensor, bias: Tensor | None = None, factor: float = 1.0) -> Tensor:
    found = left.double() @ right.double()
    return (factor * (found if bias is None else found + bias.double())).float()


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-5, atol=2e-4)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", [LARGE, SMALL])
class TestProduct:
    def test_matrices(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        left, right, bias = numbers(rows, inner), numbers(inner, columns, seed=1), numbers(columns, seed=2)
        assert close(product(left, right), exact(left, right))
        assert close(product(left, right, bias), exact(left, right, bias))
        assert close(product(left, right, bias, factor=2.0), exact(left, right, bias, 2.0))
        out = torch.full((rows, columns), torch.nan)
        assert product(left, right, out=out) is out
        assert close(out, exact(left, right))

    def test_transposed_matrices(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        left, right = numbers(inner, rows), numbers(columns, inner, seed=1)
        assert close(product(left.t(), right.t()), exact(left.t(), right.t()))

    def test_stacks_of_matrices(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        shared, right = numbers(rows, inner), numbers(2, columns, inner, seed=1).transpose(1, 2)
        left, bias = shared.expand(2, -1, -1), numbers(2, 1, columns, seed=2)
        assert close(product(left, right), exact(left, right))
        assert close(product(left, right, bias), exact(left, right, bias))
        longer = torch.full((2, 2 * rows, columns), torch.nan)
        product(left, right, bias, out=longer[:, :rows])
        assert close(longer[:, :rows], exact(left, right, bias))
        assert longer[:, rows:].isnan().all()

    def test_a_linear_layer_with_its_gradients(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        values = [numbers(*size, seed=seed) for seed, size in enumerate(((rows, inner), (columns, inner), (columns,)))]
        ours, theirs = ([tensor.clone().requires_grad_() for tensor in values] for _ in range(2))
        following = numbers(rows, columns, seed=3)
        found, expected = linear(*ours), functional.linear(*(tensor.double() for tensor in theirs)).float()
        assert close(found, expected)
        (found * following).sum().backward()
        (expected * following).sum().backward()
        for our, their in zip(ours, theirs, strict=True):
            assert our.grad is not None and their.grad is not None
            assert close(our.grad, their.grad)
        frozen = [values[0].clone().requires_grad_(), *values[1:]]
        linear(*frozen).sum().backward()  # weights without gradient
        assert frozen[0].grad is not None and frozen[1].grad is None

    def test_bits_depend_on_the_numbers_only(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        left, right = numbers(rows, inner), numbers(inner, columns, seed=1)
        found = product(left, right)
        for offset in (0, 16, 32):  # in floats: learners align to 64 bytes
            memory = torch.empty(left.numel() + offset)
            moved = memory[offset:].view_as(left).copy_(left)
            assert torch.equal(product(moved, right), found)

    def test_bits_do_not_depend_on_the_thread(self, shape: tuple[int, int, int]) -> None:
        """Without its setting, a new thread uses all cores, and oneDNN then splits long sums."""
        rows, _, columns = shape
        left, right = numbers(rows // 8, 65_536), numbers(65_536, columns // 8, seed=1)
        before, found = torch.get_num_threads(), []
        torch.set_num_threads(1)
        try:
            thread = threading.Thread(target=lambda: found.append(product(left, right)))
            thread.start()
            thread.join()
            assert torch.equal(found[0], product(left, right))
        finally:
            torch.set_num_threads(before)

    def test_a_bias_that_is_not_contiguous(self, shape: tuple[int, int, int]) -> None:
        rows, inner, columns = shape
        left, right, bias = numbers(rows, inner), numbers(inner, columns, seed=1), numbers(2 * columns, seed=2)[::2]
        assert close(product(left, right, bias), exact(left, right, bias))
        assert close(product(left, right, bias[:1].expand(columns)), exact(left, right, bias[:1].expand(columns)))

    def test_weights_may_change_before_the_gradient_of_another_is_taken(self, shape: tuple[int, int, int]) -> None:
        """As with torch's own layer: what is frozen is not needed, so it may be overwritten."""
        rows, inner, columns = shape
        values, weight, bias = numbers(rows, inner), numbers(columns, inner, seed=1), torch.zeros(columns)
        trained = weight.clone().requires_grad_()
        result = linear(values, trained, bias)
        with torch.no_grad():
            trained.zero_()
        result.sum().backward()
        assert trained.grad is not None
        assert close(trained.grad, values.sum(0).expand(columns, -1))
        moved = values.clone().requires_grad_()
        linear(moved, weight, bias).sum().backward()
        assert moved.grad is not None and close(moved.grad, weight.sum(0).expand(rows, -1))


def test_only_large_products_of_float32_go_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def record(left: Tensor, right: Tensor, *others: Any) -> Tensor:
        calls.append((left.dtype, left.shape))
        return left @ right

    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "_by_onednn", record)
    for rows, inner, columns in (LARGE, SMALL):
        left, right = numbers(rows, inner), numbers(inner, columns)
        product(left, right)
        product(left.double(), right.double())
    assert calls == [(torch.float32, LARGE[:2])]
