"""Config files of the older fuel-break system: they run unchanged, and every key has an effect or a notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envfleet import cli
from envfleet.algorithms.settings import DQN, PPO
from envfleet.cli.train import Train
from envfleet.environments.wildfire import generate_landscape
from envfleet.errors import SettingsError
from envfleet.runs.run import Run
from envfleet.training.assembly import resolve
from tests.environments.wildfire.test_landscapes import write_rasters

COMPLETE = """\
{
  "raster_dir": "cropped_raster",
  "grid_size": 25,
  "input_channels": 8,
  "num_landscapes": 4,

  "num_episodes": 100,
  "num_parallel_envs": 6,
  "parallel_method": "threading",
  "max_workers": 3,
  "steps_per_episode": 40,
  "train_frequency": 3,             // Train every N collected experiences
  "collection_batch_size": 48,      // Batch size for experience collection
  "experience_buffer_size": 1500,

  "memory_simulations": 2,
  "pretrain_steps": 150,
  "percentage_increment": 2,

  "learning_rate": 1e-4,
  "gamma": 0.95,
  "initial_epsilon": 1.0,
  "epsilon_min": 0.01,
  "epsilon_decay": 0.995,
  "buffer_size": 30000,
  "batch_size": 24,

  "target_update_frequency": 15,
  "checkpoint_frequency": 15,

  "output_dir": "parallel_outputs",
  "regenerate_memories": false
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the config file and rasters of 40 × 40 cells."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parallel_config.json").write_text(COMPLETE)
    (tmp_path / "cropped_raster").mkdir()
    write_rasters(tmp_path / "cropped_raster", generate_landscape("mixed", "medium", 40, 9))
    return tmp_path


def parsed(*flags: str) -> Train:
    return Train.parse(["dqn", "--env", "envfleet/Wildfire-v0", "--config", "parallel_config.json", *flags])


def resolved(*flags: str) -> dict[str, Any]:
    return resolve(parsed(*flags).settings).settings.to_json()


@pytest.mark.usefixtures("folder")
def test_every_key_has_an_effect_or_a_notice() -> None:
    command = parsed()
    found = resolve(command.settings).settings.to_json()
    round_of_all = 40 * 6
    assert found["env_kwargs"] == {
        "raster_dir": "cropped_raster",
        "grid_size": 25,
        "input_channels": 8,
        "num_landscapes": 4,
        "steps_per_episode": 40,
        "memory_simulations": 2,
        "percentage_increment": 2.0,
        "fire_channels": True,  # from the preset
    }
    expected = {
        "steps": 100 * round_of_all,
        "num_episodes": None,
        "n_envs": 6,
        "backend": "threading",
        "workers": 3,
        "train_frequency": 3,
        "pretrain_steps": 150,
        "demonstrations": "environment",
        "regenerate_demonstrations": False,
        "learning_rate": 1e-4,
        "gamma": 0.95,
        "initial_epsilon": 1.0,
        "epsilon_min": 0.01,
        "epsilon_decay": 0.995,
        "replay_size": 30_000,
        "minibatch_size": 24,
        "target_update_frequency": 15 * round_of_all / 3,  # in updates, one per three steps
        "checkpoint_every": 15 * round_of_all,
        "output_dir": "parallel_outputs",
    }
    assert {name: found[name] for name in expected} == expected
    notices = "\n".join([*command.notices, *command.settings.notices()])
    for key in ("collection_batch_size has no effect", "experience_buffer_size has no effect", "count rounds of 40"):
        assert key in notices
    assert len(json.loads("\n".join(line.partition("//")[0] for line in COMPLETE.splitlines()))) == 26


@pytest.mark.usefixtures("folder")
def test_flags_in_the_old_spelling_win_over_the_file() -> None:
    found = resolved("--num_parallel_envs", "4", "--parallel_method", "sequential", "--regenerate_memories", "true")
    assert (found["n_envs"], found["backend"]) == (4, "sequential")
    assert found["steps"] == 100 * 40 * 4
    assert found["regenerate_demonstrations"]


@pytest.mark.usefixtures("folder")
def test_other_numbers_of_layers_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"--input-channels: got '?7'?, expected .*8"):
        parsed("--input-channels", "7")


