"""Evaluation plays whole episodes with separate seeds; its frames become a video."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from envfleet.confidence import confidence_interval
from envfleet.errors import MissingExtraError, ResourceError, SettingsError
from envfleet.runs.evaluation import Evaluation, evaluate, evaluation_seeds
from envfleet.runs.video import VideoWriter
from tests.runs.full_disk import full_disk


class Counting(gymnasium.Env[int, int]):
    """Each episode has the length of the next entry of `lengths`; the reward is the action."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, lengths: list[int], frame: Any = None) -> None:
        self.lengths, self.frame = lengths, frame
        self.seeds: list[int | None] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.seeds.append(seed)
        self.steps = 0
        return 0, {"at": 0}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps >= self.lengths[len(self.seeds) - 1]
        return self.steps, float(action), ended and len(self.seeds) % 2 == 0, ended, {"at": self.steps}

    def render(self) -> Any:
        return self.frame(self.steps) if callable(self.frame) else self.frame

    def close(self) -> None:
        self.closed = True


class Remembering:
    """Agent that counts its resets and checks the info of each observation."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def __call__(self, observation: int, info: dict[str, Any]) -> int:
        assert info["at"] == observation
        return 2


def test_whole_episodes_are_counted() -> None:
    env, act = Counting([3, 5, 4]), Remembering()
    result = evaluate(lambda: env, act, episodes=3, seed=1, deterministic=True)
    assert (result.returns, result.lengths, result.episodes) == ((6.0, 10.0, 8.0), (3, 5, 4), 3)
    assert result.mean_reward == 8.0
    assert result.std_reward == pytest.approx(math.sqrt(8 / 3))
    assert result.confidence_interval == pytest.approx((8 - 4.3027 * 2 / math.sqrt(3), 8 + 4.3027 * 2 / math.sqrt(3)))
    assert act.resets == 3
    assert env.closed
    assert tuple(env.seeds) == result.seeds


def test_each_episode_is_reported_and_an_interrupt_knows_them() -> None:
    class Interrupted(Remembering):
        def __call__(self, observation: int, info: dict[str, Any]) -> int:
            if self.resets == 3:
                raise KeyboardInterrupt
            return super().__call__(observation, info)

    calls: list[tuple[int, int]] = []
    how: dict[str, Any] = {"seed": 1, "deterministic": True, "on_episode": lambda done, of: calls.append((done, of))}
    evaluate(lambda: Counting([3, 5, 4]), Remembering(), episodes=3, **how)
    assert calls == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(KeyboardInterrupt) as interrupt:
        evaluate(lambda: Counting([3, 5, 4]), Interrupted(), episodes=3, **how)
    assert interrupt.value.__notes__ == ["2 of 3 episodes with seed 1 were played: return 8 ± 2"]


def test_the_result_goes_to_json() -> None:
    result = evaluate(lambda: Counting([1]), Remembering(), episodes=1, seed=1, deterministic=False)
    written = json.loads(json.dumps(result.to_json()))
    assert (written["mean_reward"], written["std_reward"], written["episodes"]) == (2.0, 0.0, 1)
    assert written["confidence_interval"] is None
    assert written["deterministic"] is False
    assert written["seeds"] == evaluation_seeds(1, 1)


def test_seeds_are_pinned_different_and_never_those_of_training() -> None:
    assert evaluation_seeds(1, 3) == [1560397335, 1780007141, 2097798371]
    assert evaluation_seeds(1, 5)[:3] == evaluation_seeds(1, 3)
    assert len(set(evaluation_seeds(7, 1000))) == 1000
    assert not set(evaluation_seeds(7, 1000)) & set(evaluation_seeds(8, 1000))
    assert all(2**30 <= seed < 2**31 for seed in evaluation_seeds(7, 1000))


def test_a_seed_that_training_may_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([4 * 5, 4 * 5, 0, 4 * 2**21, 4 * 3])  # the first three may be used by training
    monkeypatch.setattr("envfleet.runs.evaluation.derive_seed", lambda *_: next(drawn))
    assert evaluation_seeds(2**30, 1) == [2**30 + 2**21]


def test_a_real_environment_gives_the_same_episodes_again() -> None:
    class Left:
        def reset(self) -> None:
            pass

        def __call__(self, observation: Any, info: dict[str, Any]) -> int:
            return 0

    results = [
        evaluate(lambda: gymnasium.make("CartPole-v1"), Left(), episodes=5, seed=3, deterministic=True)
        for _ in range(2)
    ]
    assert results[0] == results[1]
    assert all(8 <= length <= 11 for length in results[0].lengths)


def test_an_endless_episode_ends_at_the_limit() -> None:
    env = Counting([10**9])
    result = evaluate(lambda: env, Remembering(), episodes=1, seed=1, deterministic=True, max_episode_steps=7)
    assert result.lengths == (7,)


def test_the_environment_is_closed_when_the_actor_fails() -> None:
    class Failing(Remembering):
        def __call__(self, observation: int, info: dict[str, Any]) -> int:
            raise KeyError("my mistake")

    env = Counting([3])
    with pytest.raises(KeyError, match="my mistake"):
        evaluate(lambda: env, Failing(), episodes=1, seed=1, deterministic=True)
    assert env.closed
    with pytest.raises(SettingsError, match="got 0 episodes, expected at least 1"):
        evaluate(lambda: env, Failing(), episodes=0, seed=1, deterministic=True)


@pytest.mark.parametrize(
    ("count", "t"), [(2, 12.7062), (10, 2.2622), (31, 2.0423), (32, 2.0395), (101, 1.984), (1001, 1.9623)]
)
def test_the_interval_is_students(count: int, t: float) -> None:
    values = tuple(float(index % 2) for index in range(count))
    interval = confidence_interval(values)
    assert interval is not None
    margin = (interval[1] - interval[0]) / 2
    assert margin / (np.std(values, ddof=1) / math.sqrt(count)) == pytest.approx(t, abs=5e-4)
    assert sum(interval) / 2 == pytest.approx(np.mean(values))


# ---- pictures ----


def film(path: Path, frame: Any, **options: Any) -> Evaluation:
    with VideoWriter(path, **options) as video:
        return evaluate(
            lambda: Counting([9], frame), Remembering(), episodes=1, seed=1, deterministic=True, on_frame=video
        )


def picture(step: int) -> np.ndarray:
    """Return a frame with a bright band that starts further right at every step; both sides are odd."""
    frame = np.zeros((33, 47, 3), np.uint8)
    frame[:, 4 * step :] = 200
    return frame


def pictures_in(path: Path) -> np.ndarray:
    """Decode a video with FFmpeg."""  # [time, height, width, 3]
    import imageio_ffmpeg

    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    sides = (34, 48) if path.suffix == ".mp4" else (33, 47)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, *sides, 3)


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_a_video_has_every_picture(tmp_path: Path, name: str) -> None:
    film(tmp_path / "videos" / name, picture, fps=20)
    pictures = pictures_in(tmp_path / "videos" / name)
    assert len(pictures) == 10  # the first and one per step
    for step in range(10):
        difference = pictures[step, :33, :47].astype(int) - picture(step)
        assert np.abs(difference).mean() < 8
    assert [entry.name for entry in (tmp_path / "videos").iterdir()] == [name]


# imageio leaves the pipe of an FFmpeg that has exited to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
# The limit is reached when the file is finished, or while frames are being written.
@pytest.mark.parametrize(("name", "pictures"), [("a.mp4", 40), ("a.mp4", 400), ("a.gif", 40)])
def test_a_video_that_cannot_be_written_whole_is_an_error(tmp_path: Path, name: str, pictures: int) -> None:
    noise = np.random.default_rng(0)
    path = tmp_path / name
    path.write_bytes(b"the film of before")
    with (
        full_disk(65536),
        pytest.raises(ResourceError, match=rf"the video cannot be written to {path}: "),
        VideoWriter(path) as video,
    ):
        for _ in range(pictures):
            video(noise.integers(0, 255, (64, 64, 3), np.uint8))
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == b"the film of before"


def test_pictures_in_lists_are_taken_and_windows_give_none() -> None:
    seen: list[Any] = []
    run = {"episodes": 1, "seed": 1, "deterministic": True, "on_frame": seen.append}
    evaluate(lambda: Counting([2], ["x", "y"]), Remembering(), **run)  # type: ignore[arg-type]
    assert seen == ["x", "y"] * 3
    evaluate(lambda: Counting([2], None), Remembering(), **run)  # type: ignore[arg-type]
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (None, "there was no picture for the video"),
        (np.zeros((4, 4)), r"got a picture of float64 \[4, 4\], expected uint8 \[height, width, 3\]"),
    ],
    ids=["none", "wrong"],
)
def test_pictures_that_make_no_video_leave_no_file(tmp_path: Path, frame: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as error:
        film(tmp_path / "a.gif", frame)
    assert 'hint: render() returns one if the environment is made with render_mode="rgb_array"' in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_video_that_is_cut_short_by_an_error_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError), VideoWriter(tmp_path / "a.gif") as video:
        video(np.zeros((4, 4, 3), np.uint8))
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SettingsError, match="in a video of"), VideoWriter(tmp_path / "a.gif") as video:
        video(np.zeros((4, 4, 3), np.uint8))
        video(np.zeros((5, 4, 3), np.uint8))


def test_other_names_and_speeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"expected a name that ends in \.mp4 or \.gif"):
        VideoWriter(tmp_path / "a.avi")
    with pytest.raises(SettingsError, match="got 0 pictures per second"):
        VideoWriter(tmp_path / "a.gif", fps=0)


@pytest.mark.parametrize(("name", "missing"), [("a.mp4", "imageio_ffmpeg"), ("a.gif", "imageio.v2")])
def test_a_missing_extra_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r'hint: pip install "envfleet\[video\]"'):
        VideoWriter(tmp_path / name)
