"""Arguments that `make` accepts, and its messages for those that it refuses."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st

import envfleet
from envfleet import machine
from envfleet.fleet import hosting
from envfleet.fleet import make as make_module
from envfleet.fleet.makers import makers_of
from envfleet.fleet.spec import default_group_count, split_evenly
from envfleet.fleet.wrapping import WrappedEnv
from tests.fleet.simulators import Counter


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_lambdas_closures_and_local_classes(method: str) -> None:
    length = 3

    class Local(Counter):
        def step(self, action: Any) -> Any:
            return super().step(action + length)

    fleet = envfleet.make(
        [lambda: Local(length=length), Local, lambda: gymnasium.wrappers.TimeLimit(Local(), 5)],
        backend="processes",
        workers=2,
        start_method=method,
    )
    fleet.reset()
    assert fleet.step(np.ones(3, np.int64))[1].tolist() == [4.0] * 3
    fleet.close()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("procgen/coinrun", ("envfleet.environments.procgen.before_fork",)),
        (WrappedEnv("procgen/maze", (RecordEpisodeStatistics,)), ("envfleet.environments.procgen.before_fork",)),
        ("CartPole-v1", ()),
        (Counter, ()),
        (functools.partial(Counter, length=2), ()),
        ([Counter, Counter], ()),
    ],
    ids=["ours", "ours, wrapped", "Gymnasium's", "class", "function", "list"],
)
def test_only_our_environments_load_something_before_workers_are_forked(env: Any, expected: tuple[str, ...]) -> None:
    assert makers_of(env, 2).preloads == expected


def test_one_function_with_arguments_for_each() -> None:
    fleet = envfleet.make(Counter, env_kwargs=[{"length": n} for n in (1, 2, 3)], backend="threads")
    assert fleet.get_attr("length") == (1, 2, 3)
    fleet.close()
    fleet = envfleet.make("CartPole-v1", 2, env_kwargs={"sutton_barto_reward": True}, backend="sequential")
    fleet.reset()
    assert fleet.step(np.zeros(2, np.int64))[1].tolist() == [0.0, 0.0]
    fleet.close()


REGISTERS = """
import sys
sys.path.insert(0, {root!r})
import gymnasium, numpy as np, envfleet
from tests.fleet.simulators import Counter

class Mine(Counter):
    pass

gymnasium.register("MineByClass-v0", entry_point=Mine)
gymnasium.register("MineByName-v0", entry_point="__main__:Mine")
gymnasium.register("MineByModule-v0", entry_point="tests.fleet.simulators:Counter")

makers = [lambda name=name: gymnasium.make(name) for name in ("MineByClass-v0", "MineByName-v0", "MineByModule-v0")]
for env in ("MineByName-v0", makers):
    fleet = envfleet.make(env, 1 if env is not makers else None, backend="processes", start_method={method!r})
    fleet.reset()
    print(fleet.step(np.ones(fleet.num_envs, np.int64))[1].tolist())
    fleet.close()
