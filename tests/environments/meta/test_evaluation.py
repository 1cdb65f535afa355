"""`envfleet evaluate --tasks`: held-out tasks, the return of each episode of a trial, plot and video."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box, Discrete

from envfleet import cli
from envfleet.algorithms.env_facts import EnvFacts
from envfleet.confidence import confidence_interval
from envfleet.environments.meta.point_robot import PointRobotSparse
from envfleet.environments.meta.settings import TaskSettings
from envfleet.environments.presets import declared_presets
from envfleet.errors import SettingsError
from envfleet.runs.adaptation import Adaptation
from envfleet.runs.adaptation_plot import plot_adaptation
from envfleet.training import task_evaluation
from envfleet.training.evaluating import evaluate_run
from tests.environments.meta import own_tasks
from tests.training.running import run, small

SPARSE = {"env": "envfleet/PointRobotSparse-v0", "env_kwargs": {"num_train_tasks": 3}, "memory": "gru"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("meta") / "run"
    run(folder, **SPARSE)
    return folder


def test_json_on_held_out_tasks(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), "--tasks", "4", "--seed", "1", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["tasks"] == 8 and figures["lengths"] == [120] * 8
    assert len(figures["episode_returns"]) == len(figures["episode_intervals"]) == 2
    assert sum(figures["episode_returns"]) == pytest.approx(figures["trial_return"])
    assert figures["trial_return"] == pytest.approx(figures["mean_reward"])
    assert figures["played"] == "held-out tasks" and 0 <= figures["success_rate"] <= 1
    assert (trained / "report" / "adaptation.png").read_bytes().startswith(b"\x89PNG")


def test_for_people(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = trained / "trial.gif"
    assert cli.main(["evaluate", str(trained), "--tasks", "3", "--video", str(video)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["held-out tasks:", "  return of 3 trials, 120.0 steps each"]
    assert [line.split("  ")[1] for line in lines[3:6]] == ["episode 1", "episode 2", "trial"]
    assert lines[-2:] == [f"plot: {trained / 'report' / 'adaptation.png'}", f"video: {video}"]
    from PIL import Image

    with Image.open(video) as pictures:
        assert pictures.n_frames == 121, "one trial: its start and 120 steps"
        captions = []
        for frame in (0, 30, 90):
            pictures.seek(frame)
            captions.append(np.asarray(pictures.convert("L"))[360:])
    assert all((caption < 128).any() for caption in captions), "episode, step and task are written below"
    assert not any(np.array_equal(one, other) for one, other in itertools.combinations(captions, 2))


def test_a_failing_video_loses_nothing(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Any) -> Any:
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString' (OpenGL)")

    monkeypatch.setattr(PointRobotSparse, "_picture", fails)
    picture = trained / "report" / "adaptation.png"
    for output in ([], ["--json"]):
        picture.unlink(missing_ok=True)
        video = trained / "failed.gif"
        assert cli.main(["evaluate", str(trained), "--tasks", "2", "--video", str(video), *output]) == 2
        said = capsys.readouterr()
        assert json.loads(said.out)["tasks"] == 2 if output else "return of 2 trials" in said.out
        assert picture.exists() and not video.exists()
        assert "error: MuJoCo cannot render on this machine: AttributeError: 'NoneType' object has" in said.err
        assert "hint: set MUJOCO_GL=egl (Debian: apt install" in said.err and "Traceback" not in said.err


def test_a_wrong_name_of_a_video_is_refused_before_tasks_are_played(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task_evaluation, "evaluate_run", lambda *_, **__: pytest.fail("it was played"))
    assert cli.main(["evaluate", str(trained), "--tasks", "2", "--video", "trial.avi"]) == 2
    assert "expected a name that ends in .mp4 or .gif" in capsys.readouterr().err


@pytest.fixture(scope="module")
def others(trained: Path) -> dict[str, Path]:
    """Runs beside it: another seed, one without memory, an oracle."""
    kinds: dict[str, dict[str, Any]] = {
        "seed": {**SPARSE, "seed": 8},
        "markov": {**SPARSE, "memory": "none"},
        "oracle": {**SPARSE, "memory": "none", "env_kwargs": {"oracle": True}},
    }
    for name, settings in kinds.items():
        run(trained.parent / name, **settings)
    return {name: trained.parent / name for name in kinds}


def test_runs_beside_each_other(trained: Path, others: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    beside = ["--beside", str(others["markov"]), str(others["oracle"])]
    assert (
        cli.main(["evaluate", str(trained), str(others["seed"]), "--tasks", "3", "--seed", "4", *beside, "--json"]) == 0
    )
    figures = json.loads(capsys.readouterr().out)
    assert figures["runs"] == [str(trained), str(others["seed"])] and figures["tasks"] == 3
    single = [evaluate_run(path, tasks=3, seeds=(4,)).adaptation for path in (trained, others["seed"])]
    means = [each.trial_return for each in single if each is not None]
    assert figures["trial_return"] == pytest.approx(sum(means) / 2)
    assert figures["trial_interval_of_runs"] == pytest.approx(confidence_interval(means))
    names = [each["name"] for each in figures["beside"]]
    assert names == ["ppo (no memory)", "ppo (no memory, oracle)", "random"]
    assert [len(each["episode_returns"]) for each in figures["beside"]] == [2, 2, 2]
    assert {each["name"] for each in figures["known_returns"]} == {"goal known", "sweep"}
    assert figures["known_returns"][0]["trial_return"] == pytest.approx(103.3, abs=1.5)


def test_the_table(trained: Path, others: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), "--tasks", "2", "--beside", str(others["markov"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  agent"))
    assert lines[place].split("  ")[1:2] == ["agent"] and lines[place].endswith("success")
    starts = [line.strip().split("  ")[0] for line in lines[place + 1 : place + 6]]
    assert starts == ["ppo (memory gru)", "ppo (no memory)", "random", "goal known*", "sweep*"]
    assert lines[place + 6 :][:2] == [
        "  * goal known: walks to the goal at once",
        "  * sweep: follows the half circle; later episodes walk to the goal at once",
    ]


def test_wrong_runs_are_refused(
    trained: Path,
    others: dict[str, Path],
    own: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before any of them has been played."""
    run(tmp_path / "wind", env="envfleet/Wind-v0", steps=384)
    run(tmp_path / "k3", **{**SPARSE, "env_kwargs": {"num_train_tasks": 3, "episodes_per_task": 3}}, steps=384)
    run(tmp_path / "bare", env=own_tasks.make, env_kwargs={"trials": False}, steps=384)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("one_tasks", "two_tasks"):
        (tmp_path / f"{name}.py").write_text("from tests.environments.meta.own_tasks import make\n")
        run(tmp_path / name, env=f"{name}:make", steps=384)
    monkeypatch.setattr(task_evaluation, "evaluate_run", lambda *_, **__: pytest.fail("it was played"))
    tasks, one = ["--tasks", "2", "--trust"], str(tmp_path / "one_tasks")
    for arguments, message in (
        ([str(trained), str(trained)], "received 2 runs, expected one"),
        ([str(trained), "--beside", str(trained)], "--beside was given without --tasks"),
        ([], "received 0 runs, expected one"),
        (
            [str(trained), *tasks, "--beside", str(tmp_path / "wind")],
            "env 'envfleet/Wind-v0', expected 'envfleet/PointRobotSparse-v0'",
        ),
        ([str(trained), str(tmp_path / "k3"), *tasks], "episodes_per_task 3, expected 2"),
        ([str(trained), *tasks, "--beside", str(tmp_path / "k3")], "episodes_per_task 3, expected 2"),
        ([str(trained), str(others["markov"]), *tasks], "memory 'none', expected 'gru'"),
        ([one, *tasks, "--beside", str(tmp_path / "two_tasks")], "env 'two_tasks:make', expected 'one_tasks:make'"),
        ([str(own), *tasks, "--beside", str(tmp_path / "bare")], "episodes_per_task unset, expected 2"),
    ):
        assert cli.main(["evaluate", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_runs_without_trials_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "bare", env=own_tasks.make, env_kwargs={"trials": False}, steps=384)
    assert cli.main(["evaluate", str(tmp_path / "bare"), "--tasks", "2", "--trust"]) == 2
    assert "has no trials, expected info['episode_returns']" in capsys.readouterr().err


# ---- a fixed set of held-out tasks


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed") / "run"
    run(folder, env=own_tasks.make, env_kwargs={"num_eval_tasks": 5}, steps=384)
    return folder


def test_each_task_of_a_fixed_set_is_played_once(fixed: Path) -> None:
    """Drawn with replacement, 5 of 5 tasks would hardly ever be distinct."""
    sets = {}
    for seed, tasks in ((1, 3), (1, 5), (2, 60)):
        own_tasks.BEGUN.clear()
        result = evaluate_run(fixed, env=own_tasks.make, tasks=tasks, seeds=(seed,))
        assert result.adaptation is not None
        sets[tasks] = own_tasks.BEGUN[::2]
        assert [task for task in sets[tasks] for _ in range(2)] == own_tasks.BEGUN, "two episodes of each task"
        assert result.episodes == result.adaptation.tasks == len(set(sets[tasks])) == min(tasks, 5)
    assert sets[5] == sets[60] and sets[3] == sets[5][:3], "in order, whatever the seed"


def test_a_fixed_set_limits_the_tasks(fixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_tasks.BEGUN.clear()
    assert cli.main(["evaluate", str(fixed), "--tasks", "60", "--seed", "1", "2", "--trust", "--json"]) == 0
    said = capsys.readouterr()
    figures = json.loads(said.out)
    assert "notice: 60 tasks were asked for, and the run has 5 held-out ones (num_eval_tasks): each once" in said.err
    assert figures["episodes"] == 10 and figures["tasks"] == 5 and figures["beside"][0]["tasks"] == 5
    means = np.reshape(figures["returns"], (2, 5)).mean(axis=0)  # two seeds play the same five tasks
    assert figures["trial_interval"] == pytest.approx(confidence_interval(means.tolist()))
    assert figures["confidence_interval"] == figures["trial_interval"]
    assert own_tasks.BEGUN[:20] == own_tasks.BEGUN[20:], "random play has the same tasks"
    assert cli.main(["evaluate", str(fixed), "--tasks", "5", "--seed", "1", "2", "--trust"]) == 0
    said = capsys.readouterr()
    assert "return of 10 trials of 5 tasks, " in said.out and "notice" not in said.err


def test_the_held_out_part_of_episodes_plays_each_task_once(tmp_path: Path) -> None:
    run(tmp_path / "run", env="envfleet/Wind-v0", env_kwargs={"num_train_tasks": 2, "num_eval_tasks": 3}, steps=384)
    result = evaluate_run(tmp_path / "run", episodes=8)
    assert result.adaptation is not None and result.episodes == 8 and result.adaptation.tasks == 2
    held_out = result.held_out
    assert held_out is not None and held_out.adaptation is not None
    assert held_out.episodes == held_out.adaptation.tasks == 3


# ---- an environment of your own


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "run"
    own_tasks.BEGUN.clear()
    run(folder, env=own_tasks.make, steps=384)
    (folder / "tasks.json").write_text(json.dumps(sorted(set(own_tasks.BEGUN))))
    return folder


def test_trials_of_your_own_environment_have_held_out_tasks(own: Path) -> None:
    training = json.loads((own / "tasks.json").read_text())
    own_tasks.BEGUN.clear()
    result = evaluate_run(own, env=own_tasks.make, tasks=10, seeds=(1, 2))  # builds the environment again for a seed
    assert result.played == "held-out tasks" and len(training) == 3
    assert len(own_tasks.BEGUN) == 2 * 20 and len(set(own_tasks.BEGUN)) == 20, "two episodes of each task"
    assert set(training).isdisjoint(own_tasks.BEGUN)


def test_few_tasks_of_your_own_environment_are_all_used(own: Path) -> None:
    result = evaluate_run(own, env=own_tasks.make_coin, tasks=2)
    assert result.played == "tasks of training: this environment has no others, so none is held out"


# ---- trials that are cut


def test_cut_trials_are_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(trained), "--tasks", "2", "--max-steps", "50"]) == 2
    errors = capsys.readouterr().err
    assert f"2 of 2 trials of {trained} were cut after 50 steps, expected whole trials" in errors
    assert "use --max-steps 120: a trial has up to 120 steps" in errors


