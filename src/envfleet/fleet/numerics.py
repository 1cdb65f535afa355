"""A fingerprint of a machine's arithmetic, to compare the nodes of a cluster.

The same seed gives the same weights on all machines whose arithmetic agrees. Libraries choose their kernels by the CPU,
so two CPUs may differ in the last bit. The fingerprint has a digest for each library, so a difference can be named.

Torch is measured only in processes that have loaded it: a worker that just steps never does. So hosts report it later
than the rest, with the first message of a worker that acts.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from envfleet.machine import cpu_model

__all__ = ["PORTABLE", "Numerics", "measure_numerics", "measure_torch", "prefers_onednn"]

Array = np.ndarray[Any, Any]
LENGTH = 12  # hexadecimal digits of a digest
# Environment variables that let libraries use the kernels of AVX2 machines everywhere; read when they are loaded.
PORTABLE = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
}


@dataclass(frozen=True)
class Numerics:
    """Digests of small computations, one for each library, with the CPU and the kernels that computed them."""

    cpu: str
    blas: str  # matrix products
    numpy: str  # elementwise functions
    libm: str  # functions of the C library
    kernels: str  # of the BLAS library
    torch: str = ""  # networks; empty if torch was not loaded

    def differences(self, other: Numerics) -> list[str]:
        """The libraries that compute differently."""
        names = {"blas": "BLAS", "numpy": "NumPy", "libm": "the C library"}
        found = [shown for name, shown in names.items() if getattr(self, name) != getattr(other, name)]
        return [*found, "torch"] if self.torch and other.torch and self.torch != other.torch else found

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def measure_numerics() -> Numerics:
    """Compute the fingerprint of this process, with one thread."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1):
        found = threadpoolctl.threadpool_info()
        kernels = [f"{each['internal_api']} {each.get('architecture', '')}".strip() for each in found]
        return Numerics(
            cpu_model(),
            _digest(_products()),
            _digest(_functions()),
            _digest(_of_libm()),
            ", ".join(sorted(set(kernels))),
            measure_torch(),
        )


def measure_torch() -> str:
    """The digest of torch's arithmetic; empty if this process has not loaded torch."""
    return _torch_digest() if "torch" in sys.modules else ""


@functools.cache
def _torch_digest() -> str:
    import threadpoolctl

    torch: Any = sys.modules["torch"]
    with threadpoolctl.threadpool_limits(1), torch.inference_mode():
        return _digest(_of_torch(torch))


@functools.cache
def prefers_onednn() -> bool:
    """Whether policies make large products by oneDNN instead of MKL (`policies/products.py`). Torch must be loaded."""
    torch: Any = sys.modules["torch"]
    return (
        "AMD" in cpu_model()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _digest(results: Iterator[Array]) -> str:
    digest = hashlib.sha256()
    for result in results:
        digest.update(np.ascontiguousarray(result).tobytes())
    return digest.hexdigest()[:LENGTH]


def _numbers(*shape: int, dtype: Any = np.float32) -> Array:
    """Numbers between -1 and 1, the same on every machine."""
    count = int(np.prod(shape))
    scattered = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return (scattered / 2**31 - 1.0).astype(dtype).reshape(shape)


def _products() -> Iterator[Array]:
    for rows, inputs, outputs in ((4, 4, 64), (4, 64, 64), (16, 64, 2), (32, 17, 64), (32, 256, 256), (16, 576, 512)):
        for dtype in (np.float32, np.float64):
            yield _numbers(rows, inputs, dtype=dtype) @ _numbers(inputs, outputs, dtype=dtype)


def _functions() -> Iterator[Array]:
    for dtype in (np.float32, np.float64):
        values = _numbers(37, 11, dtype=dtype)
        positive = np.abs(values) + dtype(0.01)
        yield from (np.tanh(values), np.exp(values), np.log(positive), np.sqrt(positive), np.sin(values))
        scores = np.exp(values - values.max(axis=-1, keepdims=True))
        yield scores / scores.sum(axis=-1, keepdims=True)


def _of_torch(torch: Any) -> Iterator[Array]:
    """What policies compute: dense layers, activations, a convolution, normalisation, probabilities."""
    functional = torch.nn.functional
    for rows, inputs, outputs in ((4, 4, 64), (16, 64, 64), (32, 256, 64)):
        weight, bias = torch.from_numpy(_numbers(outputs, inputs)), torch.from_numpy(_numbers(outputs))
        yield functional.linear(torch.from_numpy(_numbers(rows, inputs)), weight, bias).numpy()
    values = torch.from_numpy(_numbers(37, 11))
    for function in (torch.tanh, torch.sigmoid, torch.exp, torch.sin, functional.softplus, functional.gelu):
        yield function(values).numpy()
    yield functional.log_softmax(values, dim=-1).numpy()
    yield functional.layer_norm(values, (11,)).numpy()
    pictures, kernels = torch.from_numpy(_numbers(2, 4, 20, 20)), torch.from_numpy(_numbers(16, 4, 8, 8))
    yield functional.conv2d(pictures, kernels, stride=4).numpy()
    if prefers_onednn():
        rows, weight = torch.from_numpy(_numbers(32, 576)), torch.from_numpy(_numbers(64, 576))
        yield torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "").numpy()


def _of_libm() -> Iterator[Array]:
    values = _numbers(200, dtype=np.float64).tolist()
    for function in (math.sin, math.cos, math.exp, math.tanh):
        yield np.array([function(value) for value in values])
    yield np.array([math.log(abs(value) + 0.01) for value in values])
