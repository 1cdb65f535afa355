"""Wrappers in settings: by name or as an object, with arguments.

A wrapper is `name` or `{name: {argument: value}}`, on the command line `name argument=value ...`. The name is one of
ours (`NAMED`), a class in gymnasium.wrappers, or `module:function`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from envfleet.capabilities import HasHistory, StacksFrames
from envfleet.environments.meta.history import History
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.fleet.wrapping import WrappedEnv
from envfleet.settings.values import shown
from envfleet.training.environment import named_environment
from envfleet.wording import did_you_mean

__all__ = ["NAMED", "environment_of", "frames_stacked", "history_of", "name_and_arguments"]

Wrapper = str | Mapping[str, Any] | Callable[..., Any]
_FORMS = "expected a name, or a name with its arguments as {name: {argument: value}}"


def environment_of(env: str | Callable[..., Any], wrappers: Iterable[Wrapper] = ()) -> str | Callable[..., Any]:
    """Return the environment for `envfleet.make`, wrapped if wrappers are given."""
    named = named_environment(env) if isinstance(env, str) else env
    wrapping = tuple(_wrapper(each) for each in wrappers)
    return WrappedEnv(named, wrapping) if wrapping else named


def name_and_arguments(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a wrapper and its arguments, from either form of the setting."""
    if isinstance(given, str):
        return given, {}
    if len(given) != 1:
        raise SettingsError(f"received the wrapper {shown(dict(given))}, {_FORMS}")
    ((name, arguments),) = given.items()
    if not isinstance(name, str) or not isinstance(arguments, Mapping | None):
        raise SettingsError(f"received the wrapper {shown(dict(given))}, {_FORMS}")
    return name, dict(arguments or {})


@dataclass(frozen=True)
class _Wrapping:
    """A wrapper with its arguments; picklable if the wrapper is."""

    name: str
    make: Callable[..., Any]
    arguments: dict[str, Any]

    def __call__(self, env: Any) -> Any:
        if ":" in self.name:
            return self.make(env, **self.arguments)  # the user's own: its traceback says more than our message
        try:
            return self.make(env, **self.arguments)
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingExtraError(f"the wrapper {self.name} needs a package: {error}") from None
        except SettingsError:
            raise
        except (AssertionError, AttributeError, TypeError, ValueError) as error:
            raise SettingsError(
                f"the wrapper {self.name} cannot wrap {_called(env)}: {error}",
                hint="look at its arguments, at the environment, and at the order of the wrappers (innermost first)",
            ) from None


def _wrapper(given: Wrapper) -> Callable[..., Any]:
    if not isinstance(given, str | Mapping):
        return given
    name, arguments = name_and_arguments(given)
    make = _own_wrapper(name) if ":" in name else _known_wrapper(name)
    _refuse_arguments(name, make, arguments)
    return _Wrapping(name, make, arguments)


def _own_wrapper(name: str) -> Callable[..., Any]:
    found = named_environment(name)
    if isinstance(found, str):
        raise SettingsError(f"the wrapper {name!r} is an environment, expected a function that wraps one")
    return found


def _known_wrapper(name: str) -> Callable[..., Any]:
    ours = NAMED.get(name.replace("_", "-"))
    if ours is not None:
        return ours
    try:
        found = getattr(gymnasium.wrappers, name) if name in gymnasium.wrappers.__all__ else None
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise MissingExtraError(f"the wrapper {name} needs a package that is not installed: {error}") from None
    if isinstance(found, type) and issubclass(found, gymnasium.Wrapper):
        return found
    names = {each.lower(): each for each in (*NAMED, *gymnasium.wrappers.__all__) if each != "vector"}
    near = difflib.get_close_matches(name.lower().replace("_", "-"), names, n=3, cutoff=0.5)
    raise SettingsError(
        f"there is no wrapper {name!r}, expected {', '.join(NAMED)}, a class of gymnasium.wrappers, or module:function",
        hint=f"nearest: {', '.join(names[each] for each in near)}" if near else "your own is module:function",
    )


