"""What a policy looks like, as settings. Importing this module does not load torch."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envfleet.errors import SettingsError

__all__ = ["NETWORKS", "PolicySettings", "import_path"]

NETWORKS = ("auto", "mlp", "nature", "impala")


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The networks of a policy: how it sees, what it remembers, how it acts."""

    network: str | Callable[..., Any] = field(
        default="auto",
        metadata={
            "help": "Encoder of the observations: auto (nature for images, mlp for all else), mlp, nature, impala, "
            "or your own as module:Class. It is built as Class(observation_space), and its forward(observation) "
            "gives features [batch, n]."
        },
    )
    policy: str | Callable[..., Any] | None = field(
        default=None,
        metadata={
            "help": "Your own whole policy as module:Class. It is built as Class(observation_space, action_space), "
            "and its forward(observation) gives (action parameters [batch, n], values [batch])."
        },
    )
    hidden: tuple[int, ...] = field(default=(64, 64), metadata={"help": "Units of each hidden layer of the mlp."})
    activation: Literal["tanh", "relu"] = field(
        default="tanh", metadata={"help": "Activation of the mlp; the convolutional networks always use relu."}
    )
    shared: bool | None = field(
        default=None,
        metadata={
            "help": "Whether actor and critic share one network. Not given: they share it with images or memory, "
            "and have one each otherwise."
        },
    )
    memory: Literal["none", "gru", "lstm"] = field(
        default="none", metadata={"help": "What the policy remembers with, from step to step of an episode."}
    )
    memory_size: int = field(default=128, metadata={"help": "Units of the memory; an lstm keeps two numbers for each."})
    bounds: Literal["clip", "tanh"] = field(
        default="clip",
        metadata={"help": "How actions of a Box stay inside it: clipped at its bounds, or squashed by tanh."},
    )
    initial_log_std: float = field(
        default=0.0, metadata={"help": "Logarithm of the standard deviation of Box actions at the start."}
    )
    normalise_observations: bool = field(
        default=False,
        metadata={"help": "Whether float vectors are scaled by their running mean and standard deviation."},
    )

    def __post_init__(self) -> None:
        # Lists come from YAML and JSON; a tuple compares and hashes.
        if isinstance(self.hidden, list):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        _check_network(self.network)
        _check_policy(self.policy)
        _check_choice("activation", self.activation, ("tanh", "relu"))
        _check_choice("memory", self.memory, ("none", "gru", "lstm"))
        _check_choice("bounds", self.bounds, ("clip", "tanh"))
        _check_hidden(self.hidden)
        if not _is_count(self.memory_size):
            raise SettingsError(
                f"memory_size is {self.memory_size!r}, expected an integer above 0", hint="for example 128"
            )
        if self.shared is not None and not isinstance(self.shared, bool):
            raise SettingsError(f"shared is {self.shared!r}, expected True, False or None")
        if not isinstance(self.normalise_observations, bool):
            raise SettingsError(f"normalise_observations is {self.normalise_observations!r}, expected True or False")
        if not _is_number(self.initial_log_std):
            raise SettingsError(
                f"initial_log_std is {self.initial_log_std!r}, expected a finite number",
                hint="0.0 is a standard deviation of 1, -0.5 one of 0.61",
            )
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.memory != "none" and self.shared is False:
            raise SettingsError(
                f"shared is False with memory={self.memory!r}, but actor and critic read the same memory",
                hint="leave shared out, or set memory to 'none'",
            )
        if self.policy is not None and self.memory != "none":
            raise SettingsError(
                f"memory is {self.memory!r}, but a whole policy of your own has no memory",
                hint="give your own encoder by network= instead; the memory then comes after it",
            )
        if self.policy is not None and self.network != "auto":
            raise SettingsError(
                f"both policy and network ({self.network!r}) were given; a whole policy has its own network",
                hint="give one of the two",
            )

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
        names = [entry.name for entry in dataclasses.fields(cls)]
        for key in data:
            if key not in names:
                raise SettingsError(f"unknown policy setting {key!r}", hint=_nearest(str(key), names))
        return cls(**data)


def import_path(given: Callable[..., Any]) -> str:
    """Where a class or function can be imported from, as 'module:qualname'."""
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SettingsError(
            f"{given!r} cannot be recorded, because it has no name that can be imported",
            hint="define it with class or def at the top level of a module",
        )
    return f"{module}:{name}"


def _check_network(network: Any) -> None:
    if callable(network) or (isinstance(network, str) and (network in NETWORKS or _is_path(network))):
        return
    raise SettingsError(
        f"network is {network!r}, expected one of {', '.join(NETWORKS)}, 'module:Class' or a class",
        hint=_nearest(str(network), NETWORKS),
    )


def _check_policy(policy: Any) -> None:
    if policy is None or callable(policy) or (isinstance(policy, str) and _is_path(policy)):
        return
    raise SettingsError(
        f"policy is {policy!r}, expected 'module:Class', a class or None",
        hint="networks such as 'mlp' or 'nature' are given by network=",
    )


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(
            f"{name} is {value!r}, expected one of {', '.join(choices)}", hint=_nearest(str(value), choices)
        )


def _check_hidden(hidden: Any) -> None:
    if not isinstance(hidden, tuple) or not all(_is_count(units) for units in hidden):
        raise SettingsError(f"hidden is {hidden!r}, expected a tuple of integers above 0", hint="for example (64, 64)")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_path(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def _nearest(value: str, choices: Iterable[str]) -> str:
    choices = list(choices)
    near = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(choices)}"
