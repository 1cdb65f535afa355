"""Checks of an environment that need no episode: type, spaces, signatures, rendering."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from envfleet.conformance.probe import Probe
from envfleet.conformance.report import RAISED, CheckStopped, Findings
from envfleet.conformance.values import kind_of, mismatch
from envfleet.wording import one_line, shown

__all__ = ["check_interface", "check_picklable", "check_rendering", "wrappers_of"]


def check_interface(probe: Probe) -> None:
    """Check the type, the spaces and the signature of reset."""
    _check_type(probe.env, probe.findings)
    for name in ("observation_space", "action_space"):
        _check_space(probe.env, name, probe.findings)
    for name, box in _boxes(probe.env.action_space, "action_space"):
        _check_action_bounds(box, name, probe.findings)
    _check_reset_signature(probe)
    for wrapper in wrappers_of(probe.env):
        if isinstance(wrapper, gymnasium.wrappers.Autoreset):
            probe.findings.warning(
                "the environment is wrapped in Autoreset, which resets it behind the fleet's back",
                "leave out the Autoreset wrapper; a fleet resets its environments",
            )


def check_picklable(factory: Callable[[], Any], findings: Findings) -> None:
    """Warn if the factory cannot be sent to worker processes."""
    try:
        # Only dump, do not load: loading in this process would give classes of the user's script new methods
        # that are bound to copies of their closures.
        cloudpickle.dumps(factory)
    except Exception as error:  # noqa: BLE001 - pickling runs the user's code
        findings.warning(
            f"the factory cannot be sent to worker processes: {type(error).__name__}: {one_line(str(error))}",
            "open files, locks, windows and devices inside the factory instead of outside it, or use backend='threads'",
        )


def check_rendering(probe: Probe) -> None:
    """Check metadata, render_mode and a rendered frame; the environment must have been reset."""
    env, findings = probe.env, probe.findings
    metadata = getattr(env, "metadata", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("render_modes"), list | tuple):
        findings.warning(
            f"metadata is {shown(metadata)}, expected a dict with a list under 'render_modes'",
            "declare metadata = {'render_modes': [], ...} in the class",
        )
        return
    mode, modes = getattr(env, "render_mode", None), metadata["render_modes"]
    if modes and "render_fps" not in metadata:
        findings.warning(
            "metadata has render modes but no 'render_fps'", "add 'render_fps' to metadata: videos need it"
        )
    if mode is not None and mode not in modes:
        findings.error(
            f"render_mode is {mode!r}, expected None or one of {list(modes)}",
            "list the mode in metadata['render_modes'], or refuse it in the constructor",
        )
    if mode == "human":
        findings.warning(
            "render_mode is 'human': each environment of a fleet opens a window and waits for it",
            "build the environment with render_mode=None or 'rgb_array'",
        )
    if mode == "rgb_array":
        _check_frame(probe)


def wrappers_of(env: Any) -> Iterator[Any]:
    """The environment and everything it wraps, from the outside in."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _check_frame(probe: Probe) -> None:
    try:
        frame = probe.env.render()
    except RAISED as error:
        probe.findings.raised("render", error)
        return
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape[2:] != (3,):
        received = kind_of(frame)
        if isinstance(frame, np.ndarray):
            received = f"an array of shape {frame.shape} and dtype {frame.dtype}"
        probe.findings.error(
            f"render returned {received}, expected an array of shape (height, width, 3) and dtype uint8",
            "return the picture as RGB bytes when render_mode is 'rgb_array'",
        )


def _check_type(env: Any, findings: Findings) -> None:
    if isinstance(env, VectorEnv):
        findings.error(
            f"{type(env).__name__} is a vector environment, expected a single one",
            "give the environment that it is made of; the fleet makes many of it",
        )
        raise CheckStopped
    if isinstance(env, gymnasium.Env):
        return
    if any(parent.__module__.partition(".")[0] == "gym" for parent in type(env).__mro__):
        findings.error(
            f"{type(env).__name__} is an environment of the old gym package, expected a gymnasium.Env",
            "replace `import gym` by `import gymnasium as gym`; for code that is not yours, "
            "shimmy wraps it: gymnasium.make('GymV21Environment-v0', env=env)",
        )
    else:
        findings.error(
            f"{type(env).__name__} is not a gymnasium.Env",
            f"derive it: class {type(env).__name__}(gymnasium.Env)",
        )
    if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
        raise CheckStopped


def _check_space(env: Any, name: str, findings: Findings) -> None:
    try:
        space = getattr(env, name, None)
    except RAISED as error:
        findings.raised(name, error)
        raise CheckStopped from error
    if space is None:
        findings.error(f"{name} is missing", f"set self.{name} in the constructor, such as spaces.Box(...)")
        raise CheckStopped
    if not isinstance(space, spaces.Space):
        kind = f"{type(space).__module__}.{type(space).__qualname__}"
        findings.error(
            f"{name} is {shown(space)} ({kind}), expected a space of gymnasium.spaces",
            f"build {name} from gymnasium.spaces",
        )
        if not hasattr(space, "sample") or not hasattr(space, "contains"):
            raise CheckStopped
        return
    try:
        found = mismatch(space, space.sample(), f"a sample of {name}")
    except Exception as error:
        findings.raised(f"{name}.sample", error)
        raise CheckStopped from error
    if found:
        findings.error(found.what, f"declare {name} so that its own samples are inside it")


def _boxes(space: Any, name: str) -> Iterator[tuple[str, spaces.Box]]:
    if isinstance(space, spaces.Box):
        yield name, space
    elif isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _boxes(part, f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _boxes(part, f"{name}[{index}]")


def _check_action_bounds(box: spaces.Box, name: str, findings: Findings) -> None:
    if not (np.isfinite(box.low).all() and np.isfinite(box.high).all()):
        findings.warning(
            f"{name} has infinite bounds: agents cannot know how large an action is",
            f"give {name} finite bounds, best -1 to 1, and scale the action inside step",
        )
    elif box.dtype.kind == "f" and not ((box.low == -1).all() and (box.high == 1).all()):
        findings.warning(
            f"{name} reaches from {box.low.min():g} to {box.high.max():g}, expected -1 to 1: "
            "agents start with actions around 0 and of size 1",
            f"wrap it in gymnasium.wrappers.RescaleAction(env, -1, 1), or scale {name} inside step",
        )


def _check_reset_signature(probe: Probe) -> None:
    try:
        parameters = inspect.signature(probe.base.reset).parameters
    except (TypeError, ValueError):  # written in C: no signature
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    missing = [name for name in ("seed", "options") if name not in parameters]
    if missing:
        signature = ", ".join(parameters) or "nothing"
        probe.findings.error(
            f"reset takes {signature}, expected seed and options: it lacks {' and '.join(missing)}",
            "write `def reset(self, *, seed=None, options=None)` and begin with `super().reset(seed=seed)`",
        )
        if probe.base is not probe.env:  # the wrappers would pass on arguments that reset does not take
            raise CheckStopped
        probe.reset_arguments = frozenset(parameters)
    elif parameters["seed"].default is not None:
        default = parameters["seed"].default
        shown = "required" if default is inspect.Parameter.empty else f"{default!r} by default"
        probe.findings.warning(
            f"the seed of reset is {shown}, expected None: with a number every episode is the same",
            "write `seed=None` in the signature of reset",
        )