def _refuse_arguments(name: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise a SettingsError if the wrapper does not take the arguments, or needs others."""
    try:
        signature = inspect.signature(AtariPreprocessing if make is _atari else make)  # _atari passes them on
    except (TypeError, ValueError):  # e.g. of a builtin
        return
    parameters = list(signature.parameters.values())[1:]  # the first one is the environment
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_name = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    taken = [parameter.name for parameter in by_name]
    takes = f"it takes {', '.join(taken)}" if taken else "it takes no arguments"
    for argument in arguments:
        if argument not in taken:
            hint = did_you_mean(argument, taken) or None
            raise SettingsError(f"the wrapper {name} has no argument {argument!r}; {takes}", hint=hint)
    needed = [each.name for each in by_name if each.default is each.empty and each.name not in arguments]
    if needed:
        raise SettingsError(
            f"the wrapper {name} needs {' and '.join(needed)}; {takes}",
            hint=f"--wrappers {name} {' '.join(f'{each}=...' for each in needed)}, in a file "
            f"{{{name}: {{{', '.join(f'{each}: ...' for each in needed)}}}}}",
        )


def _called(env: Any) -> str:
    return str(getattr(env.spec, "id", None) or type(env.unwrapped).__name__)


# ---- by name


class FrameStack(FrameStackObservation):
    """Stacks the last observations: images along their channels, everything else along a new first axis.

    Image networks need three dimensions, and the replay buffer finds single frames in either form. Both take the
    shortest dimension as channels. So images too small for that, with more stacked channels than pixels, get the new
    axis as well.
    """

    def __init__(self, env: Any, stack_size: int = 4, *, padding_type: Any = "reset") -> None:
        super().__init__(env, stack_size, padding_type=padding_type)
        frame = env.observation_space
        self._channels = _channels_axis(frame, stack_size)
        if self._channels is not None:
            low, high = (np.concatenate([bound] * stack_size, self._channels) for bound in (frame.low, frame.high))
            self.observation_space = spaces.Box(low, high, dtype=frame.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        stack, info = super().reset(seed=seed, options=options)
        return self._joined(stack), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        stack, reward, terminated, truncated, info = super().step(action)
        return self._joined(stack), reward, terminated, truncated, info

    def _joined(self, stack: Any) -> Any:
        return stack if self._channels is None else np.concatenate(stack, self._channels)


def _channels_axis(frame: spaces.Space[Any], stack_size: int) -> int | None:
    """The axis along which frames are joined; None if they are not images with channels, or too small."""
    if not isinstance(frame, spaces.Box) or len(frame.shape) != 3:
        return None
    axis = 2 if frame.shape[2] <= frame.shape[0] else 0
    return axis if frame.shape[axis] * stack_size < frame.shape[2 - axis] else None


def _atari(env: Any, **options: Any) -> Any:
    if not hasattr(env.unwrapped, "ale"):
        raise SettingsError(
            f"the wrapper atari is for games of the Arcade Learning Environment, and {_called(env)} is none",
            hint="for other pictures there are ResizeObservation, GrayscaleObservation and MaxAndSkipObservation",
        )
    skipped = getattr(env.unwrapped, "_frameskip", 1)
    if options.get("frame_skip", 4) != 1 and skipped != 1:
        raise SettingsError(
            f"the wrapper atari skips frames, but {_called(env)} skips {skipped} as well; expected frameskip=1",
            hint="add --env-kwargs frameskip=1 (in a file env_kwargs: {frameskip: 1})",
        )
    try:
        return AtariPreprocessing(env, **options)
    except gymnasium.error.DependencyNotInstalled:
        raise MissingExtraError(
            "the wrapper atari needs OpenCV, which is not installed", hint='pip install "envfleet[atari]"'
        ) from None


NAMED: dict[str, Callable[..., Any]] = {"atari": _atari, "frame-stack": FrameStack, "history": History}


def frames_stacked(env: Any) -> int:
    """Number of frames stacked in an observation, according to the wrappers and the environment; 1 for none."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, FrameStackObservation):
            return int(env.stack_size)
        if isinstance(env, History):
            env = env.env  # it leaves the stack as it is
            continue
        if env.observation_space != env.env.observation_space:
            return 1  # the stack below was transformed
        env = env.env
    return env.frame_stack if isinstance(env, StacksFrames) else 1


def history_of(env: Any) -> dict[str, tuple[str, int, int]] | None:
    """Where an observation has the previous action and reward; None if it has none, or a wrapper changed it.

    Empty if the environment hides them on purpose (`HasHistory`).
    """
    while not isinstance(env, HasHistory):
        if not isinstance(env, gymnasium.Wrapper) or env.observation_space != env.env.observation_space:
            return None
        env = env.env
    return dict(env.history_parts())
