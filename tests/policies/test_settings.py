"""Settings of policies: what is refused, what the refusal says, and the way through JSON."""

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
    """Stands for a user's own network."""


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"network": "natur"}, "network is 'natur'", "did you mean 'nature'?"),
        ({"network": "my module:Class"}, "network is 'my module:Class'", "choose from"),
        ({"network": 3}, "network is 3", "choose from"),
        ({"policy": "mlp"}, "policy is 'mlp'", "network="),
        ({"activation": "than"}, "activation is 'than'", "did you mean 'tanh'?"),
        ({"memory": "LSTM"}, "memory is 'LSTM'", "did you mean 'lstm'?"),
        ({"memory": ["gru"]}, "memory is ['gru']", "gru"),
        ({"bounds": "clipped"}, "bounds is 'clipped'", "did you mean 'clip'?"),
        ({"hidden": (64, 0)}, "hidden is (64, 0)", "(64, 64)"),
        ({"hidden": 64}, "hidden is 64", "(64, 64)"),
        ({"memory_size": 0}, "memory_size is 0", "128"),
        ({"memory_size": True}, "memory_size is True", "128"),
        ({"initial_log_std": float("nan")}, "initial_log_std is nan", "standard deviation"),
        ({"memory": "gru", "shared": False}, "shared is False with memory='gru'", "leave shared out"),
        ({"policy": "a:B", "memory": "gru"}, "memory is 'gru'", "network="),
        ({"policy": "a:B", "network": "mlp"}, "both policy and network", "one of the two"),
    ],
)
def test_what_cannot_work_is_refused_with_the_nearest_that_does(given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        PolicySettings(**given)
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("given", [{"shared": 1}, {"normalise_observations": "yes"}])
def test_switches_are_true_or_false(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="expected True"):
        PolicySettings(**given)


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
    with pytest.raises(SettingsError, match="unknown policy setting 'hiden'\nhint: did you mean 'hidden'"):
        PolicySettings.from_json({"hiden": [64]})


def test_settings_and_descriptions_do_not_load_torch() -> None:
    code = (
        "import sys, envfleet.policies, envfleet.policies.settings, envfleet.policies.description; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
