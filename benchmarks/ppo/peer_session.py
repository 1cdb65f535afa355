"""Session that trains Stable-Baselines3's PPO (or sb3-contrib's), in that library's virtual environment.

It alternates `collect_rollouts` and `train`, like the library's own loop, without loggers and callbacks. Environments
run in a `DummyVecEnv`, by far its fastest here, without the `Monitor` that the library's helpers would add.
"""

from __future__ import annotations

from typing import Any

from benchmarks.ppo.workloads import MEMORY_UNITS, Sizes
from benchmarks.stepping import Stepper, serve, training_options

WARM_UPDATES = 2


def make_env(name: str, **kwargs: Any) -> Any:
    """Build one environment from a Gymnasium id, as Envfleet does, or from `module:callable`."""
    import importlib

    import gymnasium

    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)(**kwargs)
    return gymnasium.make(name, disable_env_checker=True, **kwargs)


def build_model(sizes: Sizes, *, recurrent: bool) -> Any:
    """Build the model with Envfleet's networks: separate 64×64 tanh MLPs, one Nature CNN, or one LSTM for both."""
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

        # One LSTM for actor and critic, like ours; the default of two takes longer.
        memory = {"lstm_hidden_size": MEMORY_UNITS, "shared_lstm": True, "enable_critic_lstm": False}
        return RecurrentPPO("MlpLstmPolicy", vector, policy_kwargs=memory, **shared)
    if sizes.has_images:
        return PPO("CnnPolicy", vector, **shared)
    return PPO("MlpPolicy", vector, policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}}, **shared)


def build_training(sizes: Sizes, *, recurrent: bool, threads: int | None) -> Stepper:
    """Build a model that collects and learns in turn, as `learn` does, and warm it up."""
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