def test_a_single_cut_trial_is_refused(own: Path) -> None:
    """Trials of negative numbers have 6 steps, the others 8."""
    message = r"^1?\d of 20 trials .* cut after 6 steps, expected whole trials\nhint: use a larger --max-steps$"
    with pytest.raises(SettingsError, match=message):
        evaluate_run(own, env=own_tasks.make, tasks=20, max_steps=6)
    assert evaluate_run(own, env=own_tasks.make, tasks=20, max_steps=8).cut == 0


def test_cut_trials_of_random_play_are_refused(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def uncut(path: Path, **how: Any) -> Any:
        return evaluate_run(path, **{**how, "max_steps": None})

    monkeypatch.setattr(task_evaluation, "evaluate_run", uncut)
    assert cli.main(["evaluate", str(trained), "--tasks", "2", "--max-steps", "50"]) == 2
    assert "2 of 2 trials of random play were cut after 50 steps" in capsys.readouterr().err


def test_training_tasks_are_evaluated_too(trained: Path) -> None:
    result = evaluate_run(trained, episodes=2)
    assert result.played == "3 training tasks" and result.held_out is not None
    assert result.held_out.played == "held-out tasks" and result.held_out.adaptation is not None


@pytest.mark.proof
def test_without_held_out_tasks_the_report_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"env": "CheetahDir-v0", "env_kwargs": {"episodes_per_task": 1}, "memory": "gru", "n_envs": 2}
    run(tmp_path / "run", **{**settings, "steps": 64, "sequence_length": 32})
    assert cli.main(["evaluate", str(tmp_path / "run"), "--tasks", "1"]) == 0
    assert "this environment has no others, so none is held out" in capsys.readouterr().out


