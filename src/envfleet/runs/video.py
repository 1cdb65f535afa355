"""Videos of episodes: mp4 or gif, from the pictures that an environment renders."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from envfleet.errors import MissingExtraError, SettingsError

__all__ = ["VideoWriter"]

_KINDS = (".mp4", ".gif")


class VideoWriter:
    """Takes pictures one by one (it is an `on_frame`) and gives the file its name when it is closed."""

    def __init__(self, path: str | Path, fps: float = 30.0) -> None:
        self.path = Path(path)
        self.frames = 0
        if self.path.suffix.lower() not in _KINDS:
            raise SettingsError(f"got the video {self.path}, expected a name that ends in {' or '.join(_KINDS)}")
        if not fps > 0:
            raise SettingsError(f"got {fps} pictures per second, expected more than 0")
        self._imageio = _imageio(self.path.suffix.lower())
        self.fps = float(fps)  # counts until the first picture
        self._aside = self.path.with_name(f".{self.path.stem}.part{self.path.suffix.lower()}")
        self._writer: Any = None
        self._shape: tuple[int, ...] = ()

    def __call__(self, frame: Any) -> None:
        """Adds a picture: uint8 [height, width, 3]."""
        picture = np.asarray(frame)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise SettingsError(
                f"got a picture of {picture.dtype} {list(picture.shape)}, expected uint8 [height, width, 3]",
                hint='make the environment with render_mode="rgb_array"',
            )
        if self._writer is None:
            self._shape = picture.shape
            self._writer = self._open()
        if picture.shape != self._shape:
            raise SettingsError(f"got a picture of {list(picture.shape)} in a video of {list(self._shape)}")
        if self.path.suffix.lower() == ".mp4":
            # H.264 halves the resolution of colour, so both sides have to be even.
            picture = np.pad(picture, ((0, picture.shape[0] % 2), (0, picture.shape[1] % 2), (0, 0)), mode="edge")
        self._writer.append_data(picture)
        self.frames += 1

    def _open(self) -> Any:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.suffix.lower() == ".gif":
                return self._imageio.get_writer(self._aside, mode="I", duration=1000 / self.fps, loop=0)
            return self._imageio.get_writer(self._aside, fps=self.fps, codec="libx264", macro_block_size=1)
        except OSError as error:
            raise SettingsError(f"the video {self.path} cannot be written: {error}") from error

    def close(self) -> None:
        """Finishes the file; SettingsError if no picture came."""
        if self._writer is None:
            raise SettingsError(
                f"there was no picture for the video {self.path}",
                hint='make the environment with render_mode="rgb_array"',
            )
        self._writer.close()
        self._aside.replace(self.path)

    def discard(self) -> None:
        """Ends without a file."""
        if self._writer is not None:
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


def _imageio(suffix: str) -> Any:
    try:
        import imageio.v2 as imageio

        if suffix == ".mp4":
            import imageio_ffmpeg  # noqa: F401  # imageio finds it by itself
    except ImportError as error:
        message = f"a {suffix} video needs {error.name}"
        raise MissingExtraError(message, hint='pip install "envfleet[video]"') from None
    return imageio
