"""Videos during training: when they are made, that they do not affect it, and errors if there can be none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from envfleet.errors import MissingExtraError, SettingsError
from envfleet.training import reporting, resume
from envfleet.training.callbacks import Callback, Moment
from tests.training.envs import Blind, Drawn, Flat, NoOpenGL, Pale, Silent
from tests.training.running import run, weights
from tests.training.test_rates import UPDATE, StopsAfter


def videos(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "videos").iterdir())


def test_videos_come_every_so_often_and_at_the_end_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    run(tmp_path / "run", env=Drawn, video_every=2 * UPDATE, quiet=False)
    assert videos(tmp_path / "run") == [f"step-{3 * UPDATE}.mp4", f"step-{2 * UPDATE}.mp4"]
    assert f"video at step 768: {tmp_path / 'run' / 'videos' / 'step-768.mp4'}" in capsys.readouterr().err
    frames, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "run" / "videos" / "step-768.mp4"))
    assert (frames, seconds) == (4, pytest.approx(4 / 5))
    run(tmp_path / "without", env=Drawn)
    assert weights(tmp_path / "run") == weights(tmp_path / "without")


def test_a_resumed_run_has_the_same_videos(tmp_path: Path) -> None:
    run(tmp_path / "run", [StopsAfter(1)], env=Drawn, video_every=UPDATE)
    assert videos(tmp_path / "run") == ["step-384.mp4"]
    (tmp_path / "run" / "videos" / "step-384.mp4").unlink()
    resume(tmp_path / "run", env=Drawn, quiet=True)
    assert videos(tmp_path / "run") == ["step-1152.mp4", "step-768.mp4"]  # the first one was made before the resume


def test_a_video_that_fails_does_not_cost_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Breaks(Callback):
        def on_rollout(self, moment: Moment, rollout: Any) -> None:
            Drawn.broken = moment.steps > UPDATE

    try:
        run(tmp_path / "run", [Breaks()], env=Drawn, video_every=UPDATE, steps=2 * UPDATE)
    finally:
        Drawn.broken = False
    output = capsys.readouterr().err
    assert "the video at step 768 failed, and training continues without it: RuntimeError: the pen broke" in output
    assert videos(tmp_path / "run") == ["step-384.mp4"]
    assert weights(tmp_path / "run")


def test_no_error_of_a_video_costs_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no FFmpeg")

    monkeypatch.setattr(reporting, "film_episode", fails)
    run(tmp_path / "run", env=Drawn, video_every=3 * UPDATE)
    assert "failed, and training continues without it: RuntimeError: no FFmpeg" in capsys.readouterr().err
    assert weights(tmp_path / "run")


@pytest.mark.parametrize(
    ("env", "received"), [(Pale, r"got a picture of float64 \[16, 16, 3\]"), (Blind, "got no picture")]
)
def test_a_picture_that_is_none_is_refused_at_the_start(tmp_path: Path, env: Any, received: str) -> None:
    words = rf"--video-every: the environment cannot be filmed: {received}, expected uint8 \[height, width, 3\]\nhint: "
    with pytest.raises(SettingsError, match=words):
        run(tmp_path / "run", env=env, video_every=UPDATE)
    assert list(tmp_path.iterdir()) == []


def test_without_opengl(tmp_path: Path) -> None:
    words = r"^MuJoCo cannot render on this machine: ImportError: Cannot initialize .*\nhint: set MUJOCO_GL=egl [^\n]*$"
    with pytest.raises(SettingsError, match=words):
        run(tmp_path / "run", env=NoOpenGL, video_every=UPDATE)
    assert list(tmp_path.iterdir()) == []


def test_without_ffmpeg_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(pytest.importorskip("imageio_ffmpeg"), "get_ffmpeg_exe", missing)
    with pytest.raises(MissingExtraError, match=r"a \.mp4 video needs FFmpeg: No ffmpeg exe could be found"):
        run(tmp_path / "run", env=Drawn, video_every=UPDATE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("env", "why"), [(Flat, "it takes no render_mode"), (Silent, "its render modes are none")])
def test_an_environment_that_cannot_be_filmed_is_refused_at_the_start(tmp_path: Path, env: Any, why: str) -> None:
    with pytest.raises(SettingsError, match=f'--video-every needs an environment with render_mode="rgb_.*, but {why}'):
        run(tmp_path / "run", env=env, video_every=UPDATE)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r'needs imageio_ffmpeg\nhint: pip install "envfleet\[video\]"'):
        run(tmp_path / "run", env=Drawn, video_every=UPDATE)
    assert list(tmp_path.iterdir()) == []