def test_environments_without_tasks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", steps=384)
    assert cli.main(["evaluate", str(tmp_path / "run"), "--tasks", "3"]) == 2
    assert "tasks were asked for, and CartPole-v1 has none" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path / "run"), "--tasks", "0"]) == 2
    assert "--tasks is 0, expected at least 1" in capsys.readouterr().err


def test_several_runs() -> None:
    """Runs with the means 7 and 11 on the same two tasks."""
    runs = [Adaptation.of(returns) for returns in ([[1.0, 5.0], [3.0, 5.0]], [[5.0, 5.0], [3.0, 9.0]])]
    found = Adaptation.of_runs([run for run in runs if run is not None])
    assert found.episode_returns == (3.0, 6.0) and found.trial_return == 9.0 and found.tasks == 2
    assert found.trials == ((3.0, 5.0), (3.0, 7.0)), "the mean over runs of each task"
    assert found.trial_interval == pytest.approx((9.0 - 12.7062, 9.0 + 12.7062), abs=1e-3)
    assert found.trial_interval_of_runs == pytest.approx((9.0 - 2 * 12.7062, 9.0 + 2 * 12.7062), abs=1e-3)
    assert found.to_json()["episode_intervals_of_runs"][0] == pytest.approx([3 - 12.7062, 3 + 12.7062], abs=1e-3)


