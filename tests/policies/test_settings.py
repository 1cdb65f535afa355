"""Policy settings: refused values, error messages, and JSON round trips."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from envfleet.errors import SettingsError
from envfleet.policies.settings import PolicySettings


class Encoder:
    """Stands for a user-defined network."""


def refused(**given: Any) -> list[str]:
    """Return the reported problems, one line each."""
    with pytest.raises(SettingsError) as caught:
        PolicySettings(**given)
    first, *problems = str(caught.value).splitlines()
    count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
    assert first == f"PolicySettings has {count}:"
    return [problem.strip() for problem in problems]


@pytest.mark.parametrize(
    ("given", "message", "advice"),
    [
        ({"network": "natur"}, "network is 'natur'", "did you mean 'nature'?"),
        ({"network": "my module:Class"}, "network is 'my module:Class'", "expected one of auto, mlp, nature, impala"),
        ({"network": 3}, "network: got 3", "expected text or a function"),
        ({"policy": "mlp"}, "policy is 'mlp'", "network="),
        ({"policy": 3}, "policy: got 3", "expected text or a function"),
        ({"activation": "than"}, "activation: got 'than'", "did you mean 'tanh'?"),
        ({"memory": "lstn"}, "memory: got 'lstn'", "did you mean 'lstm'?"),
        ({"memory": ["gru"]}, "memory: got ['gru']", "'gru'"),
        ({"bounds": "clipped"}, "bounds: got 'clipped'", "did you mean 'clip'?"),
        ({"hidden": (64, 0)}, "hidden: got (64, 0)", "whole numbers, at least 1"),
        ({"hidden": 64}, "hidden: got 64", "a list of whole numbers"),
        ({"memory_size": 0}, "memory_size: got 0", "a whole number, at least 1"),
        ({"memory_size": True}, "memory_size: got True", "a whole number"),
        ({"initial_log_std": float("nan")}, "initial_log_std: got nan", "a number, at least -20, at most 20"),
        ({"initial_log_std": float("inf")}, "initial_log_std: got inf", "a number, at least -20, at most 20"),
        ({"shared": 1}, "shared: got 1", "true or false or none"),
        ({"normalise_observations": "yes"}, "normalise_observations: got 'yes'", "true or false"),
        ({"memory": "gru", "shared": False}, "shared is False with memory='gru'", "leave shared out"),
        ({"policy": "a:B", "memory": "gru"}, "memory is 'gru'", "network="),
        ({"policy": "a:B", "network": "mlp"}, "both policy and network", "one of the two"),
        ({"hiden": (64,)}, "hiden: there is no such setting", "did you mean hidden?"),
    ],
)
def test_what_cannot_work_is_refused_once_with_what_does(given: dict[str, Any], message: str, advice: str) -> None:
    (problem,) = refused(**given)
    assert problem.startswith(message)
    assert advice in problem


def test_all_problems_are_reported_at_once() -> None:
    problems = refused(
        network="natur", policy="mlp", hidden=(0,), activation="than", memory="gru", memory_size=0, shared=False
    )
    assert [problem.split()[0] for problem in problems] == [
        "hidden:", "activation:", "memory_size:", "network", "policy", "both", "shared", "memory"
    ]  # fmt: skip


def test_every_setting_explains_itself() -> None:
    assert all(len(entry.metadata["help"]) > 20 for entry in dataclasses.fields(PolicySettings))


@pytest.mark.parametrize(
    "settings",
    [
        PolicySettings(),
        PolicySettings(network="impala", hidden=(32,), shared=True, memory="lstm", memory_size=7),
        PolicySettings(hidden=(), activation="relu", bounds="tanh", initial_log_std=-0.1, normalise_observations=True),
        PolicySettings(policy="package.module:Class.Inner"),
    ],
)
def test_settings_come_back_from_json(settings: PolicySettings) -> None:
    assert PolicySettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_a_class_is_recorded_by_its_name_and_not_imported_again() -> None:
    plain = PolicySettings(network=Encoder).to_json()
    assert plain["network"].endswith("test_settings:Encoder")
    assert PolicySettings.from_json(plain).network == plain["network"]
    assert PolicySettings.from_json({"network": "no.such.module:Class"}).network == "no.such.module:Class"


def test_what_has_no_name_cannot_be_recorded() -> None:
    with pytest.raises(SettingsError, match="cannot be recorded"):
        PolicySettings(network=lambda space: space).to_json()


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"hiden: there is no such setting; did you mean hidden\?"):
        PolicySettings.from_json({"hiden": [64]})


def test_settings_and_descriptions_do_not_load_torch() -> None:
    code = (
        "import sys, envfleet.policies, envfleet.policies.settings, envfleet.policies.description; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
