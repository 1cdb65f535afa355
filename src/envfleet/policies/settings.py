"""What a policy looks like, as settings. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envfleet.errors import SettingsError
from envfleet.settings import Settings, setting

__all__ = ["NETWORKS", "PolicySettings", "import_path", "network_problems", "policy_problems"]

NETWORKS = ("auto", "mlp", "nature", "impala")


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Settings):
    """The networks of a policy: how it sees, what it remembers, how it acts."""

    network: str | Callable[..., Any] = setting(
        "auto",
        "Encoder of the observations: auto (nature for images, mlp for all else), mlp, nature, impala, "
        "or your own as module:Class. It is built as Class(observation_space), and its forward(observation) "
        "gives features [batch, n].",
    )
    policy: str | Callable[..., Any] | None = setting(
        None,
        "Your own whole policy as module:Class. It is built as Class(observation_space, action_space), "
        "and its forward(observation) gives (action parameters [batch, n], values [batch]).",
    )
    hidden: tuple[int, ...] = setting((64, 64), "Units of each hidden layer of the mlp.", minimum=1)
    activation: Literal["tanh", "relu"] = setting(
        "tanh", "Activation of the mlp; the convolutional networks always use relu."
    )
    shared: bool | None = setting(
        None,
        "Whether actor and critic share one network. Not given: they share it with images or memory, "
        "and have one each otherwise.",
    )
    memory: Literal["none", "gru", "lstm"] = setting(
        "none", "What the policy remembers with, from step to step of an episode."
    )
    memory_size: int = setting(128, "Units of the memory; an lstm keeps two numbers for each.", minimum=1)
    bounds: Literal["clip", "tanh"] = setting(
        "clip", "How actions of a Box stay inside it: clipped at its bounds, or squashed by tanh."
    )
    # Beyond these bounds the standard deviation is 0 or infinite, as far as 32 bits can tell it from the actions.
    initial_log_std: float = setting(
        0.0, "Logarithm of the standard deviation of Box actions at the start.", minimum=-20, maximum=20
    )
    normalise_observations: bool = setting(
        False, "Whether float vectors are scaled by their running mean and standard deviation."
    )

    def problems(self) -> list[str]:
        return policy_problems(self.network, self.policy, shared=self.shared, memory=self.memory)

    def to_json(self) -> dict[str, Any]:
        """The settings as plain data. A class given as an object is recorded as 'module:qualname'."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        for name in ("network", "policy"):
            if callable(plain[name]):
                plain[name] = import_path(plain[name])
        return {**plain, "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PolicySettings:
        """Settings from what `to_json` gave. Nothing is imported here: 'module:Class' stays a string.

        `build_policy` imports such strings. Whoever loads settings from a file that is not trusted decides
        about that before, by looking at `network` and `policy`.
        """
        return cls.from_mapping(data, source="the policy")


def import_path(given: Callable[..., Any]) -> str:
    """Where a class or function can be imported from, as 'module:qualname'."""
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SettingsError(
            f"{given!r} cannot be recorded, because it has no name that can be imported",
            hint="define it with class or def at the top level of a module",
        )
    return f"{module}:{name}"


def network_problems(network: Any, policy: Any, known: tuple[str, ...] = NETWORKS) -> list[str]:
    """What is wrong with the names of networks, one line each; values of the wrong type are reported elsewhere."""
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
    """What no actor-critic policy can be built with, one line each."""
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
