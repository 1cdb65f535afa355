"""Settings of a policy. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from envfleet.errors import SettingsError
from envfleet.settings import Settings, setting

if TYPE_CHECKING:
    from gymnasium import spaces

    from envfleet.policies.policy import Policy

__all__ = ["NETWORKS", "PolicySettings", "import_path", "network_problems", "policy_problems"]

NETWORKS = ("auto", "mlp", "nature", "impala")


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Settings):
    """Settings of an actor-critic policy: encoder, memory and action distribution."""

    kind: ClassVar[str] = "actor-critic"

    network: str | Callable[..., Any] = setting(
        "auto",
        "Encoder network of the observations: auto (a CNN for images, an MLP for everything else), mlp, nature (Nature "
        "CNN), impala (IMPALA CNN), or your own as module:Class. It is built as Class(observation_space), and its "
        "forward(observation) returns features [batch, n].",
    )
    policy: str | Callable[..., Any] | None = setting(
        None,
        "Your own actor-critic policy as module:Class. It is built as Class(observation_space, action_space), "
        "and its forward(observation) returns (action parameters [batch, n], values [batch]).",
    )
    hidden: tuple[int, ...] = setting((64, 64), "Units of each hidden layer of the MLP.", minimum=1)
    activation: Literal["tanh", "relu"] = setting("tanh", "Activation function of the MLP; CNNs always use ReLU.")
    shared: bool | None = setting(
        None,
        "Whether actor and critic share one network. By default they share it for images and with memory, "
        "and have separate networks otherwise.",
    )
    memory: Literal["none", "gru", "lstm"] = setting(
        "none", "Recurrent memory of the policy (RNN), carried through each episode."
    )
    memory_size: int = setting(128, "Units of the recurrent memory; an LSTM stores two numbers per unit.", minimum=1)
    bounds: Literal["clip", "tanh"] = setting(
        "clip", "How Box (continuous) actions are kept within their bounds: clipped, or squashed by tanh."
    )
    # Outside this range the standard deviation is, at float32 precision, 0 or infinite compared with the actions.
    initial_log_std: float = setting(
        0.0, "Initial log standard deviation of Box (continuous) actions.", minimum=-20, maximum=20
    )
    normalise_observations: bool = setting(
        False, "Normalise float vector observations by their running mean and standard deviation."
    )

    def problems(self) -> list[str]:
        return policy_problems(self.network, self.policy, shared=self.shared, memory=self.memory)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data. A class given as an object is recorded as 'module:qualname'."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        for name in ("network", "policy"):
            if callable(plain[name]):
                plain[name] = import_path(plain[name])
        return {**plain, "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PolicySettings:
        """Build settings from the result of `to_json`. Nothing is imported here: 'module:Class' stays a string.

        `build` imports such strings. Callers that load untrusted files must check `network` and `policy` before.
        """
        return cls.from_mapping(data, source="the policy")

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        seed: int,
        record_values: bool = False,
    ) -> Policy:
        """Build the policy: see `build_policy`. Imports torch."""
        from envfleet.policies.policy import build_policy

        return build_policy(observation_space, action_space, self, seed=seed, record_values=record_values)


def import_path(given: Callable[..., Any]) -> str:
    """Return the import path of a class or function, as 'module:qualname'."""
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SettingsError(
            f"{given!r} cannot be recorded, because it has no name that can be imported",
            hint="define it with class or def at the top level of a module",
        )
    return f"{module}:{name}"


def network_problems(network: Any, policy: Any, known: tuple[str, ...] = NETWORKS) -> list[str]:
    """Return problems with `network` and `policy`, one line each; wrong types are reported elsewhere."""
    found: list[str] = []
    if isinstance(network, str) and network not in known and not _is_path(network):
        near = difflib.get_close_matches(network.lower(), known, n=1, cutoff=0.5)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        found.append(f"network is {network!r}, expected one of {', '.join(known)}, 'module:Class' or a class{advice}")
    if isinstance(policy, str) and not _is_path(policy):
        found.append(
            f"policy is {policy!r}, expected 'module:Class', a class or None; networks such as 'mlp' or 'nature' "
            "are given by network="
        )
    if policy is not None and network != "auto":
        found.append(
            f"both policy and network ({network!r}) were given, but a whole policy has its own network; give one of "
            "the two"
        )
    return found


def policy_problems(network: Any, policy: Any, *, shared: bool | None, memory: str) -> list[str]:
    """Return problems with the settings of an actor-critic policy, one line each."""
    found = network_problems(network, policy)
    remembers = memory in ("gru", "lstm")
    if remembers and shared is False:
        found.append(
            f"shared is False with memory={memory!r}, but actor and critic read the same memory; leave shared out, "
            "or set memory to 'none'"
        )
    if policy is not None and remembers:
        found.append(
            f"memory is {memory!r}, but a whole policy of your own has no memory; give your own encoder by network= "
            "instead, and the memory comes after it"
        )
    return found


def _is_path(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
