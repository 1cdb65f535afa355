"""Tables of the PPO benchmark: the rows of each workload and the facts shown with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.balance import balance
from benchmarks.ppo.environments import SCALING_ITERATIONS
from benchmarks.ppo.random_session import STEPS
from benchmarks.ppo.rounds import Procedure, measure_rows
from benchmarks.ppo.rows import (
    Row,
    arithmetic_rows,
    independent_collectors,
    independent_loops,
    lockstep_loops,
    our_row,
    plain_loop_rows,
    random_rollouts,
    stable_baselines3_rows,
    stepping_row,
)
from benchmarks.ppo.workloads import COINRUN, COINRUN_ENV, COMPUTED_ENV, SIZES, Sizes

SCALING_ENVS, SCALING_GROUP = 32, 8

Table = dict[str, Any]


def _schedules(sizes: Sizes, **more: Any) -> list[Row]:
    return [
        our_row("sync", "Envfleet, `sync`", sizes.ours(schedule="sync", **more)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(schedule="overlap", **more)),
    ]


def _others(sizes: Sizes) -> list[Row]:
    return [*stable_baselines3_rows(sizes), *plain_loop_rows(sizes)]


def _table(name: str, title: str, rows: list[Row], procedure: Procedure, **facts: Any) -> Table:
    sizes = facts.pop("sizes", None) or SIZES[name]
    return {"title": title, "sizes": sizes.as_json(), **facts, "rows": measure_rows(name, rows, procedure)}


def _training(name: str, title: str) -> Callable[[Procedure], Table]:
    """A table of our schedules beside other libraries."""
    sizes = SIZES[name]
    return lambda procedure: _table(name, title, [*_schedules(sizes), *_others(sizes)], procedure)


def images(procedure: Procedure) -> Table:
    sizes = SIZES["images"]
    rows = [*_schedules(sizes), *_others(sizes), *arithmetic_rows("images", procedure.cores)]
    return _table("images", "Images of 64×64×3", rows, procedure)


def impala(procedure: Procedure) -> Table:
    sizes = SIZES["impala"]
    rows = [*_schedules(sizes), *arithmetic_rows("impala", procedure.cores)]
    return _table("impala", "Images of 64×64×3, IMPALA network", rows, procedure)


def collecting_coinrun(procedure: Procedure) -> Table:
    """CoinRun with random actions: with `step`, in rollouts, and in independent processes."""
    sizes, cores = SIZES["collecting-coinrun"], procedure.cores
    rows = [
        stepping_row("step", "Envfleet, `step`", "coinrun", sizes.n_envs),
        random_rollouts("rollouts", "Envfleet, rollouts of random actions in the workers", "coinrun", sizes.n_envs),
        random_rollouts("rollouts-async", "Envfleet, the same with `async`", "coinrun", sizes.n_envs, "async"),
        independent_loops("limit", f"{cores} independent processes, plain loops", "coinrun", sizes.n_envs, cores),
        lockstep_loops("lockstep", "the same, waiting for each other after every step", "coinrun", sizes.n_envs, cores),
        independent_loops(
            "storing", "independent, storing their pictures as a rollout does", "coinrun", sizes.n_envs, cores, STEPS
        ),
        independent_loops("loop", "1 process, plain loop", "coinrun", sizes.n_envs, 1),
    ]
    return _table("collecting-coinrun", "CoinRun with random actions, 64 environments", rows, procedure)


def recurrent(procedure: Procedure) -> Table:
    sizes = SIZES["recurrent"]
    rows = [
        our_row("gru", "Envfleet, GRU 128, `sync`", sizes.ours(memory="gru")),
        our_row("lstm", "Envfleet, LSTM 128, `sync`", sizes.ours(memory="lstm")),
        our_row("feed-forward", "Envfleet, without memory, `sync`", sizes.ours()),
        *stable_baselines3_rows(sizes, recurrent=True),
    ]
    return _table("recurrent", "Recurrent policies", rows, procedure)


def balanced(procedure: Procedure) -> Table:
    iterations, share = balance(
        "benchmarks.ppo.training_session",
        lambda iterations: _balanced(iterations).ours(schedule="sync", learner_threads=1),
        procedure,
    )
    sizes = _balanced(iterations)
    facts = {"sizes": sizes, "iterations": iterations, "collecting_over_learning": share}
    rows = _schedules(sizes, learner_threads=1)
    return _table("balanced", "Collecting takes as long as learning", rows, procedure, **facts)


def _balanced(iterations: int) -> Sizes:
    return replace(SIZES["balanced"], env_kwargs={"iterations": iterations})


def _scaling(name: str, title: str, env: str, procedure: Procedure, network: str = "auto", **kwargs: Any) -> Table:
    """Compare all cores with one, for workers and for independent processes; nothing is learned."""
    sizes = Sizes(env, SCALING_ENVS, 128, 1024, 1, kwargs, network)
    part = replace(sizes, n_envs=SCALING_ENVS // procedure.cores)
    groups: dict[str, Any] = {"group_size": SCALING_GROUP}
    cores, alone = procedure.cores, {"backend": "sequential", **groups}
    rows = [
        our_row("workers", f"Envfleet, {cores} workers", sizes.ours(workers=cores, **groups), collect_only=True),
        our_row("worker", "Envfleet, 1 worker", sizes.ours(workers=1, **groups), collect_only=True),
        independent_collectors("processes", f"{cores} independent processes", part.ours(**alone), cores),
        independent_collectors(
            "waiting", "the same, waiting for each other after every rollout", part.ours(**alone), cores, in_step=True
        ),
        independent_collectors("process", "1 process", sizes.ours(**alone), 1),
    ]
    return _table(name, title, rows, procedure, sizes=sizes)


def scaling_computed(procedure: Procedure) -> Table:
    title = "Two workers against one: 100 µs per step"
    return _scaling("scaling-computed", title, COMPUTED_ENV, procedure, iterations=SCALING_ITERATIONS)


def scaling_cartpole(procedure: Procedure) -> Table:
    return _scaling("scaling-cartpole", "Two workers against one: CartPole-v1", "CartPole-v1", procedure)


def scaling_coinrun(procedure: Procedure) -> Table:
    title = "Two workers against one: CoinRun, Nature CNN"
    return _scaling("scaling-coinrun", title, COINRUN_ENV, procedure, "nature", **COINRUN)


def scaling_gameboy(procedure: Procedure) -> Table:
    return _scaling("scaling-gameboy", "Two workers against one: Game Boy", "envfleet/GameBoy-v0", procedure)


TABLES: dict[str, Callable[[Procedure], Table]] = {
    "cartpole-8": _training("cartpole-8", "CartPole-v1, 8 environments"),
    "cartpole-64": _training("cartpole-64", "CartPole-v1, 64 environments"),
    "halfcheetah": _training("halfcheetah", "HalfCheetah-v5"),
    "images": images,
    "impala": impala,
    "coinrun": _training("coinrun", "CoinRun, 32 environments"),
    "collecting-coinrun": collecting_coinrun,
    "recurrent": recurrent,
    "balanced": balanced,
    "scaling-computed": scaling_computed,
    "scaling-cartpole": scaling_cartpole,
    "scaling-coinrun": scaling_coinrun,
    "scaling-gameboy": scaling_gameboy,
}
