"""Using a trained run: single observations and batches, memory, masks, normalisation, and loading without trust."""

from __future__ import annotations

import math
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from envfleet.errors import SettingsError
from envfleet.policies.policy import build_policy
from envfleet.rollout.arrays import Rollout
from envfleet.runs.folder import RunFolder
from envfleet.runs.run import Run
from envfleet.runs.trained_policy import TrainedPolicy
from envfleet.training.assembly import assemble, resolve
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.init_from import start_from
from tests.fleet.backends import same
from tests.policies import own_networks
from tests.training.running import SMALL, run, small
from tests.training.worlds import Masked, Nested

Array = np.ndarray[Any, Any]


class OwnNetwork(nn.Module):
    """Features from one linear layer."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(observation))


def observations_of(env: str | Any, count: int) -> list[Any]:
    built = gymnasium.make(env) if isinstance(env, str) else env()
    observation, _ = built.reset(seed=1)
    found = [observation]
    built.action_space.seed(1)
    for _ in range(count - 1):
        observation, _, terminated, truncated, _ = built.step(built.action_space.sample())
        if terminated or truncated:
            observation, _ = built.reset()
        found.append(observation)
    return found


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_one_observation_or_a_batch(tmp_path: Path, env: str) -> None:
    options = {"env": env, "steps": 400, "normalise_observations": env != "FrozenLake-v1"}
    policy = run(tmp_path / "run", **options).policy
    seen = observations_of(env, 20)
    batch = policy.act(np.stack(seen))
    space = gymnasium.make(env).action_space
    assert len(batch) == 20
    assert batch.dtype == space.dtype
    for observation, expected in zip(seen, batch, strict=True):
        action = policy.act(observation)
        assert space.contains(action)
        np.testing.assert_allclose(action, expected, atol=1e-5)
    policy.reset(seed=3)
    drawn = [policy.act(seen[0], deterministic=False) for _ in range(60)]
    policy.reset(seed=3)
    again = [policy.act(seen[0], deterministic=False) for _ in range(60)]
    assert np.array_equal(drawn, again)
    assert len(np.unique(drawn)) > 1


def test_a_nested_observation(tmp_path: Path) -> None:
    policy = run(tmp_path / "run", env=Nested, steps=400).policy
    seen = observations_of(Nested, 8)
    batch = {
        "direction": np.array([each["direction"] for each in seen]),
        "rest": tuple(np.stack([each["rest"][part] for each in seen]) for part in (0, 1)),
    }
    assert policy.act(batch).tolist() == [policy.act(each) for each in seen]
    with pytest.raises(SettingsError, match="rest/0"):
        policy.act({"direction": 2})


def test_it_acts_as_it_was_trained(tmp_path: Path) -> None:
    """The log-probabilities of the last rollout, recomputed by hand, match, with normalisation and memory."""

    class Keep(Callback):
        def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
            self.observations = rollout.observations[""][:-1].copy()
            self.actions = rollout.columns["actions"].copy()
            self.log_probs = rollout.columns["log_probs"].copy()
            self.ended = rollout.ended.copy()
            self.first_memory = rollout.memory[0].copy()

    keep = Keep()
    # With a learning rate of almost zero, the final policy is the one that collected.
    options = {"memory": "gru", "learning_rate": 1e-12, "steps": SMALL["n_envs"] * SMALL["rollout_steps"]}
    trained = run(tmp_path / "run", [keep], **options).policy
    held = torch.from_numpy(keep.first_memory)
    with torch.no_grad():
        for t in range(len(keep.actions)):
            row, actions = torch.from_numpy(keep.observations[t])[None], torch.from_numpy(keep.actions[t])[None]
            found = trained.policy.evaluate({"": row}, actions, None, held, None)
            np.testing.assert_allclose(found.log_probs[0].numpy(), keep.log_probs[t], atol=1e-4)
            _, held = trained.policy.best_actions({"": row[0]}, held)
            held[torch.from_numpy(keep.ended[t])] = 0.0


def test_memory_lasts_from_call_to_call_until_reset(tmp_path: Path) -> None:
    trained = run(tmp_path / "run", memory="lstm", env="Pendulum-v1", steps=400).policy
    seen = observations_of("Pendulum-v1", 6)
    first = [float(trained.act(observation)[0]) for observation in seen]
    trained.reset()
    assert [float(trained.act(observation)[0]) for observation in seen] == first
    fresh = []
    for observation in seen:
        trained.reset()
        fresh.append(float(trained.act(observation)[0]))
    assert fresh[0] == first[0]
    assert fresh[1:] != first[1:]


@pytest.mark.parametrize("deterministic", [True, False])
def test_masks_are_minded(tmp_path: Path, deterministic: bool) -> None:
    policy = run(tmp_path / "run", env=Masked, steps=400).policy
    observation = np.array([1, 1, 0, 0, 0, 0], np.int8)
    for allowed in range(6):
        mask = np.arange(6) == allowed
        assert policy.act(observation, mask=mask, deterministic=deterministic) == allowed
    batch, masks = np.tile(observation, (6, 1)), np.eye(6, dtype=np.int8)
    assert policy.act(batch, mask=masks, deterministic=deterministic).tolist() == list(range(6))


@pytest.mark.parametrize("deterministic", [True, False])
def test_observations_and_masks_that_say_nothing_are_refused(tmp_path: Path, deterministic: bool) -> None:
    policy = run(tmp_path / "masked", env=Masked, steps=400).policy
    observation = np.array([1, 1, 0, 0, 0, 0], np.int8)
    act = partial(policy.act, deterministic=deterministic)
    for masks in (np.zeros(6, np.int8), np.stack([np.ones(6, np.int8), np.zeros(6, np.int8)])):
        with pytest.raises(SettingsError, match="the mask allows no action, expected at least one"):
            act(np.tile(observation, (2, 1)), mask=masks)
    with pytest.raises(SettingsError, match="expected 6 flags"):
        act(observation, mask=[True, False])
    with pytest.raises(SettingsError, match="received 3 masks for 2 observations"):
        act(np.tile(observation, (2, 1)), mask=np.ones((3, 6)))
    assert act(observation, mask=np.ones(6, np.int8)) in range(6)


def test_nan_is_refused(tmp_path: Path) -> None:
    policy = run(tmp_path / "run", steps=400).policy
    for batch in (np.array([0, np.nan, 0, 0], np.float32), np.full((3, 4), np.nan)):
        with pytest.raises(SettingsError, match="the observation holds NaN, expected numbers"):
            policy.act(batch)
    assert policy.act(np.array([0, np.inf, 0, 0], np.float32)) in (0, 1)


def test_each_part_of_a_mask_has_to_allow_something() -> None:
    observations, actions = spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([3, 2])
    policy = TrainedPolicy(build_policy(observations, actions, seed=1), observations, actions)
    zeros = np.zeros(2, np.float32)
    assert policy.act(zeros, mask=(np.array([0, 1, 0]), np.array([1, 0]))).tolist() == [1, 0]
    for mask in ((np.array([0, 1, 0]), np.array([0, 0])), np.array([0, 0, 0, 1, 1])):
        with pytest.raises(SettingsError, match="the mask allows no action"):
            policy.act(zeros, mask=mask)
    switches = spaces.MultiBinary(2)  # each may always stay off
    policy = TrainedPolicy(build_policy(observations, switches, seed=1), observations, switches)
    assert policy.act(zeros, mask=np.zeros(2)).tolist() == [0, 0]


def test_a_network_of_the_users_own_is_given_or_trusted(tmp_path: Path) -> None:
    done = run(tmp_path / "run", network=OwnNetwork)
    with pytest.raises(SettingsError, match="not part of Envfleet"):
        _ = done.policy
    zeros = np.zeros(4, np.float32)
    given = Run.load(tmp_path / "run", policy=OwnNetwork).policy
    trusted = Run.load(tmp_path / "run", trust=True).policy
    assert given.act(zeros) == trusted.act(zeros)


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from envfleet.runs.run import Run
run = Run.load({path!r})
run.policy.act(__import__("numpy").zeros(4, "float32"))
print(run.settings["env"], "evil" in sys.modules)
"""


