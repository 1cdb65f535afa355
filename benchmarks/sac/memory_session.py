"""Session that runs only the memories of a recurrent update of SAC: the limit for these passes on these cores.

Four passes forward and two back go through memories of Envfleet, on prepared tensors, for half of the trials on each
of two threads. There are no embeddings, heads, losses, drawing or steps of Adam. A step is an update.
"""

from __future__ import annotations

import torch

from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import RecurrentSizes
from benchmarks.stepping import Stepper, serve, training_options

THREADS = 2


def build_passes(sizes: RecurrentSizes) -> Stepper:
    """Build the memories of actor and critic, and their inputs."""
    from envfleet.policies.learner_threads import LearnerThreads
    from envfleet.policies.memory import Memory

    torch.set_num_threads(1)
    torch.manual_seed(0)
    features, rows = sum(sizes.embeddings), sizes.batch // THREADS
    actor, critic = (Memory(sizes.memory, features, sizes.units) for _ in range(2))
    halves = [torch.randn(sizes.length + 1, rows, features, requires_grad=True) for _ in range(THREADS)]
    state, threads = torch.zeros(rows, actor.state_size), LearnerThreads(THREADS)

    def passes(inputs: torch.Tensor) -> None:
        for memory in (actor, critic):
            outputs = memory.run(inputs, state, None)
            torch.autograd.grad(outputs, [inputs, *memory.parameters()], outputs.detach())
            with torch.no_grad():  # the target critic's, and the critic's after its step
                memory.run(inputs, state, None)

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
