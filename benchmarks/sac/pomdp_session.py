"""Session that makes updates of recurrent SAC in the way of pomdp-baselines; a step is an update."""

from __future__ import annotations

from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import RecurrentSizes
from benchmarks.stepping import Stepper, serve, training_options


def build_updates(sizes: RecurrentSizes, *, threads: int | None) -> Stepper:
    """Build the agent and warm it up."""
    import torch

    from benchmarks.sac.pomdp_update import Agent

    if threads is not None:
        torch.set_num_threads(threads)
    agent = Agent(sizes)

    def advance() -> int:
        agent.update()
        return 1

    advance()
    return with_cpu_time(Stepper(advance, facts=lambda: {"threads": torch.get_num_threads()}))


def main() -> None:
    options = training_options(__doc__)
    serve(lambda: build_updates(RecurrentSizes(**options.sizes), threads=options.threads))


if __name__ == "__main__":
    main()
