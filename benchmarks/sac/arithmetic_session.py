"""Session that runs only the arithmetic of SAC's update: the limit for an update in PyTorch on these cores.

It makes the products (with `product`, like ours), activations, Adam steps and target updates of one update, on prepared
tensors and into prepared memory: the actor forward on both halves of a batch, target critics and critics forward,
critics back, critics forward and back to the actions, actor back. There is no environment, replay buffer, noise, loss
or autograd; going back starts from fixed gradients. A step is an update.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise

import torch
from torch import Tensor

from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import Sizes
from benchmarks.stepping import Stepper, serve
from envfleet.policies.products import product

OBSERVATION, ACTION = 17, 6  # of HalfCheetah-v5
UPDATES = 8  # at once


class Networks:
    """Equal MLPs with relu side by side: weights [network, output, input], and memory for one pass each way."""

    def __init__(self, count: int, sizes: list[int], rows: int) -> None:
        shapes = [(count, outputs, inputs) for inputs, outputs in pairwise(sizes)]
        self.flat = 0.05 * torch.randn(sum(torch.Size(shape).numel() + count * shape[1] for shape in shapes))
        self.gradient, self._moments = torch.zeros_like(self.flat), [torch.zeros_like(self.flat) for _ in range(2)]
        self._weights, self._biases = _views(self.flat, shapes)
        self._of_weights, self._of_biases = _views(self.gradient, shapes)
        self._values = [torch.empty(count, rows, shape[1]) for shape in shapes]
        self._back = [torch.empty(count, rows, shape[2]) for shape in shapes]
        self._steps = torch.zeros(())

    def forward(self, rows: Tensor) -> None:
        self._seen = [rows.expand(len(self._weights[0]), -1, -1)]
        for weight, bias, values in zip(self._weights, self._biases, self._values, strict=True):
            product(self._seen[-1], weight.transpose(1, 2), bias, out=values)
            if values is not self._values[-1]:
                values.relu_()
                self._seen.append(values)

    def backward(self, gradient: Tensor, *, weights: bool) -> None:
        """Go back from a gradient of the first rows' outputs: to the weights, or else to the inputs."""
        rows = gradient.shape[1]
        for layer in range(len(self._weights) - 1, -1, -1):
            seen = self._seen[layer][:, :rows]
            if weights:
                product(gradient.transpose(1, 2), seen, out=self._of_weights[layer])
                torch.sum(gradient, 1, keepdim=True, out=self._of_biases[layer])
            if layer or not weights:
                gradient = product(gradient, self._weights[layer], out=self._back[layer][:, :rows])
            if layer:
                torch.ops.aten.threshold_backward.grad_input(gradient, seen, 0.0, grad_input=gradient)

    def step(self) -> None:
        self._steps += 1
        options = {"lr": 1e-9, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
        arrays = [[array] for array in (self.flat, self.gradient, *self._moments)]
        torch._fused_adam_(*arrays, [], [self._steps], **options, amsgrad=False, maximize=False)


def _views(flat: Tensor, shapes: list[tuple[int, int, int]]) -> tuple[list[Tensor], list[Tensor]]:
    weights, biases, first = [], [], 0
    for count, outputs, inputs in shapes:
        end = first + count * outputs * inputs
        weights.append(flat[first:end].view(count, outputs, inputs))
        biases.append(flat[end : end + count * outputs].view(count, 1, outputs))
        first = end + count * outputs
    return weights, biases


def build_arithmetic(sizes: Sizes, threads: int) -> Stepper:
    """Build the arithmetic of updates."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batch, hidden = sizes.minibatch_size, list(sizes.hidden)
    actor = Networks(1, [OBSERVATION, *hidden, 2 * ACTION], 2 * batch)
    critics, targets = (Networks(2, [OBSERVATION + ACTION, *hidden, 1], batch) for _ in range(2))
    seen, judged = torch.randn(2 * batch, OBSERVATION), torch.randn(batch, OBSERVATION + ACTION)
    of_values, of_actions = torch.randn(2, batch, 1), torch.randn(1, batch, 2 * ACTION)

    def update() -> None:
        actor.forward(seen)
        targets.forward(judged)
        critics.forward(judged)
        critics.backward(of_values, weights=True)
        critics.step()
        critics.forward(judged)
        critics.backward(of_values, weights=False)
        actor.backward(of_actions, weights=True)
        actor.step()
        targets.flat.lerp_(critics.flat, 0.005)

    @torch.no_grad()
    def advance() -> int:
        for _ in range(UPDATES):
            update()
        return UPDATES

    advance()
    return with_cpu_time(Stepper(advance))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=json.loads, required=True, help="workload sizes, as JSON")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    serve(lambda: build_arithmetic(Sizes(**options.sizes), options.threads))


if __name__ == "__main__":
    main()
