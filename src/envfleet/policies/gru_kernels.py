"""A GRU, compiled: a step for acting, and whole sequences for learning, in one call without the GIL.

A step is a product of a small matrix and some arithmetic on each unit. As separate operations of torch, the arithmetic
takes as long as the product, and learner threads wait for each other's turn to start the next one. NumPy and torch need
twice as long for a product of a few rows, because they rearrange the matrix each time.

The order of all sums is fixed, so processors with fused multiplication agree to the bit, whatever the width of their
vectors. All arrays are float32 and contiguous. `time`, `batch` and `units` are their first, second and last dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envfleet.kernels import compiler

__all__ = ["backward", "forward", "step"]

Array = np.ndarray[Any, Any]
_FLOAT = np.float32
# A multiplication and an addition may become one instruction. Sums keep their order.
kernel = compiler(error_model="numpy", fastmath={"contract"})


@kernel
def step(
    features: Array,
    state: Array,
    of_input: Array,
    bias_input: Array,
    of_state: Array,
    bias_state: Array,
    projected: Array,
    pulled: Array,
) -> None:
    """Update `state` [batch, units]. `of_input` [n, 3 units] is W, `of_state` [units, 3 units] is U.

    `projected` and `pulled` [batch, 3 units] are memory to work in.
    """
    batch, units = state.shape
    for b in range(batch):
        projected[b] = bias_input
        pulled[b] = bias_state
    _add_product(projected, features, of_input)
    _add_product(pulled, state, of_state)
    for b in range(batch):
        for u in range(2 * units):
            pulled[b, u] += projected[b, u]
        _finish_step(pulled[b], projected[b, 2 * units :], state[b], state[b])


@kernel
def forward(pulled: Array, candidates: Array, held: Array, states: Array, starts: Array, of_state: Array) -> None:
    """Compute `states` [time, batch, units], and the arrays that `backward` reads.

    `pulled` [time, batch, 3 units] becomes r, z and h U_n. It holds x W + b of both for r and z, and the bias of h U_n.
    `candidates` become n and hold x W_n + b. `held` becomes the states before each step; its first one is given. If
    `starts` [time, batch] is set, that state is zero. `of_state` [units, 3 units] is U.
    """
    time, batch, _ = states.shape
    for t in range(time):
        for b in range(batch):
            if t > 0:
                held[t, b] = states[t - 1, b]
            if starts[t, b]:
                held[t, b] = _FLOAT(0.0)
        _add_product(pulled[t], held[t], of_state)
        for b in range(batch):
            _finish_step(pulled[t, b], candidates[t, b], held[t, b], states[t, b])


@kernel
def _finish_step(pulled: Array, candidate: Array, held: Array, state: Array) -> None:
    units = len(state)
    resets, updates, recalled = pulled[:units], pulled[units : 2 * units], pulled[2 * units :]
    for u in range(units):
        reset, update = _sigmoid(resets[u]), _sigmoid(updates[u])
        new = _tanh(candidate[u] + reset * recalled[u])
        resets[u], updates[u], candidate[u] = reset, update, new
        state[u] = new + update * (held[u] - new)


@kernel
def backward(
    gradient: Array,
    pulled: Array,
    candidates: Array,
    held: Array,
    starts: Array,
    of_state: Array,
    of_pulled: Array,
    of_candidates: Array,
    carried: Array,
) -> None:
    """Compute the gradients of h U + b, of x W_n + b and, in `carried` [batch, units], of the first state.

    `gradient` [time, batch, units] is that of the states, `of_state` [3 units, units] is U transposed, and the other
    arrays are those of `forward`.
    """
    time, batch, _ = gradient.shape
    carried[:] = _FLOAT(0.0)
    for t in range(time - 1, -1, -1):
        for b in range(batch):
            given = gradient[t, b], pulled[t, b], candidates[t, b], held[t, b]
            _begin_step_back(*given, of_pulled[t, b], of_candidates[t, b], carried[b])
        _add_product(carried, of_pulled[t], of_state)
        for b in range(batch):
            if starts[t, b]:
                carried[b] = _FLOAT(0.0)


@kernel
def _begin_step_back(
    gradient: Array, pulled: Array, candidate: Array, held: Array, of_pulled: Array, of_candidate: Array, carried: Array
) -> None:
    units, one = len(gradient), _FLOAT(1.0)
    resets, updates, recalled = pulled[:units], pulled[units : 2 * units], pulled[2 * units :]
    of_reset, of_update, of_recalled = of_pulled[:units], of_pulled[units : 2 * units], of_pulled[2 * units :]
    for u in range(units):
        reset, update, new, here = resets[u], updates[u], candidate[u], carried[u] + gradient[u]
        of_new = here * (one - update) * (one - new * new)  # through tanh
        of_candidate[u] = of_new
        of_recalled[u] = of_new * reset
        of_reset[u] = of_new * recalled[u] * reset * (one - reset)
        of_update[u] = here * (held[u] - new) * update * (one - update)
        carried[u] = here * update


@kernel
def _add_product(result: Array, left: Array, right: Array) -> None:
    """Add left [rows, inner] times right [inner, columns] to `result`.

    Four rows and four inner places at a time need few loads for each multiplication.
    """
    rows, inner = left.shape
    for i in range(0, rows - 3, 4):
        r0, r1, r2, r3 = result[i], result[i + 1], result[i + 2], result[i + 3]
        for k in range(0, inner - 3, 4):
            w0, w1, w2, w3 = right[k], right[k + 1], right[k + 2], right[k + 3]
            a00, a01, a02, a03 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            a10, a11, a12, a13 = left[i + 1, k], left[i + 1, k + 1], left[i + 1, k + 2], left[i + 1, k + 3]
            a20, a21, a22, a23 = left[i + 2, k], left[i + 2, k + 1], left[i + 2, k + 2], left[i + 2, k + 3]
            a30, a31, a32, a33 = left[i + 3, k], left[i + 3, k + 1], left[i + 3, k + 2], left[i + 3, k + 3]
            for j in range(len(r0)):
                x0, x1, x2, x3 = w0[j], w1[j], w2[j], w3[j]
                r0[j] += a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
                r1[j] += a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
                r2[j] += a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
                r3[j] += a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3
        for k in range(inner - inner % 4, inner):
            for row in range(i, i + 4):
                _add_scaled(result[row], left[row, k], right[k])
    for row in range(rows - rows % 4, rows):
        for k in range(inner):
            _add_scaled(result[row], left[row, k], right[k])


@kernel
def _add_scaled(result: Array, factor: float, row: Array) -> None:
    for j in range(len(result)):
        result[j] += factor * row[j]


@kernel
def _sigmoid(value: Any) -> Any:
    return _FLOAT(0.5) + _FLOAT(0.5) * _tanh(_FLOAT(0.5) * value)


@kernel
def _tanh(value: Any) -> Any:
    """Return tanh to a few units in the last place: the quotient of polynomials that Eigen and TensorFlow use."""
    x = min(max(value, _FLOAT(-7.90531110763549805)), _FLOAT(7.90531110763549805))
    square = x * x
    above = _FLOAT(-2.76076847742355e-16)
    above = above * square + _FLOAT(2.00018790482477e-13)
    above = above * square + _FLOAT(-8.60467152213735e-11)
    above = above * square + _FLOAT(5.12229709037114e-08)
    above = above * square + _FLOAT(1.48572235717979e-05)
    above = above * square + _FLOAT(6.37261928875436e-04)
    above = above * square + _FLOAT(4.89352455891786e-03)
    below = _FLOAT(1.19825839466702e-06)
    below = below * square + _FLOAT(1.18534705686654e-04)
    below = below * square + _FLOAT(2.26843463243900e-03)
    below = below * square + _FLOAT(4.89352518554385e-03)
    return x * above / below
