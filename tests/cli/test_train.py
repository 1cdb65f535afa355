"""`envfleet train`: flags, config files and both; the resulting runs, and refused input."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from envfleet import cli, clock
from envfleet.algorithms.settings import BACKENDS
from envfleet.cli.train import Train
from envfleet.errors import SettingsError
from envfleet.runs.metrics import read_metrics
from envfleet.training import progress
from tests.cli.conftest import SMALL, train
from tests.training.running import weights

EXPERIMENT = """
algorithm: ppo
env: CartPole-v1
parallel: {num_workers: 4, num_envs_per_worker: 8}
training:
  n_steps: 64
  batch_size: 4096
  learning_rate: 1e-3
"""


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return str(path)


def settings(*arguments: str) -> Any:
    return Train.parse(arguments).settings


def refused(*arguments: str) -> str:
    with pytest.raises(SettingsError) as error:
        Train.parse(arguments)
    return str(error.value)


# ---- flags ----


def test_the_settings_of_an_environment_are_flags_and_keys_of_files(tmp_path: Path) -> None:
    given = settings(
        "ppo", "--env", "envfleet/GameBoy-v0", "--rom", "zelda.gbc", "--game=oracle_of_seasons", "--frame-skip", "8",
        "--actions", "none", "up", "up+a", "--env-kwargs", "sticky=0.25", "--steps", "5",
    )  # fmt: skip
    assert given.env_kwargs == {
        "sticky": 0.25, "rom": "zelda.gbc", "game": "oracle_of_seasons", "frame_skip": 8,
        "actions": ("none", "up", "up+a"),
    }  # fmt: skip
    assert given.given == {"env", "env_kwargs", "steps"}
    for flags in (["--env-id", "envfleet/Wildfire-v0"], ["--env_id=envfleet/Wildfire-v0"]):
        assert settings("dqn", *flags, "--grid-size", "20").env_kwargs == {"grid_size": 20}
    path = tmp_path / "fires.yaml"
    path.write_text(
        "algorithm: dqn\nenv: envfleet/Wildfire-v0\ngrid_size: 12\nfire_risk: high\nenv_kwargs: {block_size: 2}"
    )
    assert settings("--config", str(path)).env_kwargs == {"block_size": 2, "grid_size": 12, "fire_risk": "high"}
    over = settings("--config", str(path), "--grid-size", "20")
    assert over.env_kwargs == {"block_size": 2, "grid_size": 20, "fire_risk": "high"}


@pytest.mark.parametrize("kwargs", ["", "[grid_size=12]", "12"])
def test_arguments_of_an_environment_that_are_no_mapping_are_refused(tmp_path: Path, kwargs: str) -> None:
    path = tmp_path / "fires.yaml"
    path.write_text(f"algorithm: dqn\nenv: envfleet/Wildfire-v0\nenv_kwargs: {kwargs}\n")
    assert "env_kwargs" in refused("--config", str(path))


def test_your_own_environment_declares_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from dataclasses import dataclass
from envfleet.settings import Settings, setting

@dataclass(frozen=True, kw_only=True)
class MazeSettings(Settings):
    "How the maze is."
    size: int = setting(8, "Rows and columns.", minimum=2)
    seed: int = setting(0, "An algorithm has this one already.")

class Maze:
    settings_class = MazeSettings
"""
    (tmp_path / "own_maze.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    given = settings("ppo", "--env", "own_maze:Maze", "--size", "4", "--seed", "3")
    assert (given.env_kwargs, given.seed) == ({"size": 4}, 3)
    assert "--size: got '1', expected a whole number, at least 2" in refused(
        "ppo", "--env=own_maze:Maze", "--size", "1"
    )


def test_a_wrong_value_for_an_environment_gets_a_sentence() -> None:
    output = refused("ppo", "--env", "envfleet/GameBoy-v0", "--frame-skip", "often", "--shrink", "3")
    assert "--frame-skip: got 'often', expected a whole number, at least 1, at most 60" in output
    assert "shrink: got 3, expected a divisor of 144 and 160" in output


def test_every_kind_of_setting_is_a_flag() -> None:
    given = settings(
        "ppo", "--env", "Pendulum-v1", "--n-envs", "64", "--steps", "2e5", "--seed=3", "--learning-rate", "1e-3",
        "--hidden", "32", "16", "--normalise-observations", "--no-normalise-advantages", "--shared", "true",
        "--env-kwargs", "g=9.5", "name=moon", "hard=true", "--wrappers", "a.b:c", "d:e", "--initial-log-std", "-0.5",
        "--workers", "none", "--memory", "gru",
    )  # fmt: skip
    assert (given.env, given.n_envs, given.steps, given.seed) == ("Pendulum-v1", 64, 200_000, 3)
    assert (given.learning_rate, given.hidden, given.shared) == (1e-3, (32, 16), True)
    assert (given.normalise_observations, given.normalise_advantages) == (True, False)
    assert given.env_kwargs == {"g": 9.5, "name": "moon", "hard": True}
    assert given.wrappers == ("a.b:c", "d:e")
    assert (given.initial_log_std, given.workers, given.memory) == (-0.5, None, "gru")


def test_only_what_was_given_counts_as_given() -> None:
    # A default value that is given explicitly still wins over a preset.
    assert settings("ppo", "--n-envs", "8", "--quiet").given == {"n_envs", "quiet"}
    assert settings("ppo", "--no-normalise-observations").given == {"normalise_observations"}
    assert settings("ppo").given == frozenset()


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        (["--parallel-start-method", "fork"], "start_method", "fork"),
        (["--parallel_start_method=fork"], "start_method", "fork"),
        (["--num-episodes", "1000"], "num_episodes", 1000),
        (["--device", "cpu"], "device", "cpu"),
        (["--checkpoint-dir", "checkpoints/v1"], "checkpoint_dir", "checkpoints/v1"),
        (["--batch-size", "64"], "minibatch_size", 64),
        (["--n-epochs", "3"], "epochs", 3),
        (["--total-timesteps", "5000"], "steps", 5000),
        (["--num-workers", "2", "--num-envs-per-worker", "4"], "n_envs", 8),
        (["--num-workers", "2", "--num-envs-per-worker", "4"], "workers", 2),
        (["--duration", "0.017"], "duration", 0.017),
        (["--backend", "multiprocessing"], "backend", "multiprocessing"),
    ],
)
def test_names_of_other_systems(flags: list[str], name: str, value: Any) -> None:
    parsed = settings("ppo", *flags)
    assert getattr(parsed, name) == value
    assert name in parsed.given


