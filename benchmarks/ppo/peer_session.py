"""A session that trains with Stable-Baselines3 (or sb3-contrib), run by the Python that has it.

Its own loop, `collect_rollouts` and `train` in turn, without loggers and callbacks; environments in a
`DummyVecEnv`, which is by far its fastest here, and without the `Monitor` that its helpers would add.
"""

from __future__ import annotations

from typing import Any

from benchmarks.ppo.workloads import MEMORY_UNITS, Sizes
from benchmarks.stepping import Stepper, serve, training_options

WARM_UPDATES = 2


def make_env(name: str, **kwargs: Any) -> Any:
    """One environment: a Gymnasium id, built as Envfleet does, or `module:callable`."""
    import importlib

    import gymnasium

    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)(**kwargs)
    return gymnasium.make(name, disable_env_checker=True, **kwargs)


def build_model(sizes: Sizes, *, recurrent: bool) -> Any:
    """The model with the networks that Envfleet has: separate 64×64 tanh, one Nature CNN, or one memory for both."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    vector = DummyVecEnv([lambda: make_env(sizes.env, **sizes.env_kwargs)] * sizes.n_envs)
    shared: dict[str, Any] = {
        "n_steps": sizes.rollout_steps,
        "batch_size": sizes.minibatch_size,
        "n_epochs": sizes.epochs,
        "learning_rate": 3e-4,
        "seed": 0,
        "device": "cpu",
    }
    if recurrent:
        from sb3_contrib import RecurrentPPO

        # One memory for actor and critic, as ours: by default it has two, which takes longer.
        memory = {"lstm_hidden_size": MEMORY_UNITS, "shared_lstm": True, "enable_critic_lstm": False}
        return RecurrentPPO("MlpLstmPolicy", vector, policy_kwargs=memory, **shared)
    if sizes.has_images:
        return PPO("CnnPolicy", vector, **shared)
    return PPO("MlpPolicy", vector, policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}}, **shared)


def build_training(sizes: Sizes, *, recurrent: bool, threads: int | None) -> Stepper:
    """Collecting and learning in turn, as `learn` does, warmed up."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    model = build_model(sizes, recurrent=recurrent)
    _, callback = model._setup_learn(10**12)

    def advance() -> int:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model.train()
        return sizes.rollout_size

    for _ in range(WARM_UPDATES):
        advance()
    return Stepper(advance, model.env.close, facts=lambda: {"threads": torch.get_num_threads()})


def main() -> None:
    options = training_options(__doc__, recurrent="RecurrentPPO of sb3-contrib")
    sizes = Sizes(**options.sizes)
    serve(lambda: build_training(sizes, recurrent=options.recurrent, threads=options.threads))


if __name__ == "__main__":
    main()
