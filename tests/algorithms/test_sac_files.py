"""Settings files of pomdp-baselines: every key has an effect or a notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from envfleet.cli.train import Train
from envfleet.errors import SettingsError

ANT_DIR = """
seed: 73
cuda: 0
env:
  env_type: meta
  env_name: AntDir-v0
  max_rollouts_per_task: 2
  num_tasks: ~
  num_train_tasks: 50
  num_eval_tasks: 20
  num_parallel_workers: 6
train:
  num_iters: 3000
  num_init_rollouts_pool: 500
  num_rollouts_per_iter: 12
  buffer_size: 1e6
  num_updates_per_iter: 0.02
  batch_size: 32
  sampled_seq_len: 400
  sample_weight_baseline: 1.0
  buffer_type: seq_vanilla
eval:
  eval_stochastic: true
  log_interval: 50
  save_interval: -1
  log_tensorboard: true
  num_episodes_per_task: 1
policy:
  separate: true
  seq_model: gru
  algo_name: sac
  action_embedding_size: 8
  observ_embedding_size: 24
  reward_embedding_size: 4
  rnn_hidden_size: 96
  rnn_num_layers: 1
  dqn_layers: [128, 64]
  policy_layers: [128, 64]
  lr: 0.0004
  gamma: 0.95
  tau: 0.01
  sac: {entropy_alpha: 0.2, automatic_entropy_tuning: true, alpha_lr: 0.0005, target_entropy: ~}
  td3: {exploration_noise: 0.1, target_noise: 0.2, target_noise_clip: 0.5}
