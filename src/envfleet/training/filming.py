"""Videos of episodes, of a trained run or during training. A stage protects against faults of the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from envfleet.errors import EnvError, MissingExtraError, SettingsError, one_line_of
from envfleet.policies.protocol import ActingPolicy
from envfleet.runs.evaluation import evaluate
from envfleet.runs.trained_policy import TrainedAgent, TrainedPolicy
from envfleet.runs.video import VideoWriter, checked_picture
from envfleet.training.assembly import Resolved
from envfleet.training.stage import Stage

__all__ = ["film_episode", "refuse_unfilmable", "rendering", "shown_env"]

_FLAG, _MODE = "--video-every", "rgb_array"
# Parts of the traceback if OpenGL is missing. Libraries raise errors of many types then, even AttributeError.
_OPENGL = ("mujoco.FatalError", "OpenGL", "mujoco/egl", "mujoco/glfw", "mujoco/osmesa", "MUJOCO_GL")


def shown_env(stage: Stage, mode: str | None, film: VideoWriter | None, flag: str) -> Any:
    """Build the stage's environment again, and check that it supports the render mode.

    Messages name the `flag` that asked for it.
    """
    try:
        env = stage.fresh()
    except EnvError as error:
        message = error.message
        if (
            mode is not None
            and message.startswith("TypeError")
            and ("render_mode" in message or "no arguments" in message)
        ):
            raise _cannot_render(mode, flag, "it takes no render_mode") from None
        _refuse_missing(error)
        raise
    if mode is not None and env.render_mode != mode:
        modes = ", ".join(env.metadata.get("render_modes", ())) or "none"
        raise _cannot_render(mode, flag, f"its render modes are {modes}")
    if film is not None:
        film.fps = float(env.metadata.get("render_fps") or film.fps)
    return env


def _cannot_render(render_mode: str, flag: str, why: str) -> SettingsError:
    return SettingsError(
        f'{flag} needs an environment with render_mode="{render_mode}", but {why}',
        hint="give the environment's __init__ that argument, and its metadata the list `render_modes`",
    )


@contextmanager
def rendering() -> Iterator[None]:
    """Turn a failure of MuJoCo's renderer into a sentence; its traceback does not say what to do."""
    try:
        yield
    except EnvError as error:
        if not any(part in error.original for part in _OPENGL):
            raise
        raise SettingsError(
            f"MuJoCo cannot render on this machine: {one_line_of(error)}",
            hint="set MUJOCO_GL=egl (Debian: apt install libegl1 libopengl0) or MUJOCO_GL=osmesa (apt install "
            "libosmesa6), which need no screen; MUJOCO_GL=glfw needs one",
        ) from None


def _refuse_missing(error: EnvError) -> None:
    if error.message.startswith("DependencyNotInstalled"):
        raise MissingExtraError(f"the environment cannot show itself: {error.message}") from None


def refuse_unfilmable(resolved: Resolved) -> None:
    """Render one frame if the settings ask for videos, to report problems now and not at the first video."""
    if not resolved.settings.video_every:
        return
    film = VideoWriter("step.mp4")  # imports what it needs; creates the file only at the first frame
    with rendering(), closing(_stage(resolved)) as stage:
        env = shown_env(stage, _MODE, film, _FLAG)
        env.reset(seed=resolved.seed)
        try:
            frames = env.render()
        except EnvError as error:
            _refuse_missing(error)
            raise
    try:
        for frame in frames if isinstance(frames, list) else [frames]:
            checked_picture(frame)
    except SettingsError as error:
        raise SettingsError(
            f"{_FLAG}: the environment cannot be filmed: {one_line_of(error)}", hint=error.hint
        ) from None


def film_episode(resolved: Resolved, policy: ActingPolicy, path: Path, stopped: Callable[[], bool]) -> None:
    """Write an evaluation episode to a video. It has the same seed every time, so that videos can be compared."""
    settings = resolved.settings
    deterministic = not settings.eval_sampled
    trained = TrainedPolicy(policy, resolved.observation_space, resolved.action_space)
    with rendering(), closing(_stage(resolved)) as stage, VideoWriter(path) as film:
        evaluate(
            lambda: shown_env(stage, _MODE, film, _FLAG),
            TrainedAgent(trained, deterministic=deterministic),
            episodes=1,
            seed=resolved.seed,
            deterministic=deterministic,
            max_episode_steps=settings.eval_max_steps,
            on_frame=film,
            stopped=stopped,
        )


def _stage(resolved: Resolved) -> Stage:
    return Stage(resolved.env, resolved.settings, render_mode=_MODE)
