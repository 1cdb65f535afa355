"""Targets of the PPO benchmark, with the measured values and whether each is reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.ppo.rounds import fastest, ratio, speeds
from benchmarks.wanted import Target, at_least, at_most, below

TableRows = Mapping[str, Any]

PEERS, ARITHMETIC = ("sb3", "plain"), "arithmetic"
SHARE_OF_SECONDS = 0.333
IDLE = 0.15  # largest allowed share of the time without work for the training
OUR_SCHEDULES = ("sync", "overlap")
RANDOM_ROLLOUTS = ("rollouts", "rollouts-async")


def check_targets(results: Mapping[str, Any]) -> list[Target]:
    """Return every target that these results cover."""
    targets: list[Target] = []
    tables: Mapping[str, Any] = results.get("tables", {})
    for name, table in tables.items():
        targets += _table_targets(name, table["rows"])
    for name, row in (("halfcheetah", "sync"), ("images", "sync"), ("recurrent", "gru")):
        if name in tables:
            time = tables[name]["rows"][row].get("time")
            idle = None if time is None else time["waiting"] + time["rest"]
            targets.append(below(f"{name}, `{row}`: share of the time that is waiting or rest", idle, IDLE))
    if "goal" in results:
        targets.append(_goal_target(results["goal"]["rows"]))
    if "beginning" in results:
        targets += _beginning_targets(results["beginning"])
    if "upkeep" in results:
        targets += _upkeep_targets(results["upkeep"])
    return targets


def times_peer(rows: TableRows, name: str) -> dict[str, float] | None:
    """Return how many times as fast a row is as the fastest other library."""
    peer = fastest(rows, PEERS)
    return None if peer is None else ratio(rows, name, peer)


def share_of_limit(rows: TableRows, name: str) -> dict[str, float] | None:
    """Return a row's speed divided by that of the fastest arithmetic-only row."""
    limit = fastest(rows, ARITHMETIC)
    return None if limit is None else ratio(rows, name, limit)


def bound(rows: TableRows, name: str, limit: str, who: str, besides: str) -> str:
    """Explain a missed share of the limit by the share of a row that does a part of the work, if it was measured."""
    found = ratio(rows, name, limit)
    return besides if found is None else f"{who} reach {found['median']:.2f}; {besides}"


def _without_environments(rows: TableRows, name: str, share: Mapping[str, float] | None) -> str:
    """Explain a missed share of arithmetic alone: it has no environments to step."""
    if share is None or "time" not in rows[name]:
        return ""
    taken = rows[name]["time"]["environment"]
    return (
        f"{taken:.0%} of the time goes to the environments, which arithmetic alone does not step; "
        f"without them the share is {share['median'] / (1 - taken):.2f}"
    )


def _price_of_memory(rows: TableRows) -> str:
    """Explain the speed with a GRU: compare the seconds per step of learning and acting with those without memory."""
    gru, plain = rows["gru"], rows["feed-forward"]
    if "time" not in gru or "time" not in plain:
        return ""
    speed = gru["steps_per_second"]["median"] / plain["steps_per_second"]["median"]
    learning, acting = (gru["time"][name] / plain["time"][name] / speed for name in ("learning", "acting"))
    return (
        f"learning takes {learning:.1f} and acting {acting:.1f} times as long as without memory: "
        "the GRU has most of the weights, and goes through its sequences step by step"
    )


def share_of_speedup(rows: TableRows) -> dict[str, float] | None:
    """Return the speed-up of several workers over one, divided by that of independent processes."""
    by_round = [speeds(rows.get(name, {})) for name in ("workers", "worker", "processes", "process")]
    common = sorted(set.intersection(*(set(each) for each in by_round)))
    if not common:
        return None
    workers, worker, processes, process = by_round
    return quartiles((workers[i] / worker[i]) / (processes[i] / process[i]) for i in common)


def best_of_ours(rows: TableRows, names: Sequence[str] = OUR_SCHEDULES) -> str:
    """Return the faster of our schedules."""
    return max(names, key=lambda name: rows.get(name, {}).get("steps_per_second", {"median": 0.0})["median"])