"""
TRIAL = 2 * 200  # two episodes


def parsed(tmp_path: Path, changes: dict[str, Any] | None = None, *flags: str) -> Train:
    content = yaml.safe_load(ANT_DIR)
    for key, value in (changes or {}).items():
        *sections, name = key.split(".")
        part = content
        for section in sections:
            part = part[section]
        part[name] = value
    (tmp_path / "ant_dir.yml").write_text(yaml.safe_dump(content))
    return Train.parse(["sac", "--config", str(tmp_path / "ant_dir.yml"), *flags])


def test_every_key_has_an_effect_or_a_notice(tmp_path: Path) -> None:
    command = parsed(tmp_path)
    found = command.settings.to_json()
    expected = {
        "seed": 73,
        "env": "AntDir-v0",
        "env_kwargs": {"episodes_per_task": 2, "num_train_tasks": 50, "num_eval_tasks": 20},
        "n_envs": 6,
        "rollout_steps": 2 * TRIAL,  # 12 trials of 6 environments
        "learning_starts": 500 * TRIAL,
        "steps": (500 + 3000 * 12) * TRIAL,
        "replay_size": 1_000_000,
        "updates_per_step": 0.02,
        "minibatch_size": 32,
        "sampled_seq_len": 400,
        "episode_weight": 1.0,
        "eval_sampled": True,
        "eval_every": 50 * 12 * TRIAL,
        "eval_episodes": 20,
        "memory": "gru",
        "architecture": None,
        "action_embedding": 8,
        "observation_embedding": 24,
        "reward_embedding": 4,
        "memory_size": 96,
        "hidden": [128, 64],
        "learning_rate": 0.0004,
        "gamma": 0.95,
        "target_rate": 0.01,
        "tune_temperature": True,
        "temperature": 1.0,
        "temperature_learning_rate": 0.0005,
        "target_entropy": None,
    }
    assert {name: found[name] for name in expected} == expected
    noticed = {notice.split(" has no effect: ")[0] for notice in command.notices}
    assert noticed == {
        "cuda", "env.env_type", "train.buffer_type", "eval.save_interval", "eval.log_tensorboard",
        "eval.num_episodes_per_task", "policy.sac.entropy_alpha", "policy.td3.exploration_noise",
        "policy.td3.target_noise", "policy.td3.target_noise_clip",
    }  # fmt: skip


def test_flags_win_and_counts_are_per_iteration(tmp_path: Path) -> None:
    command = parsed(tmp_path, {"train.num_updates_per_iter": 200}, "--lr", "0.1", "--seed", "4")
    found = command.settings.to_json()
    assert found["updates_per_step"] == pytest.approx(200 / (12 * TRIAL))
    assert (found["learning_rate"], found["seed"]) == (0.1, 4)


@pytest.mark.parametrize(
    ("model", "memory", "architecture"),
    [
        ("mlp", "none", None),
        ("lstm", "lstm", None),
        ("gru-mlp", "gru", "memory-markov"),
        ("lstm-mlp", "lstm", "memory-markov"),
    ],
)
def test_models_become_memory_and_architecture(
    tmp_path: Path, model: str, memory: str, architecture: str | None
) -> None:
    found = parsed(tmp_path, {"policy.seq_model": model}).settings.to_json()
    assert (found["memory"], found["architecture"]) == (memory, architecture)


def test_a_fixed_temperature_is_taken(tmp_path: Path) -> None:
    found = parsed(tmp_path, {"policy.sac.automatic_entropy_tuning": False}).settings.to_json()
    assert (found["temperature"], found["tune_temperature"]) == (0.2, False)


def test_the_example_of_a_file_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "part.yml"
    path.write_text(
        "env: {env_type: meta, env_name: AntDir-v0, max_rollouts_per_task: 2, num_parallel_workers: 6}\n"
        "train: {num_rollouts_per_iter: 12}\n"
    )
    found = Train.parse(["sac", "--config", str(path)]).settings.to_json()
    assert (found["env"], found["n_envs"], found["rollout_steps"]) == ("AntDir-v0", 6, 800)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy.algo_name": "td3"}, "policy.algo_name is 'td3', expected 'sac'"),
        ({"policy.rnn_num_layers": 2}, "policy.rnn_num_layers is 2, expected 1"),
        ({"train.sampled_sequence": 3}, "sampled_sequence"),
        ({"policy.gama": 0.9}, "gama"),
        ({"policy.policy_layers": 128}, "policy_layers or dqn_layers is 128, expected a list"),
        ({"policy.dqn_layers": "128"}, "policy_layers or dqn_layers is '128', expected a list"),
        ({"train.num_rollouts_per_iter": 0}, "train.num_rollouts_per_iter is 0, expected a whole number of at least 1"),
        ({"train.num_rollouts_per_iter": 2.5}, "train.num_rollouts_per_iter is 2.5, expected a whole number"),
        ({"env.num_parallel_workers": 0}, "env.num_parallel_workers is 0, expected a whole number of at least 1"),
        ({"env.max_rollouts_per_task": "two"}, "env.max_rollouts_per_task is 'two', expected a number"),
        ({"train.num_init_rollouts_pool": [5]}, r"train.num_init_rollouts_pool is \[5\], expected a number"),
        ({"train.num_iters": "many"}, "train.num_iters is 'many', expected a number"),
        ({"train.num_updates_per_iter": "few"}, "train.num_updates_per_iter is 'few', expected a number"),
        ({"eval.log_interval": "often"}, "eval.log_interval is 'often', expected a number"),
    ],
)
def test_what_has_no_counterpart_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parsed(tmp_path, change)


@pytest.mark.parametrize(("text", "per_rollout", "per_step"), [("50", 50, 1.0), ("0.5", None, 0.5)])
def test_updates_are_a_count_or_a_ratio(text: str, per_rollout: int | None, per_step: float) -> None:
    settings = Train.parse(["sac", "--env", "Pendulum-v1", "--num-updates-per-iter", text]).settings.to_json()
    assert (settings["updates_per_rollout"], settings["updates_per_step"]) == (per_rollout, per_step)


def test_numbers_may_be_written_as_text(tmp_path: Path) -> None:
    """YAML reads 3e3 as a text."""
    texts = {"train.num_iters": "3e3", "train.num_init_rollouts_pool": "5e2", "train.num_rollouts_per_iter": "12"}
    found, expected = (parsed(tmp_path, changes).settings.to_json() for changes in (texts, {}))
    assert found == expected


def test_iterations_of_unknown_length_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "part.yml"
    path.write_text("env: {env_name: AntDir-v0}\ntrain: {num_iters: 30}\n")
    command = Train.parse(["sac", "--config", str(path)])
    (notice,) = command.notices
    assert notice.startswith("train.num_iters has no effect: ") and "num_rollouts_per_iter" in notice