def test_the_backends_of_the_settings_are_those_of_the_fleet() -> None:
    from envfleet.fleet.make import BACKENDS as OF_THE_FLEET

    assert set(BACKENDS) == set(OF_THE_FLEET)


def test_help_has_groups_and_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        Train.parse(["ppo", "--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    for group in ("environment", "budget", "rollout", "update", "policy", "run"):
        assert f" {group} options " in output
    assert "--batch-size" not in output.partition("examples:")[0]
    examples = output.rpartition("examples:")[2].splitlines()
    assert examples[1] == "  envfleet train ppo --env CartPole-v1 --n-envs 64 --steps 200000 --seed 1"
    assert len(examples) < 12


def test_keys_of_infos() -> None:
    given = settings("ppo", "--log-info", "reward_forward", "x_position:last", "--seed", "1")
    assert given.log_info == ("reward_forward", "x_position:last")
    with pytest.raises(SettingsError, match="expected keys of info, each once"):
        settings("ppo", "--log-info", "x", "x")


@pytest.mark.parametrize("arguments", [["--help"], ["dqn", "--help"]])
def test_help_names_the_algorithms(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        Train.parse(arguments)
    listed = capsys.readouterr().out.partition("algorithms:")[2].splitlines()
    assert [line.split()[0] for line in listed[1:3]] == ["dqn", "ppo"]
    assert all(len(line.split()) > 3 for line in listed[1:3])  # each with a short description


# ---- files ----


def test_a_file_says_what_is_trained(experiment: str) -> None:
    given = settings("--config", experiment)
    assert (given.algorithm, given.n_envs, given.workers, given.rollout_steps) == ("ppo", 32, 4, 64)
    assert (given.minibatch_size, given.learning_rate) == (4096, 1e-3)


def test_flags_win_over_the_file(experiment: str) -> None:
    given = settings("ppo", f"--config={experiment}", "--learning-rate", "0.5", "--n-steps", "16", "--seed", "3")
    assert (given.learning_rate, given.rollout_steps, given.seed, given.minibatch_size) == (0.5, 16, 3, 4096)
    assert "learning_rate" in given.given
    assert "gamma" not in given.given


def test_the_file_wins_over_the_preset_and_the_preset_over_the_default(experiment: str) -> None:
    from envfleet.training.assembly import resolve

    resolved = resolve(settings("--config", experiment, "--epochs", "7")).settings
    assert resolved.epochs == 7  # the flag; the preset says 20
    assert resolved.learning_rate == 1e-3  # the file
    assert resolved.n_envs == 32  # the file; the preset says 8
    assert resolved.gamma == 0.98  # the preset
    assert resolved.value_coefficient == 0.5  # the default


@pytest.mark.parametrize(
    ("flags", "n_envs", "workers"),
    [
        ([], 32, 4),
        (["--workers", "2"], 32, 2),  # the number of workers changes nothing else
        (["--num-workers", "2"], 16, 2),  # the file's own spelling also changes the number of environments
        (["--num-workers", "8", "--num-envs-per-worker", "4"], 32, 8),
        (["--n-envs", "32"], 32, 4),
    ],
)
def test_workers_times_environments(experiment: str, flags: list[str], n_envs: int, workers: int) -> None:
    given = settings("--config", experiment, *flags)
    assert (given.n_envs, given.workers) == (n_envs, workers)


def test_another_number_of_environments_is_refused(experiment: str) -> None:
    message = refused("--config", experiment, "--n-envs", "8")
    assert "num_workers × num_envs_per_worker: got 32, but --n-envs says '8'" in message


def test_json_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "experiment.json"
    path.write_text('{"algorithm": "ppo", // which\n "n_envs": 3, /* few */ }')
    assert settings("--config", str(path)).n_envs == 3


# ---- refused input ----


def test_all_problems_of_flags_and_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("algorithm: ppo\ntrainin: {n_steps: 3}\nlearning_rate: fast\n")
    lines = refused("--config", str(path), "--n-envs", "0", "--schedule", "ovrlap", "--network", "mpl").splitlines()
    assert lines[0] == f"{path} with the flags over it has 5 problems:"
    assert lines[1] == "  trainin.n_steps: there is no such setting; did you mean training.n_steps?"
    assert "  --n-envs: got '0', expected a whole number, at least 1" in lines
    assert "  learning_rate: got 'fast', expected a number, above 0" in lines
    assert any(line.startswith("  --schedule: got 'ovrlap'") and "'overlap'?" in line for line in lines)
    assert lines[-1].startswith("  network is 'mpl', expected one of")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pppo"], "unknown algorithm 'pppo'"),
        (["pppo"], "did you mean `envfleet train ppo`?"),
        (["PPO"], "unknown algorithm 'PPO', expected one of dqn, ppo, sac"),
        (["PPO"], "did you mean `envfleet train ppo`?"),
        ([], "the command names no algorithm"),
        (["--env", "CartPole-v1"], "hint: e.g. envfleet train ppo"),
        (["--config", "missing.yaml"], "there is no settings file missing.yaml"),
        (["ppo", "--batch-size"], "--batch-size has no value"),
        (["ppo", "--log-info"], "--log-info has no value\nhint: write --log-info KEY ..., or leave it out"),
        (["ppo", "--log-info", "--quiet"], "--log-info has no value"),
        (["ppo", "--wrappers"], "--wrappers has no value"),
        (["ppo", "--env-kwargs"], "--env-kwargs has no value"),
        (["ppo", "--env-kwargs", "size"], "received the argument 'size', expected name=value"),
        (["ppo", "--quiet", "--verbose"], "quiet and verbose were both asked for"),
    ],
)
def test_commands_that_cannot_work(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_the_command_and_the_file_must_not_disagree(experiment: str) -> None:
    assert "the command says dqn, but" in refused("dqn", "--config", experiment)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--n-env", "3"], "--n-env: there is no such setting; did you mean --n-envs?"),
        (["--lerning-rate=3"], "--lerning-rate: there is no such setting; did you mean --learning-rate?"),
        (["--colour", "red", "blue"], "--colour: there is no such setting; docs/settings.md has all"),
        (
            ["--env", "envfleet/Wildfire-v0", "--grid-sze", "3"],
            "there is no such setting; did you mean --grid-size?",
        ),
        (["--env", "envfleet/Wildfire-v0", "--n-env", "3"], "did you mean --n-envs?"),
        (["--n-envs", "8", "9"], "the command has '9', which no flag takes"),
        (["CartPole-v1"], "the command has 'CartPole-v1', which no flag takes"),
    ],
)
def test_a_wrong_flag_is_answered_with_the_nearest(arguments: list[str], words: str) -> None:
    assert words in refused("ppo", *arguments)


