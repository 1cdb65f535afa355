"""Fingerprint of a machine's arithmetic: with equal fingerprints, training gives the same bits."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator

import numpy as np
import threadpoolctl
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["computes_with", "fingerprint"]

LENGTH = 16  # hexadecimal digits of a digest


def computes_with() -> str:
    """Describe the torch build and the CPU instructions that it uses here."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, {platform.system()} {platform.machine()}"


def fingerprint() -> str:
    """Return a digest of `computes_with()` and of small computations, each with one thread.

    They are the building blocks of training: initial weights, matrix products of several shapes, convolutions, their
    gradients, elementwise functions.
    """
    digest = hashlib.sha256(computes_with().encode())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            for result in (*_products(), *_convolution(), *_functions(), *_initial_weights()):
                digest.update(result.detach().contiguous().numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    return digest.hexdigest()[:LENGTH]


def _numbers(*shape: int) -> Tensor:
    """Return numbers between -1 and 1, the same on every machine. torch's memory is aligned, NumPy's not always."""
    count = int(np.prod(shape))
    scattered = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return torch.tensor(scattered / 2**31 - 1.0, dtype=torch.float32).reshape(shape)


def _products() -> Iterator[Tensor]:
    for rows, inputs, outputs in ((1, 4, 16), (4, 16, 2), (12, 4, 16), (96, 16, 64), (256, 64, 64), (16, 576, 512)):
        given, weight = _numbers(rows, inputs), _numbers(inputs, outputs)
        product = torch.addmm(_numbers(outputs), given, weight)
        yield product
        yield given.t() @ product  # as in a backward pass
        yield torch.from_numpy(np.matmul(given.numpy(), weight.numpy()))


def _convolution() -> Iterator[Tensor]:
    pictures, kernels = _numbers(8, 3, 36, 36), _numbers(32, 3, 8, 8).requires_grad_()
    result = functional.conv2d(pictures, kernels, stride=4)
    result.square().mean().backward()
    assert kernels.grad is not None
    yield from (result, kernels.grad)


def _functions() -> Iterator[Tensor]:
    numbers = _numbers(37, 11)
    positive = numbers.abs() + 0.01
    yield from (numbers.exp(), numbers.tanh(), positive.log(), positive.sqrt(), torch.sigmoid(numbers))
    yield from (functional.log_softmax(numbers, -1), numbers.sum(), numbers.std(), torch.linalg.vector_norm(numbers))
    for values, above_zero in ((numbers, positive), (numbers.double(), positive.double())):
        plain, plain_above_zero = values.numpy(), above_zero.numpy()
        results = (np.exp(plain), np.tanh(plain), np.log(plain_above_zero), plain.mean(0), plain.std(0))
        yield from map(torch.from_numpy, results)


def _initial_weights() -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    yield torch.nn.init.orthogonal_(torch.empty(64, 16), generator=generator)
    yield torch.randn(100, generator=generator)