print("once")
"""


@pytest.mark.parametrize(
    ("method", "stdin"), [("spawn", False), ("fork", False), ("forkserver", False), ("spawn", True)]
)
def test_scripts_need_no_guard_and_register_for_workers(method: str, stdin: bool, tmp_path: Path) -> None:
    """A script that starts processes without a guard for `__main__` runs once, from a file and from stdin."""
    script = tmp_path / "script.py"
    script.write_text(REGISTERS.format(root=str(Path(__file__).parents[2]), method=method))
    with script.open() as file:
        done = subprocess.run(
            [sys.executable, "-" if stdin else str(script)],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.splitlines() == ["[1.0]", "[1.0, 1.0, 1.0]", "once"], done.stderr


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("CartPole-v1",), {}, "n_envs is missing"),
        (("CartPole-v1", 0), {}, "n_envs is 0"),
        (("CartPole-v1", 2.5), {}, "n_envs is 2.5"),
        (("CartPol-v1", 2), {}, "did you mean CartPole-v1"),
        (("nothing_there:Env-v0", 2), {}, "nothing_there"),
        ((Counter(), 2), {}, "expected a Gymnasium id, a function"),
        (([Counter, 3],), {}, "expected functions"),
        (([Counter, Counter], 3), {}, "not clear"),
        ((Counter, 2), {"backend": "thread"}, "did you mean 'threads'"),
        ((Counter, 2), {"start_method": "spoon"}, "did you mean 'spawn'"),
        ((Counter, 2), {"autoreset": "samestep"}, "did you mean 'same_step'"),
        ((Counter, 2), {"on_error": "ignore"}, "expected one of raise, restart"),
        ((Counter, 2), {"workers": 0}, "workers is 0"),
        ((Counter, 2), {"group_size": -1}, "group_size is -1"),
        ((Counter, 2), {"recycle_every": 0}, "recycle_every is 0"),
        ((Counter, 2), {"timeout": -1.0}, "timeout.step is -1.0"),
        ((Counter, 2), {"restarts": -1}, "restarts.limit is -1"),
        ((Counter, 2), {"tasks": [1]}, "1 entries"),
        ((Counter, 2), {"trusted": True, "backend": "threads"}, "trusted=True"),
        (([Counter, lambda: gymnasium.make("CartPole-v1")],), {}, "different observation spaces"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(arguments: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(envfleet.SettingsError, match=message):
        envfleet.make(*arguments, **{"backend": "sequential", **settings})


def test_unpicklable_environment_names_the_way_out() -> None:
    lock = threading.Lock()

    def build() -> Any:
        with lock:
            return Counter()

    with pytest.raises(envfleet.SettingsError, match=r"cannot be sent to a worker process.*\n?.*start_method='fork'"):
        envfleet.make(build, 2, backend="processes", start_method="spawn")
    fleet = envfleet.make(build, 2, backend="processes", start_method="fork")  # the way out works
    fleet.reset()
    fleet.close()


def test_import_that_is_missing_in_a_worker() -> None:
    def build() -> Any:
        import there_is_no_such_module  # type: ignore[import-not-found]

        return there_is_no_such_module.Env()

    with pytest.raises(envfleet.EnvError, match="there_is_no_such_module"):
        envfleet.make(build, 2, backend="processes")
    module = type(sys)("only_here")
    exec("from tests.fleet.simulators import Counter\nclass Env(Counter): pass", module.__dict__)
    module.Env.__module__ = "only_here"  # type: ignore[attr-defined]
    sys.modules["only_here"] = module
    try:
        with pytest.raises(envfleet.WorkerError, match=r"could not load the environment.*only_here"):
            envfleet.make(module.Env, 2, backend="processes")  # type: ignore[attr-defined]
    finally:
        del sys.modules["only_here"]


def test_too_few_files_and_too_little_memory_are_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "open_file_limit", lambda: machine.open_files() + 10)
    with pytest.raises(envfleet.ResourceError, match=r"(?s)2 workers need 24 open files.*ulimit -n"):
        envfleet.make(Counter, 8, workers=2, backend="processes")
    monkeypatch.undo()
    monkeypatch.setattr(make_module, "available_memory", lambda: 100_000)
    with pytest.raises(envfleet.ResourceError, match="use fewer environments"):
        envfleet.make(Counter, 2000, backend="sequential")


@given(st.integers(1, 5000))
def test_groups_are_a_fixed_function_of_the_number(n_envs: int) -> None:
    sizes = [len(part) for part in split_evenly(range(n_envs), default_group_count(n_envs))]
    assert sum(sizes) == n_envs
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 32
    assert min(sizes) >= min(4, n_envs)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_names_that_one_recognises_in_htop(method: str) -> None:
    import psutil

    fleet = envfleet.make(Counter, 8, workers=2, backend="processes", start_method=method)
    processes = [psutil.Process(worker.pid) for worker in fleet.statistics().workers]
    assert [process.name() for process in processes] == ["envfleet-0", "envfleet-1"]
    if method == "spawn":
        assert "envfleet-0" in processes[0].cmdline()
    fleet.close()


def test_seed_spellings_of_backends() -> None:
    for spelling, backend in (("threading", "threads"), ("multiprocessing", "processes"), ("sync", "sequential")):
        fleet = envfleet.make(Counter, 2, backend=spelling)
        assert fleet.backend == backend
        fleet.close()


def test_module_and_id() -> None:
    """`module:id` imports the module, which registers the environment, as in Gymnasium."""
    fleet = envfleet.make("ale_py:ALE/Breakout-v5", 1, backend="sequential")
    assert fleet.single_observation_space.shape == (210, 160, 3)
    fleet.close()
