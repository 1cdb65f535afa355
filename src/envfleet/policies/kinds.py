"""The kinds of policies: describes a policy as plain data for its checkpoint, and finds its settings class again.

The kinds of Envfleet are known. A package with a policy of its own registers its settings class:

    @register_policy_kind
    @dataclass(frozen=True)
    class TanhGaussian:
        kind: ClassVar[str] = "tanh-gaussian"
        ...  # see `PolicyBuilder`

The description then also names the module of that class. Loading imports the module only if the run is trusted, unless
the kind is already registered in this process. Importing this module does not load torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from envfleet.errors import SettingsError
from envfleet.importing import imported_module
from envfleet.policies.protocol import PolicyBuilder
from envfleet.policies.q_settings import QSettings
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.settings import PolicySettings, import_path

__all__ = ["describe_kind", "register_policy_kind", "settings_from"]

B = TypeVar("B", bound=PolicyBuilder)
_BUILT_IN: dict[str, type[PolicyBuilder]] = {each.kind: each for each in (PolicySettings, QSettings, SACPolicySettings)}
_kinds = dict(_BUILT_IN)


def register_policy_kind(settings: type[B]) -> type[B]:
    """Register the settings class of a kind of policy and return it."""
    known = _kinds.get(settings.kind, settings)
    if import_path(known) != import_path(settings):  # the same class may come again, e.g. after a reload
        raise SettingsError(
            f"the policy kind {settings.kind!r} of {import_path(settings)} is already that of {import_path(known)}",
            hint="give it another name",
        )
    _kinds[settings.kind] = settings
    return settings


def describe_kind(settings: PolicyBuilder) -> dict[str, Any]:
    """Return the kind and the settings of a policy as plain data."""
    description = {"kind": settings.kind, "settings": settings.to_json()}
    return description if settings.kind in _BUILT_IN else {**description, "module": type(settings).__module__}


def settings_from(description: Mapping[str, Any], *, network: Any = None, trust: bool = False) -> PolicyBuilder:
    """Return the settings that `describe_kind` described. Code outside Envfleet must be known, given or trusted.

    `network` replaces the import path of a user's own network.
    """
    name = description["kind"]
    kind = _kinds.get(name) or _imported(name, description.get("module"), trust=trust)
    return _trusted(kind.from_json(description["settings"]), network, trust=trust)


def _imported(name: str, module: str | None, *, trust: bool) -> type[PolicyBuilder]:
    if module is None:
        raise SettingsError(f"the policy is of the kind {name!r}, expected one of {', '.join(map(repr, _kinds))}")
    if module == "__main__":
        raise SettingsError(
            f"the policy is of the kind {name!r}, which was defined in a script and cannot be imported",
            hint="load the run from that script, or put the policy in a module of its own",
        )
    if not trust:
        raise SettingsError(
            f"the policy is of the kind {name!r} of {module}, which is code that is not part of Envfleet",
            hint=f"import {module} before you load the run, or trust the run, trust=True (--trust)",
        )
    imported_module(module)
    if name not in _kinds:
        raise SettingsError(
            f"the policy is of the kind {name!r}, but {module} does not register it",
            hint="decorate its settings class with envfleet.policies.kinds.register_policy_kind",
        )
    return _kinds[name]


def _trusted(settings: PolicyBuilder, given: Any, *, trust: bool) -> PolicyBuilder:
    """Replace the import path of a user's network with the given class. Without one, the path needs trust."""
    for name in ("policy", "network"):
        value = getattr(settings, name, None)  # not every kind has these settings
        if not isinstance(value, str) or ":" not in value:
            continue
        if given is not None:
            return dataclasses.replace(settings, **{name: given})  # type: ignore[type-var]  # `PolicyBuilder` is one
        if not trust:
            raise SettingsError(
                f"the run was trained with {name}={value!r}, which is code that is not part of Envfleet",
                hint="give it, Run.load(path, policy=YourClass), or trust the run, trust=True (--trust)",
            )
    return settings
