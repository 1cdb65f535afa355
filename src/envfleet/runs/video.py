"""Videos of episodes: mp4 or gif, from the frames that an environment renders."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from envfleet.errors import MissingExtraError, SettingsError
from envfleet.runs.durable import write_whole, writing

__all__ = ["VideoWriter", "checked_picture"]

_KINDS = (".mp4", ".gif")
_HINT = 'render() returns one if the environment is made with render_mode="rgb_array"'


class VideoWriter:
    """Takes frames one by one (usable as `on_frame`). `close` gives the file its final name."""

    def __init__(self, path: str | Path, fps: float = 30.0) -> None:
        self.path = Path(path)
        self.frames = 0
        if self.path.suffix.lower() not in _KINDS:
            raise SettingsError(f"got the video {self.path}, expected a name that ends in {' or '.join(_KINDS)}")
        if not fps > 0:
            raise SettingsError(f"got {fps} pictures per second, expected more than 0")
        self._imageio = _imageio(self.path.suffix.lower())
        self.fps = float(fps)  # read at the first frame
        self._is_gif = self.path.suffix.lower() == ".gif"
        # Absolute, because an environment may change the working directory while recording.
        self._target = self.path.absolute()
        self._aside = self._target.with_name(f".{self.path.stem}.part{self.path.suffix.lower()}")
        self._gif = io.BytesIO()  # the writer keeps all frames in memory until it is closed
        self._writer: Any = None
        self._shape: tuple[int, ...] = ()

    def __call__(self, frame: Any) -> None:
        """Add a frame: uint8 [height, width, 3]."""
        picture = checked_picture(frame)
        if self._writer is None:
            self._shape = picture.shape
            self._writer = self._open()
        if picture.shape != self._shape:
            raise SettingsError(f"got a picture of {list(picture.shape)} in a video of {list(self._shape)}")
        if not self._is_gif:
            # H.264 halves the colour resolution, so both sides must be even.
            picture = np.pad(picture, ((0, picture.shape[0] % 2), (0, picture.shape[1] % 2), (0, 0)), mode="edge")
        with self._writing():
            try:
                self._writer.append_data(picture)
            except OSError as error:  # the pipe to FFmpeg
                raise OSError("FFmpeg ended early; the disk may be full") from error
        self.frames += 1

    def _writing(self) -> AbstractContextManager[None]:
        return writing("the video", self.path, "or give another place")

    def _open(self) -> Any:
        with self._writing():
            self._target.parent.mkdir(parents=True, exist_ok=True)
            if self._is_gif:
                return self._imageio.get_writer(self._gif, format="GIF", mode="I", duration=1000 / self.fps, loop=0)
            return self._imageio.get_writer(self._aside, fps=self.fps, codec="libx264", macro_block_size=1)

    def close(self) -> None:
        """Finish the file. Raises a SettingsError if there was no frame, a ResourceError if the file is incomplete."""
        if self._writer is None:
            raise SettingsError(f"there was no picture for the video {self.path}", hint=_HINT)
        try:
            with self._writing():
                self._writer.close()
                if self._is_gif:
                    write_whole(self._target, self._gif.getvalue())
                else:
                    self._refuse_cut_file()
                    self._aside.replace(self._target)
        finally:
            self._aside.unlink(missing_ok=True)

    def _refuse_cut_file(self) -> None:
        """Raise an OSError if frames are missing. Reads the file, because FFmpeg's exit code is not available."""
        import imageio_ffmpeg

        try:
            found, _ = imageio_ffmpeg.count_frames_and_secs(str(self._aside))
        except RuntimeError:
            found = 0
        if found < self.frames:
            raise OSError(f"the file has {found} of {self.frames} pictures; the disk may be full")

    def discard(self) -> None:
        """End without a file."""
        if self._writer is not None:
            with suppress(OSError):  # its file is deleted anyway
                self._writer.close()
        self._aside.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()


def checked_picture(frame: Any) -> np.ndarray[Any, Any]:
    """Return a frame as an array; raise SettingsError if it cannot be part of a video."""
    picture = np.asarray(frame)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        received = "no picture" if frame is None else f"a picture of {picture.dtype} {list(picture.shape)}"
        raise SettingsError(f"got {received}, expected uint8 [height, width, 3]", hint=_HINT)
    return picture


def _imageio(suffix: str) -> Any:
    try:
        import imageio.v2 as imageio

        if suffix == ".mp4":
            import imageio_ffmpeg

            imageio_ffmpeg.get_ffmpeg_exe()
    except ImportError as error:
        message = f"a {suffix} video needs {error.name}"
        raise MissingExtraError(message, hint='pip install "envfleet[video]"') from None
    except RuntimeError as error:
        hint = "install FFmpeg, or set IMAGEIO_FFMPEG_EXE to its path; a .gif does not need it"
        raise MissingExtraError(f"a {suffix} video needs FFmpeg: {error}", hint=hint) from None
    return imageio