@pytest.mark.parametrize("flags", [["--memory", "gru"], ["--memory=lstm"]])
def test_a_setting_that_only_other_algorithms_have_is_refused_with_the_reason(flags: list[str]) -> None:
    assert "--memory: DQN has no recurrent memory; use ppo --memory gru" in refused("dqn", *flags)


def test_wrong_flags_are_reported_with_the_values_that_cannot_be(
    experiment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--lerning-rate", "3", "--gamma", "2", "--hidden", "0", "--colour", "--memory-size", "0", "--n-steps", "0"]
    assert cli.main(["train", "ppo", "--config", experiment, *wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {experiment} with the flags over it has 6 problems:"
    names = ["--lerning-rate:", "--colour:", "--n-steps:", "--gamma:", "--hidden:", "--memory-size:"]
    assert [line.split()[0] for line in lines[1:]] == names


# ---- results ----


def test_a_run_is_trained_and_records_what_it_was_given(trained: Path) -> None:
    assert (trained / "checkpoints" / "final" / "policy.safetensors").is_file()
    recorded = yaml.safe_load((trained / "config.yaml").read_text())
    assert recorded["algorithm"] == "ppo"
    assert (recorded["n_envs"], recorded["steps"], recorded["seed"]) == (4, 512, 1)
    assert recorded["gamma"] == 0.98  # from the preset


def test_the_console_says_what_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--no-quiet", "--batch-size", "5000") == 0
    output = capsys.readouterr()
    assert output.out == ""  # the console is on stderr
    assert "backend       sequential" in output.err
    assert "preset: classic control" in output.err
    assert "notice: minibatch_size (batch_size) is 5,000, more than the rollout of 128 steps" in output.err
    assert f"envfleet evaluate {tmp_path / 'run'} --episodes 100" in output.err


def test_episodes_alone_are_the_budget(tmp_path: Path) -> None:
    """The default of 100,000 steps does not end the run early; the episode budget ends it."""
    arguments = ["--env", "CartPole-v1", "--seed", "1", "--backend", "sequential", "--n-envs", "4"]
    run = tmp_path / "run"
    assert cli.main(["train", "ppo", *arguments, "--num-episodes", "30", "--quiet", "--output-dir", str(run)]) == 0
    recorded = yaml.safe_load((run / "config.yaml").read_text())
    assert (recorded["steps"], recorded["num_episodes"]) == (None, 30)
    rows = read_metrics(run / "metrics.jsonl")
    episodes = [row["rollout/episodes"] for row in rows if "rollout/episodes" in row]
    assert episodes[-1] >= 30
    assert episodes[-2] < 30
    assert (run / "checkpoints" / "final").exists()


def test_a_duration_alone_is_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    seconds = SimpleNamespace(monotonic=lambda: float(next(looks)), perf_counter=time.perf_counter)
    monkeypatch.setattr(progress, "time", seconds)  # every reading of the budget's clock advances it by one second
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 0.0))
    run, hours = tmp_path / "run", 60 / 3600
    flags = ["--seed", "1", "--backend", "sequential", "--eval-every", "0", "--output-dir", str(run), "--quiet"]
    assert cli.main(["train", "ppo", *flags, "--duration", str(hours)]) == 0
    rows = read_metrics(run / "metrics.jsonl")
    assert 1 < len(rows) <= 60
    rates = [row["train/learning_rate"] for row in rows]
    assert rates == sorted(rates, reverse=True)  # linear in elapsed time
    assert rates[0] > rates[-1]


def test_an_output_dir_that_exists(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(trained.rglob("*"))
    assert train(trained) == 2
    error = capsys.readouterr().err
    assert f"`envfleet resume {trained}`" in error
    assert "--overwrite" in error
    assert sorted(trained.rglob("*")) == before


def test_a_runs_own_settings_do_not_replace_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--steps", "64", "--rollout-steps", "16", "--eval-every", "0"]
    assert train(tmp_path / "a", *short, "--overwrite") == 0
    before = weights(tmp_path / "a")
    config = tmp_path / "a" / "config.yaml"
    recorded = yaml.safe_load(config.read_text())
    assert "overwrite" not in recorded
    for content in (recorded, {**recorded, "overwrite": True}):  # older versions recorded it
        config.write_text(yaml.safe_dump(content))
        assert cli.main(["train", "--config", str(config), "--seed", "2"]) == 2
        assert "a exists and is not empty" in capsys.readouterr().err
        assert weights(tmp_path / "a") == before
    assert cli.main(["train", "--config", str(config), "--seed", "2", "--overwrite"]) == 0
    assert weights(tmp_path / "a") != before


def test_a_settings_file_may_say_overwrite(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algorithm: ppo\noverwrite: true\n")
    assert settings("--config", str(tmp_path / "mine.yaml")).overwrite


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves it alone in --flag=~/folder and in files."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "home" / "a.yaml").write_text("algorithm: ppo\ncheckpoint_dir: ~/states\n")
    small = ["--config=~/a.yaml", *SMALL[:-1], "64", "--rollout-steps", "16", "--eval-every", "0", "--quiet"]
    assert cli.main(["train", *small, "--output-dir=~/runs/x"]) == 0
    assert (tmp_path / "home" / "states" / "final").is_dir()
    again = ["--init-from=~/runs/x", "--output-dir=~/runs/y", "--checkpoint-dir=~/more"]
    assert cli.main(["train", *small, *again]) == 0
    assert cli.main(["resume", "~/runs/y", "--steps", "128", "--quiet"]) == 0
    assert cli.main(["runs", "~/runs"]) == 0
    assert cli.main(["plot", "~/runs/x"]) == 0
    assert (tmp_path / "home" / "runs" / "x" / "report" / "learning.png").is_file()
    assert list((tmp_path / "here").iterdir()) == []


FAULTY = """
import gymnasium, numpy as np

class Faulty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, where="step"):
        self.where = where
        if where == "init":
            raise ValueError("init is broken")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.where == "reset":
            raise ValueError("reset is broken")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        raise ValueError("step is broken")
"""


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_environment_that_raises_shows_its_own_traceback(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"faulty_{where}"
    (tmp_path / f"{name}.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert train(tmp_path / "runs" / "run", "--env", f"{name}:Faulty", "--env-kwargs", f"where={where}") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: ValueError: {where} is broken (environment ")
    assert f'raise ValueError("{where} is broken")' in error
    assert "site-packages/envfleet" not in error
    assert "src/envfleet" not in error
    assert not (tmp_path / "runs").exists()  # nothing is left behind, and the name is free for the next attempt


def test_an_unknown_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--env", "CartPol-v1") == 2
    assert "hint: did you mean CartPole-v1" in capsys.readouterr().err


def test_dqn_has_the_same_command(tmp_path: Path) -> None:
    flags = ["--backend", "sequential", "--steps", "256", "--seed", "1", "--quiet", "--eval-every", "0"]
    assert cli.main(["train", "dqn", *flags, "--output-dir", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "checkpoints" / "final" / "policy.safetensors").is_file()