def test_it_trains(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train on the whole file, cut to two rounds of five steps, smaller landscapes and fewer demonstrations."""
    flags = ["--num_episodes", "2", "--steps-per-episode", "5", "--demonstration-steps", "60", "--pretrain-steps", "2"]
    flags += ["--grid-size", "14", "--percentage-increment", "3"]
    command = ["train", "dqn", "--env", "envfleet/Wildfire-v0", "--config", "parallel_config.json", *flags]
    assert cli.main([*command, "--learning-starts", "16", "--seed", "1", "--eval-every", "0"]) == 0
    shown = capsys.readouterr()
    assert "notice: collection_batch_size has no effect" in shown.err
    assert "steps were demonstrated" in shown.out + shown.err
    metrics = Run.load(folder / "parallel_outputs").metrics
    assert metrics[-1]["step"] >= 2 * 5 * 6
    assert metrics[-1]["train/n_updates"] >= 2

    assert cli.main(["evaluate", "parallel_outputs", "--episodes", "2"]) == 0
    assert "2 other crops of the same rasters, which may overlap those of training" in capsys.readouterr().out
    for number in range(2):
        breaks = folder / "parallel_outputs" / "report" / f"landscape-{number}-breaks.tif"
        assert_lies_within(breaks, folder / "cropped_raster" / "slp.tif", rows=14, breaks=5)


def assert_lies_within(map_file: Path, source_file: Path, *, rows: int, breaks: int) -> None:
    """Check the numbers of rows and breaks of a map, and that it lies on the source's grid, CRS and bounds."""
    import rasterio

    with rasterio.open(map_file) as written, rasterio.open(source_file) as source:
        assert written.crs == source.crs and written.crs.to_epsg() == 5070
        assert written.res == source.res and written.shape == (rows, rows)
        inner, outer = written.bounds, source.bounds
        assert outer.left <= inner.left < inner.right <= outer.right
        assert outer.bottom <= inner.bottom < inner.top <= outer.top
        assert (inner.left - outer.left) % source.res[0] == (outer.top - inner.top) % source.res[1] == 0
        order = written.read(1)
    assert sorted(order[order > 0].tolist()) == list(range(1, breaks + 1))


# ---- rounds and presets


def test_rounds_count_for_every_algorithm() -> None:
    settings = PPO(num_episodes=10, round_steps=8, n_envs=4, checkpoint_frequency=2, seed=0)
    found = resolve(settings).settings
    assert (found.steps, found.num_episodes, found.checkpoint_every, found.round_steps) == (320, None, 64, None)
    assert resolve(found).settings.steps == 320  # as a resumed run reads it
    with pytest.raises(SettingsError, match="needs round_steps"):
        PPO(checkpoint_frequency=2)


@pytest.mark.parametrize(
    ("name", "own", "of_env"),
    [
        ("low-memory", {"n_envs": 2, "replay_size": 10_000, "minibatch_size": 16}, {"grid_size": 20}),
        ("faster", {"train_frequency": 2}, {"steps_per_episode": 30}),
        ("debug", {"n_envs": 1, "backend": "sequential", "verbose": True}, {}),
        ("auto-scale", {"backend": "threads"}, {}),
    ],
)
def test_named_presets(name: str, own: dict[str, Any], of_env: dict[str, Any]) -> None:
    found = resolve(DQN(env="envfleet/Wildfire-v0", preset=name, seed=0))
    assert found.preset.name == f"DQN, wildfire, {name}"
    assert {key: getattr(found.settings, key) for key in own} == own
    assert found.settings.env_kwargs.items() >= of_env.items()
    assert found.observation_space.shape == (11, *[found.settings.env_kwargs.get("grid_size", 25)] * 2)


def test_what_is_given_wins_over_a_named_preset_and_others_take_what_they_have_of_it() -> None:
    given = DQN(env="envfleet/Wildfire-v0", env_kwargs={"grid_size": 12}, preset="low-memory", n_envs=3, seed=0)
    found = resolve(given).settings
    assert (found.n_envs, found.env_kwargs["grid_size"], found.replay_size) == (3, 12, 10_000)
    ppo = resolve(PPO(env="CartPole-v1", preset="low-memory", seed=0)).settings
    assert (ppo.n_envs, ppo.workers, ppo.env_kwargs) == (8, 2, {})
    with pytest.raises(SettingsError, match="low-memory"):
        DQN(preset="low-memry")