def test_a_policy_of_the_users_own_may_return_views_of_its_weights(tmp_path: Path) -> None:
    """In inference mode such views still require gradients, which NumPy refuses."""
    done = run(tmp_path / "run", policy=own_networks.Indifferent)
    assert done.metrics[-1]["train/entropy"] == pytest.approx(math.log(2), abs=0.05)


def test_nothing_that_a_run_names_is_imported_by_loading_it(tmp_path: Path) -> None:
    """The run's environment is a module that exits if it is imported."""
    run(tmp_path / "run")
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("env: CartPole-v1", "env: evil:make"))
    script = SCRIPT.format(here=str(tmp_path), path=str(tmp_path / "run"))
    finished = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert finished.stdout.split() == ["evil:make", "False"], finished.stderr


THREADS = """
import sys
import envfleet
from envfleet.algorithms.settings import PPO
from envfleet.training.assembly import assemble, resolve
from gymnasium.envs.classic_control import CartPoleEnv

class Telling(CartPoleEnv):
    def threads(self):
        import torch
        return torch.get_num_threads()

if __name__ == "__main__":
    assert "torch" not in sys.modules
    settings = PPO(env=Telling, n_envs=8, backend="processes", workers={workers}, start_method={method!r}, seed=1)
    parts = assemble(resolve(settings))
    import torch
    print(*parts.fleet.call("threads"), torch.get_num_threads())
    parts.close()
"""


