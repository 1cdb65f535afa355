"""Kinds of policies: described as plain data and found again, also one of another package if it may be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.algorithms.settings import DQN, PPO
from envfleet.errors import SettingsError
from envfleet.policies import register_policy_kind
from envfleet.policies.kinds import describe_kind, settings_from
from envfleet.policies.q_settings import QSettings
from envfleet.policies.settings import PolicySettings
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.trained_policy import TrainedPolicy, describe_policy
from tests.policies.tanh_gaussian import TanhGaussianSettings

OBSERVATIONS, ACTIONS = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    "settings",
    [PolicySettings(hidden=(8,), memory="gru"), QSettings(hidden=(8,), noisy=True), TanhGaussianSettings(units=4)],
    ids=lambda settings: settings.kind,
)
def test_settings_come_back_from_their_description(settings: Any) -> None:
    assert settings_from(json.loads(json.dumps(describe_kind(settings)))) == settings


def test_descriptions_are_the_same_as_those_of_earlier_versions() -> None:
    """Earlier versions read them; `tests/training/test_old_runs.py` tests the other direction."""
    ppo, dqn = PPO(hidden=(8,)), DQN(hidden=(8,))
    assert describe_kind(ppo.policy_settings()) == {"kind": "actor-critic", "settings": ppo.policy_settings().to_json()}
    assert describe_kind(dqn.policy_settings()) == {"kind": "q", "settings": dqn.policy_settings().to_json()}


def test_a_name_belongs_to_one_kind() -> None:
    @dataclass(frozen=True)
    class Other(TanhGaussianSettings):
        pass

    Other.__qualname__ = "Other"
    with pytest.raises(SettingsError, match=r"'tanh-gaussian' of .*:Other is already that of .*:TanhGaussianSettings"):
        register_policy_kind(Other)
    assert register_policy_kind(TanhGaussianSettings) is TanhGaussianSettings


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "of the kind 'sacc', expected one of 'actor-critic', 'q'"),
        ("no_such_package.policies", "there is no module 'no_such_package.policies'"),
        ("__main__", "of the kind 'sacc', which was defined in a script and cannot be imported"),
        ("tests.policies.own_networks", "but tests.policies.own_networks does not register it"),
    ],
)
def test_an_unknown_kind_is_refused(module: str | None, message: str) -> None:
    description = {"kind": "sacc", "settings": {}} if module is None else {"kind": "sacc", "module": module}
    with pytest.raises(SettingsError, match=message):
        settings_from(description, trust=True)


OWN = {"network": "tests.policies.own_networks:Doubled"}
WITHOUT = {name: value for name, value in PolicySettings().to_json().items() if name != "network"}


@pytest.mark.parametrize(
    "description",
    [
        {"kind": "actor-critic", "settings": {**WITHOUT, **OWN}},
        {"kind": "actor-critic", "settings": {**WITHOUT, "settings": OWN}},  # a forged file hides it in a section
        {"kind": "q", "settings": {**QSettings().to_json(), **OWN}},
    ],
)
def test_networks_of_the_user_are_given_or_trusted(description: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"trained with network='tests\.policies\.own_networks:Doubled'"):
        settings_from(description)
    assert settings_from(description, network=len).network is len  # type: ignore[attr-defined]
    assert settings_from(description, trust=True).network == OWN["network"]  # type: ignore[attr-defined]


LOADS = """
import sys
import numpy as np
from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.trained_policy import TrainedPolicy

saved = Checkpoints(sys.argv[1]).load("last")
try:
    TrainedPolicy.load(saved.state["policy"], saved.policy)
except SettingsError as error:
    print(error)
print("tests.policies.tanh_gaussian" in sys.modules)
trained = TrainedPolicy.load(saved.state["policy"], saved.policy, trust=True)
print(trained.act(np.ones(3, np.float32)).tolist())
"""


def test_a_kind_of_another_package_is_imported_only_if_the_run_is_trusted(tmp_path: Path) -> None:
    settings = TanhGaussianSettings()
    policy = settings.build(OBSERVATIONS, ACTIONS, seed=5)
    description = describe_policy(settings, OBSERVATIONS, ACTIONS)
    Checkpoints(tmp_path).save(1, policy.state_dict(), {"policy": description})

    command = [sys.executable, "-c", LOADS, str(tmp_path)]
    root = Path(__file__).parents[2]
    finished = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    *refused, imported, action = finished.stdout.splitlines()
    module = "tests.policies.tanh_gaussian"
    assert refused == [
        f"the policy is of the kind 'tanh-gaussian' of {module}, which is code that is not part of Envfleet",
        f"hint: import {module} before you load the run, or trust the run, trust=True (--trust)",
    ]
    assert imported == "False"

    saved = Checkpoints(tmp_path).load("last")
    here = TrainedPolicy.load(saved.state["policy"], saved.policy)  # known in this process
    assert action == str(here.act(np.ones(3, np.float32)).tolist())
    assert saved.policy.keys() == policy.state_dict().keys()
    assert "critics.0.weight" in saved.policy
