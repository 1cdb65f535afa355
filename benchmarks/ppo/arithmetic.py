"""Session that runs only the arithmetic of PPO on images: the upper limit of training speed on these cores.

It makes the same passes as the workload, on prepared tensors: forward passes for acting in batches of the group size,
one for the values at the end of the rollout, and forward, backward and Adam for every minibatch, with as many images at
once as PPO. There is no environment, rollout, shuffling or loss; backward starts from fixed gradients at the heads.
With several processes, each does its share of all passes and never waits for the others.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks.plain_loop import Barriers, add_barriers
from benchmarks.ppo.workloads import SIZES
from benchmarks.stepping import Stepper, serve

if TYPE_CHECKING:
    from torch import nn

GROUPS, ACTIONS = 4, 15  # of the workload's 32 environments


def nature() -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(inplace=True),
    )


def impala() -> nn.Module:
    """IMPALA network: Espeholt et al. (2018), figure 3, right, with 16, 32 and 32 channels."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
            self.inner = nn.Sequential(nn.ReLU(), convolutions[0], nn.ReLU(inplace=True), convolutions[1])

        def forward(self, images: Any) -> Any:
            return images + self.inner(images)

    def section(channels: int, depth: int) -> list[nn.Module]:
        convolution = nn.Conv2d(channels, depth, 3, padding=1)
        return [convolution, nn.MaxPool2d(3, stride=2, padding=1), Residual(depth), Residual(depth)]

    sections = [*section(3, 16), *section(16, 32), *section(32, 32)]
    end = [nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(inplace=True)]
    return nn.Sequential(*sections, *end)


# Each with its number of features, and of images at once (`rows_at_once` of our encoders).
BODIES = {"images": (nature, 512, 291), "impala": (impala, 256, 32)}


def build_arithmetic(workload: str, *, threads: int, channels_last: bool, parts: int) -> Stepper:
    """Build one cycle of the workload, divided among `parts` processes."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes, (network, features, at_once) = SIZES[workload], BODIES[workload]
    layout = torch.channels_last if channels_last else torch.contiguous_format

    body = network().to(memory_format=layout)
    heads = nn.Linear(features, ACTIONS + 1)
    adam = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=1e-9, fused=True)

    def images(count: int) -> torch.Tensor:
        return torch.rand(count, 3, 64, 64).contiguous(memory_format=layout)

    group, edge = images(sizes.n_envs // GROUPS), images(sizes.n_envs // parts)
    minibatch = images(sizes.minibatch_size // parts)
    gradient = torch.randn(len(minibatch), ACTIONS + 1) / len(minibatch)
    acting_passes = sizes.rollout_steps * GROUPS // parts
    learning_passes = sizes.epochs * sizes.rollout_size // sizes.minibatch_size

    def advance() -> int:
        with torch.inference_mode():
            for _ in range(acting_passes):
                heads(body(group))
            heads(body(edge))
        for _ in range(learning_passes):
            adam.zero_grad()
            for piece, of_piece in zip(minibatch.split(at_once), gradient.split(at_once), strict=True):
                torch.autograd.backward([heads(body(piece))], [of_piece])
            adam.step()
        return sizes.rollout_size // parts

    advance()
    return Stepper(advance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=BODIES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--channels-last", action="store_true")
    add_barriers(parser)
    options = parser.parse_args()
    parts = options.barrier[2] if options.barrier else 1
    serve(
        lambda: build_arithmetic(
            options.workload, threads=options.threads, channels_last=options.channels_last, parts=parts
        ),
        Barriers(options).wait_for_others,
    )


if __name__ == "__main__":
    main()