@pytest.mark.parametrize(
    ("method", "workers"),
    [("forkserver", 1), ("fork", 1), *(pytest.param(name, 2, marks=pytest.mark.proof) for name in ("spawn", "fork"))],
)
def test_every_worker_that_acts_has_one_thread(tmp_path: Path, method: str, workers: int) -> None:
    (tmp_path / "script.py").write_text(THREADS.format(method=method, workers=workers))
    finished = subprocess.run([sys.executable, str(tmp_path / "script.py")], check=True, capture_output=True, text=True)
    assert finished.stdout.split() == ["1"] * 9


def test_inputs_go_where_the_weights_are(tmp_path: Path) -> None:
    """The meta device needs no accelerator and supports everything except the final copy."""
    trained = run(tmp_path / "run", steps=SMALL["n_envs"] * SMALL["rollout_steps"], memory="gru").policy
    elsewhere = TrainedPolicy(trained.policy.to("meta"), trained.observation_space, trained.action_space)
    seen: list[torch.device] = []

    def to_env(actions: torch.Tensor) -> torch.Tensor:
        seen.append(actions.device)
        return torch.zeros(actions.shape, dtype=actions.dtype)

    elsewhere.policy.to_env = to_env  # type: ignore[method-assign, assignment]
    for deterministic in (True, False):
        assert elsewhere.act(np.zeros(4, np.float32), deterministic=deterministic, mask=[True, False]) == 0
    assert seen == [torch.device("meta")] * 2


def test_a_run_that_starts_from_another_has_its_weights_and_normalisers(tmp_path: Path) -> None:
    normalised = {"normalise_observations": True, "normalise_rewards": True}
    run(tmp_path / "first", **normalised)
    source = Run.load(tmp_path / "first").checkpoint()
    resolved = resolve(small(tmp_path / "second", **normalised, seed=6, n_envs=8, minibatch_size=64))
    with closing(assemble(resolved)) as parts:
        assert not all(torch.equal(value, source.policy[name]) for name, value in parts.policy.state_dict().items())
        start_from(str(tmp_path / "first"), parts, {})
        assert all(torch.equal(value, source.policy[name]) for name, value in parts.policy.state_dict().items())
        ours, theirs = parts.learner.state(), source.state["parts"]["learner"]
        assert same(ours["normaliser"], theirs["normaliser"])
        scale = {name: value for name, value in theirs["reward_scaler"].items() if name != "returns"}
        assert same({name: ours["reward_scaler"][name] for name in scale}, scale)
        assert scale["count"] > 0


def test_the_learners_threads_are_in_the_config(tmp_path: Path) -> None:
    run(tmp_path / "few")
    run(tmp_path / "many", n_envs=16, rollout_steps=64, minibatch_size=1024, steps=1024)
    threads = [RunFolder.open(tmp_path / name).read_config()["learner_threads"] for name in ("few", "many")]
    assert threads == [1, 2]
    recorded = RunFolder.open(tmp_path / "many").read_manifest()
    assert recorded["threads"] == {"learner": 2, "acting": 1, "worker": 1}
    assert recorded["machine"]["libraries"].keys() == {"gymnasium", "numba", "numpy", "torch"}
