"""Session that trains SAC of Stable-Baselines3 or, with `--jax`, of SBX, in that library's virtual environment.

It alternates `collect_rollouts` and `train`, like the library's own loop, without loggers and callbacks. Environments
run in a `DummyVecEnv`, by far its fastest here, without the `Monitor` that the library's helpers would add. After a
step of all environments it makes as many updates at once, which is faster than one by one.
"""

from __future__ import annotations

from typing import Any

from benchmarks.ppo.peer_session import make_env
from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import Sizes
from benchmarks.stepping import Stepper, serve, training_options


def build_training(sizes: Sizes, *, jax: bool, threads: int | None) -> Stepper:
    """Build a model that collects and learns in turn, as `learn` does, and warm it up until it learns."""
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    if threads is not None:
        torch.set_num_threads(threads)
    model: Any = _class(jax=jax)(
        "MlpPolicy",
        DummyVecEnv([lambda: make_env(sizes.env, **sizes.env_kwargs)] * sizes.n_envs),
        learning_rate=sizes.learning_rate,
        buffer_size=sizes.replay_size,
        learning_starts=sizes.learning_starts,
        batch_size=sizes.minibatch_size,
        train_freq=1,  # in steps of the whole vector env
        gradient_steps=sizes.n_envs,
        policy_kwargs={"net_arch": list(sizes.hidden)},
        seed=0,
        device="cpu",
    )
    _, callback = model._setup_learn(10**12)

    def advance() -> int:
        model.collect_rollouts(
            model.env,
            callback,
            train_freq=model.train_freq,
            action_noise=model.action_noise,
            replay_buffer=model.replay_buffer,
            learning_starts=model.learning_starts,
        )
        if model.num_timesteps > model.learning_starts:
            # SBX takes the batch size first; both know it by name.
            model.train(gradient_steps=sizes.n_envs, batch_size=sizes.minibatch_size)
        return sizes.n_envs

    while model.num_timesteps < sizes.learning_starts + 10 * sizes.n_envs:
        advance()
    return with_cpu_time(Stepper(advance, model.env.close, facts=lambda: {"threads": torch.get_num_threads()}))


def _class(*, jax: bool) -> Any:
    if jax:
        import sbx

        return sbx.SAC
    import stable_baselines3

    return stable_baselines3.SAC


def main() -> None:
    options = training_options(__doc__, jax="train SBX's SAC")
    serve(lambda: build_training(Sizes(**options.sizes), jax=options.jax, threads=options.threads))


if __name__ == "__main__":
    main()