def _table_targets(name: str, rows: TableRows) -> Iterator[Target]:
    peer = "speed relative to the fastest other"
    if name in {"cartpole-8", "cartpole-64"}:
        wanted = {"cartpole-8": (3.0, 4.0), "cartpole-64": (1.8, 2.3)}[name]
        for schedule, times in zip(OUR_SCHEDULES, wanted, strict=True):
            yield at_least(f"{name}, `{schedule}`: {peer}", times_peer(rows, schedule), times)
    elif name == "halfcheetah":
        ours = best_of_ours(rows)
        yield at_least(f"{name}, `{ours}`: {peer}", times_peer(rows, ours), 2.3)
    elif name in {"images", "impala", "coinrun"}:
        ours = best_of_ours(rows)
        if name != "coinrun":
            share = share_of_limit(rows, ours)
            why = _without_environments(rows, ours, share)
            yield at_least(f"{name}, `{ours}`: share of arithmetic alone", share, 0.85, why)
        if name != "impala":
            yield at_least(f"{name}, `{ours}`: {peer}", times_peer(rows, ours), 1.3)
    elif name == "collecting-coinrun":
        yield at_least(
            f"{name}, `step`: share of independent processes",
            ratio(rows, "step", "limit"),
            0.75,
            bound(
                rows, "lockstep", "limit", "processes that wait for each other", "the caller also fetches every picture"
            ),
        )
        ours = best_of_ours(rows, RANDOM_ROLLOUTS)
        yield at_least(
            f"{name}, {ours}: share of independent processes",
            ratio(rows, ours, "limit"),
            0.9,
            bound(
                rows,
                "storing",
                "limit",
                "processes that store each picture once",
                "a rollout also shows it to a policy",
            ),
        )
    elif name == "recurrent":
        share = ratio(rows, "gru", "feed-forward")
        yield at_least(f"{name}, GRU: share of the speed without memory", share, 0.25, _price_of_memory(rows))
        yield at_least(f"{name}, GRU: speed relative to the faster sb3-contrib", times_peer(rows, "gru"), 2.0)
    elif name == "balanced":
        yield at_least(f"{name}: `overlap` relative to `sync`", ratio(rows, "overlap", "sync"), 1.2)
    elif name.startswith("scaling"):
        wanted = 0.95 if name in {"scaling-coinrun", "scaling-gameboy"} else 0.9
        besides = "the workers also wait for the caller between two rollouts"
        why = bound(rows, "waiting", "processes", "processes that wait for each other after every rollout", besides)
        yield at_least(f"{name}: share of independent processes' speed-up", share_of_speedup(rows), wanted, why)


def time_to_goal(rows: TableRows) -> tuple[str, str, float] | None:
    """Return our fastest row, the other library's, and the ratio of seconds; None if one was not measured."""
    seconds = {name: row["seconds"]["median"] for name, row in rows.items() if "absent" not in row}
    ours = [name for name in seconds if name in OUR_SCHEDULES]
    theirs = [name for name in seconds if name.startswith(PEERS)]
    if not ours or not theirs:
        return None
    best, peer = min(ours, key=seconds.__getitem__), min(theirs, key=seconds.__getitem__)
    by_seed = [{run["seed"]: run["seconds"] for run in rows[name]["runs"]} for name in (best, peer)]
    return best, peer, median(by_seed[0][seed] / by_seed[1][seed] for seed in by_seed[0].keys() & by_seed[1].keys())


def _goal_target(rows: TableRows) -> Target:
    found = time_to_goal(rows)
    name = "to 475: our seconds divided by those of the faster Stable-Baselines3"
    if found is None:
        return at_most(name, None, SHARE_OF_SECONDS)
    ours, peer, share = found
    reached = at_most(f"{name} (`{ours}`, {peer})", share, SHARE_OF_SECONDS)
    reached["reached"] &= rows[ours]["reached"] == len(rows[ours]["runs"])
    return reached


def _beginning_targets(beginning: Mapping[str, Any]) -> Iterator[Target]:
    memory = beginning["worker_memory_mb"]
    yield below("seconds from the command to the first environment step", beginning["seconds"]["median"], 4.0)
    if "help_seconds" in beginning:
        yield below("seconds for `envfleet --help`", beginning["help_seconds"]["median"], 0.5)
    yield below("MB of private memory of a worker that acts", memory["worker"], 180.0)
    yield below("MB of private memory of a worker that only steps", memory["central"], 30.0)


def _upkeep_targets(upkeep: Mapping[str, Any]) -> Iterator[Target]:
    shares = [f"{100 * upkeep.get(name, 0.0):.1f} % goes to {name}" for name in ("reporting", "sampling")]
    why = f"{', '.join(shares)}; counting episodes and time shares take the rest"
    yield at_least("speed of `train` relative to the bare loop", upkeep.get("speed_over_bare"), 0.98, why)
    yield below("share of the time in console, metrics and TensorBoard", upkeep.get("reporting"), 0.02)
    if "sampling" in upkeep:
        yield below("share of the time for sampling CPU and memory", upkeep["sampling"], 0.005)
    seconds = upkeep.get("checkpoint_seconds")
    minute = None if seconds is None else seconds / 60.0
    yield below("share of the time for a checkpoint every minute", minute, 0.01)