def test_the_plot_shows_bars_or_curves(tmp_path: Path) -> None:
    for trials, name in (([[1.0], [2.0]], "bars"), ([[1.0, 5.0], [3.0, 5.0]], "curves")):
        found = Adaptation.of(trials)
        assert found is not None
        plot_adaptation({"agent": found}, {"optimum": found.episode_returns}, tmp_path / f"{name}.png", "a title")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_returns_of_episodes() -> None:
    found = Adaptation.of([[1.0, 5.0], [3.0, 5.0]])
    assert found is not None
    assert found.episode_returns == (2.0, 5.0) and found.trial_return == 7.0 and found.tasks == 2
    low, high = found.episode_intervals[0] or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(2.0) and high - low == pytest.approx(2 * 12.7062)
    assert found.episode_intervals[1] == (5.0, 5.0) and Adaptation.of([]) is None
    one = Adaptation.of([[1.0]])
    assert one is not None and one.trial_interval is None


def test_the_next_command_evaluates_held_out_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "envfleet/Bandit-v0", "--n-envs", "4", "--backend", "sequential", "--eval-every", "0"]
    folder = tmp_path / "run"
    assert cli.main(["train", "ppo", *flags, "--steps", "80", "--output-dir", str(folder)]) == 0
    assert f"\n  envfleet evaluate {folder} --tasks 200\n" in capsys.readouterr().err


