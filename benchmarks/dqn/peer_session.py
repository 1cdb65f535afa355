"""Session that trains Stable-Baselines3's DQN, in that library's virtual environment.

It alternates `collect_rollouts` and `train`, like the library's own loop, without loggers and callbacks. Environments
run in a `DummyVecEnv`, by far its fastest here, without the `Monitor` that the library's helpers would add.
"""

from __future__ import annotations

from benchmarks.dqn.workloads import Sizes
from benchmarks.ppo.peer_session import make_env
from benchmarks.stepping import Stepper, serve, training_options


def build_training(sizes: Sizes, *, threads: int | None) -> Stepper:
    """Build a model that collects and learns in turn, as `learn` does, and warm it up until it learns."""
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    if threads is not None:
        torch.set_num_threads(threads)
    model = DQN(
        "MlpPolicy",
        DummyVecEnv([lambda: make_env(sizes.env, **sizes.env_kwargs)] * sizes.n_envs),
        learning_rate=sizes.learning_rate,
        buffer_size=sizes.replay_size,
        learning_starts=sizes.learning_starts,
        batch_size=sizes.minibatch_size,
        train_freq=1,  # in steps of the whole vector env
        gradient_steps=1,
        target_update_interval=sizes.target_updates * sizes.n_envs,
        exploration_initial_eps=sizes.epsilon,
        exploration_final_eps=sizes.epsilon,
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
            replay_buffer=model.replay_buffer,
            learning_starts=model.learning_starts,
        )
        if model.num_timesteps > model.learning_starts:
            model.train(gradient_steps=1, batch_size=model.batch_size)
        return sizes.n_envs

    while model.num_timesteps < 2 * sizes.learning_starts:
        advance()
    return Stepper(advance, model.env.close, facts=lambda: {"threads": torch.get_num_threads()})


def main() -> None:
    options = training_options(__doc__)
    serve(lambda: build_training(Sizes(**options.sizes), threads=options.threads))


if __name__ == "__main__":
    main()
