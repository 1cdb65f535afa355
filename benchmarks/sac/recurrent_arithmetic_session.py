"""Session that runs only the arithmetic of a recurrent update of SAC: the limit with these memories on these cores.

Four passes forward and two back go through memories of Envfleet, and as many as the losses need through the heads, on
prepared tensors, for half of the trials on each of two threads. There are no embeddings, actions, losses, drawing or
steps of Adam. A step is an update.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import RecurrentSizes
from benchmarks.stepping import Stepper, serve, training_options

THREADS = 2


def _layers(count: int, sizes: list[int]) -> list[Tensor]:
    """Weights and biases of equal MLPs side by side."""
    layers = [0.05 * torch.randn(shape) for a, b in pairwise(sizes) for shape in ((count, b, a), (count, b))]
    return [tensor.requires_grad_() for tensor in layers]


def build_passes(sizes: RecurrentSizes) -> Stepper:
    """Build memories and heads of actor and critics, and their inputs."""
    from envfleet.machine import keep_freed_memory
    from envfleet.policies.learner_threads import LearnerThreads
    from envfleet.policies.memory import Memory
    from envfleet.policies.relu_layers import relu_layers

    keep_freed_memory()  # as a run does
    torch.set_num_threads(1)
    torch.manual_seed(0)
    features, batch, of_observation = sum(sizes.embeddings), sizes.batch // THREADS, sizes.embeddings[2]
    actor, critic = (Memory(sizes.memory, features, sizes.units) for _ in range(2))
    decides = _layers(1, [sizes.units + of_observation, *sizes.hidden, 2 * sizes.action])
    judges = _layers(2, [sizes.units + of_observation, *sizes.hidden, 1])
    frozen = [tensor.detach() for tensor in judges]
    rows = (sizes.length + 1) * batch
    halves = [
        (torch.randn(sizes.length + 1, batch, features, requires_grad=True), torch.randn(rows, of_observation))
        for _ in range(THREADS)
    ]
    state, threads = torch.zeros(batch, actor.state_size), LearnerThreads(THREADS)

    def passes(half: tuple[Tensor, Tensor]) -> None:
        inputs, current = half
        parameters = relu_layers([actor.run(inputs, state, None).flatten(0, 1), current], decides)
        with torch.no_grad():  # the target critics
            relu_layers([critic.run(inputs, state, None).flatten(0, 1), current], frozen)
        values = relu_layers([critic.run(inputs, state, None).flatten(0, 1), current], judges)
        torch.autograd.grad(values, [inputs, *critic.parameters(), *judges], values.detach())
        with torch.no_grad():  # the critics after their step
            remembered = critic.run(inputs, state, None).flatten(0, 1)
        acted = current.clone().requires_grad_()
        values = relu_layers([remembered, acted], frozen)
        torch.autograd.grad(values, [acted], values.detach())
        torch.autograd.grad(parameters, [inputs, *actor.parameters(), *decides], parameters.detach())

    def advance() -> int:
        threads.map(passes, halves)
        return 1

    advance()
    return with_cpu_time(Stepper(advance, threads.close))


def main() -> None:
    options = training_options(__doc__)
    serve(lambda: build_passes(RecurrentSizes(**options.sizes)))


if __name__ == "__main__":
    main()