# ---- settings on the command line


def test_settings_are_flags(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = ["--env", "envfleet/Bandit-v0", "--arms", "3", "--pulls", "4", "--episodes-per-task", "2", "--oracle"]
    flags += ["--num-train-tasks", "9", "--num-eval-tasks", "8", "--backend", "sequential", "--eval-every", "0"]
    assert cli.main(["train", "ppo", *flags, "--steps", "64", "--n-envs", "4", "--output-dir", str(folder)]) == 0
    config = yaml.safe_load((folder / "config.yaml").read_text())
    tasks = {"episodes_per_task": 2, "oracle": True, "num_train_tasks": 9, "num_eval_tasks": 8}
    assert config["env_kwargs"] == {"arms": 3, "pulls": 4, **tasks}
    assert config["lam"] == 0.3, "the preset of the bandit"


def test_presets_are_for_memory_and_for_their_environment(tmp_path: Path) -> None:
    found = {}
    for name in ("bandit:Bandit", "point_robot:Wind", "locomotion:AntDir"):
        entry_point = f"envfleet.environments.meta.{name}"
        settings = small(tmp_path, memory="gru")
        spaces = Box(-1.0, 1.0, (3,)), Discrete(2)
        preset = settings.family_preset(
            EnvFacts(*spaces, entry_point, frozenset(), declared_presets(entry_point), frames=1, simulators={})
        )
        assert settings.filled(preset.values).problems() == []
        found[name] = preset.name
    assert found == {
        "bandit:Bandit": "bandit",
        "point_robot:Wind": "point robot",
        "locomotion:AntDir": "walking robot with tasks",
    }
    assert TaskSettings().episodes_per_task == 2


@pytest.mark.parametrize(
    ("env", "kwargs", "rollout", "sequence"),
    [
        ("Bandit", {}, 50, 50),
        ("Bandit", {"pulls": 100}, 100, 100),
        ("PointRobotSparse", {}, 120, 120),
        ("PointRobotSparse", {"episodes_per_task": 3}, 180, 180),
        ("Wind", {}, 75, 75),
        ("TabularMDP", {"episodes_per_task": 25}, 250, 125),
    ],
)
def test_rollouts_of_presets_are_whole_trials(env: str, kwargs: dict[str, int], rollout: int, sequence: int) -> None:
    made: Any = gymnasium.make(f"envfleet/{env}-v0", **kwargs)
    values = declared_presets(made.spec.entry_point, made.unwrapped)["ppo"].values
    assert (values["rollout_steps"], values["sequence_length"]) == (rollout, sequence)
    assert values["minibatch_size"] >= sequence and values["minibatch_size"] <= rollout * values["n_envs"]


@pytest.mark.parametrize(("pulls", "gamma"), [(10, 0.99), (50, 0.99), (100, 0.95)])
def test_long_bandits_discount_more(pulls: int, gamma: float) -> None:
    made: Any = gymnasium.make("envfleet/Bandit-v0", pulls=pulls)
    assert declared_presets(made.spec.entry_point, made.unwrapped)["ppo"].values["gamma"] == gamma


@pytest.mark.parametrize(("pulls", "rollout", "sequence"), [(202, 202, 101), (211, 212, 106), (5003, 5018, 193)])
def test_sequences_are_long_even_if_trials_have_no_divisors(pulls: int, rollout: int, sequence: int) -> None:
    made: Any = gymnasium.make("envfleet/Bandit-v0", pulls=pulls)
    values = declared_presets(made.spec.entry_point, made.unwrapped)["ppo"].values
    assert (values["rollout_steps"], values["sequence_length"]) == (rollout, sequence)
    assert rollout % sequence == 0 and values["minibatch_size"] >= sequence


def test_a_run_takes_the_preset_for_its_trials(tmp_path: Path) -> None:
    flags = ["--env", "envfleet/Bandit-v0", "--pulls", "20", "--memory", "gru", "--n-envs", "4", "--eval-every", "0"]
    folder = tmp_path / "run"
    assert (
        cli.main(["train", "ppo", *flags, "--steps", "80", "--backend", "sequential", "--output-dir", str(folder)]) == 0
    )
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["rollout_steps"], config["sequence_length"]) == (40, 40), "two trials"
