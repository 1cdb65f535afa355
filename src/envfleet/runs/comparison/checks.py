"""A sceptic's questions about a comparison, answered from the records of the runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import Any, Literal

from envfleet.runs.comparison.comparison import RunComparison
from envfleet.runs.comparison.run_metrics import RunMetrics
from envfleet.runs.grouping import CHANGES_NO_RESULT, differing_settings
from envfleet.runs.live_view import BUSY_PERCENT

__all__ = ["Check", "checks_of"]

_BUDGETS = ("steps", "num_episodes", "duration")
_MOST_NAMED = 8  # most names in a sentence
_OVERLAP = 0.05  # of the shorter run's time


@dataclass(frozen=True)
class Check:
    """A question, its answer, and the facts behind it."""

    question: str
    answer: Literal["yes", "no", "unknown"]
    facts: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def checks_of(comparison: RunComparison) -> list[Check]:
    """Answer every question, in the order in which a reader asks them."""
    runs = comparison.runs
    return [
        _same_environment(runs),
        _same_versions(runs),
        _same_code(runs),
        _same_machine(runs),
        _machine_was_free(runs),
        _one_difference(comparison),
        _same_steps(runs),
        _same_updates(runs),
        _same_weights(comparison),
        _all_finished(runs),
        _enough_seeds(comparison),
    ]


def _same_environment(runs: Sequence[RunMetrics]) -> Check:
    question = "Is it the same environment?"
    ids = _distinct(run.env for run in runs)
    if len(ids) > 1:
        return Check(question, "no", f"there are {_listed(ids)}")
    differing = differing_settings([run.settings for run in runs])
    own = [name for name in differing if name.startswith("env_kwargs.") or name == "wrappers"]
    if own:
        return Check(question, "no", f"all are {ids[0]}, but with another {_listed(own)}")
    return Check(question, "yes", f"{ids[0]}, with the same arguments and wrappers")


def _same_versions(runs: Sequence[RunMetrics]) -> Check:
    question = "Are the libraries of the same versions?"
    versions = [{"Python": _machine(run).get("python"), **_libraries(run)} for run in runs]
    differing = _differing(versions)
    if differing:
        return Check(question, "no", _each(differing))
    known = [f"{name} {version}" for name, version in versions[0].items() if version]
    if not known:
        return Check(question, "unknown", "the runs did not record them")
    return Check(question, "yes", ", ".join(known))


def _same_code(runs: Sequence[RunMetrics]) -> Check:
    question = "Is it the same code?"
    versions = _distinct(str(run.manifest.get("envfleet")) for run in runs)
    if len(versions) > 1:
        return Check(question, "no", f"envfleet {_listed(versions)}")
    digests = [run.manifest.get("code") for run in runs]
    known = _distinct(str(digest)[:12] for digest in digests if digest)
    if len(known) > 1:
        return Check(question, "no", f"envfleet {versions[0]}, but its files differ: digests {_listed(known)}")
    without = [run.name for run, digest in zip(runs, digests, strict=True) if not digest]
    if without:
        facts = f"envfleet {versions[0]} in all, but no digest of its files is recorded for {_listed(without)}"
        return Check(question, "unknown", facts)
    same_folder, facts = _own_code(runs)
    answer: Literal["yes", "unknown"] = "yes" if same_folder else "unknown"
    return Check(question, answer, f"envfleet {versions[0]} with the same files (digest {known[0]}); {facts}")


def _own_code(runs: Sequence[RunMetrics]) -> tuple[bool, str]:
    """Whether nothing suggests different code of the user in the folders that the runs were started in."""
    git = [_mapping(run.manifest.get("git")) for run in runs]
    commits = _distinct(str(each["commit"])[:12] if each.get("commit") else "no commit" for each in git)
    if len(commits) > 1:
        return False, f"your own code may differ, since they were started in folders at {_listed(commits)}"
    changed = [run.name for run, each in zip(runs, git, strict=True) if each.get("changed")]
    if changed:
        where = f"{_listed(changed)} began with files that differed from the commit {commits[0]} of the folder"
        return False, f"your own code may differ, since {where}"
    if commits == ["no commit"]:
        return True, "no commit of your own code is recorded, since they were started outside a git repository"
    return True, f"all were started in a folder at the commit {commits[0]}, with no file changed"


def _same_machine(runs: Sequence[RunMetrics]) -> Check:
    question = "Is it the same machine?"
    names = ("cpu", "cores", "memory_bytes", "platform", "kernel")
    machines = [{name: _machine(run).get(name) for name in names} for run in runs]
    differing = _differing(machines)
    if differing:
        return Check(question, "no", _each(differing))
    first = machines[0]
    if not first["cpu"]:
        return Check(question, "unknown", "the runs did not record it")
    memory = f", {first['memory_bytes'] / 2**30:.0f} GiB" if isinstance(first["memory_bytes"], int) else ""
    return Check(question, "yes", f"{first['cpu']}, {first['cores']} cores{memory}, {first['platform']}")


def _machine_was_free(runs: Sequence[RunMetrics]) -> Check:
    question = "Did each run have the machine to itself?"
    together = [(first.name, second.name) for first, second in combinations(runs, 2) if _overlap(first, second)]
    if together:
        pairs = [f"{first} and {second}" for first, second in together]
        return Check(question, "no", f"{_listed(pairs)} ran at the same time")
    loads = {run.name: run.cpu_percent("others") for run in runs}
    busy = [f"{name} ({load:.0f} %)" for name, load in loads.items() if load is not None and load > BUSY_PERCENT]
    if busy:
        return Check(question, "no", f"other work took a part of a core beside {_listed(busy)}")
    if any(load is None for load in loads.values()):
        return Check(question, "unknown", "no two ran at the same time; the load of other work is not recorded for all")
    most = max(load for load in loads.values() if load is not None)
    return Check(question, "yes", f"no two ran at the same time; other work took at most {most:.0f} % of a core")


def _overlap(first: RunMetrics, second: RunMetrics) -> bool:
    if _machine(first) != _machine(second):
        return False
    pairs = product(first.intervals, second.intervals)
    shared = sum(max(0.0, min(end, other_end) - max(begin, other)) for (begin, end), (other, other_end) in pairs)
    shortest = min(sum(end - begin for begin, end in run.intervals) for run in (first, second))
    return shared > _OVERLAP * shortest


def _one_difference(comparison: RunComparison) -> Check:
    question = "Do the groups differ in one thing only?"
    differences = comparison.differences
    if len(comparison.groups) == 1:
        return Check(question, "yes", "there is one group")
    shown = [f"{name} ({', '.join(_shown(value) for value in values)})" for name, values in differences.items()]
    # The number of workers depends on the backend.
    things = set(differences) - ({"workers"} if "backend" in differences else set())
    if not things:
        return Check(question, "yes", "they differ in no setting" if not shown else _listed(shown))
    return Check(question, "yes" if len(things) == 1 else "no", _listed(shown))


def _same_steps(runs: Sequence[RunMetrics]) -> Check:
    question = "Did they train for the same number of steps?"
    budgets = differing_settings([{name: run.settings.get(name) for name in _BUDGETS} for run in runs])
    steps = [run.steps for run in runs]
    facts = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,} steps"
    if budgets:
        facts += f"; the budgets differ ({', '.join(budgets)})"
    elif min(steps) != max(steps) and runs[0].settings.get("duration"):
        facts += "; they are timed, so the faster ones come further"
    if min(steps) == max(steps):
        return Check(question, "yes", facts if budgets else f"{facts} steps")
    return Check(question, "no", f"{facts}; the returns at equal steps and at equal time are in the table")


def _same_updates(runs: Sequence[RunMetrics]) -> Check:
    question = "Did they make the same number of updates?"
    updates = [run.updates for run in runs]
    known = [each for each in updates if each is not None]
    if len(known) < len(updates):
        return Check(question, "unknown", "not all runs recorded them")
    if min(known) == max(known):
        return Check(question, "yes", f"{known[0]:,} gradient steps each")
    rates = _distinct(round(1000 * run.updates / run.steps, 3) for run in runs if run.updates is not None)
    same_rate = f"{rates[0]:g} for every 1,000 environment steps in all runs"
    rate = same_rate if len(rates) == 1 else f"{min(rates):g} to {max(rates):g} for every 1,000 environment steps"
    return Check(question, "no", f"{min(known):,} to {max(known):,} gradient steps; {rate}")


def _same_weights(comparison: RunComparison) -> Check:
    question = "Are the weights of runs of the same seed bit-identical?"
    same: list[str] = []
    other: list[str] = []
    for seed, pair in _pairs(comparison):
        shared = set.intersection(*(set(run.weights()) for run in pair))
        if not shared:
            continue
        step = max(shared)
        digests = {hashlib.sha256(run.weights()[step].read_bytes()).hexdigest() for run in pair}
        (same if len(digests) == 1 else other).append(f"seed {seed} at step {step:,}")
    if other:
        facts = f"not for {_listed(other)}" + (f"; for {_listed(same)} they are" if same else "")
        return Check(question, "no", f"{facts}; {_why_other_weights(comparison)}")
    if same:
        return Check(question, "yes", _listed(same))
    return Check(question, "unknown", "no two groups have a checkpoint of the same seed and step")


def _pairs(comparison: RunComparison) -> Iterable[tuple[Any, list[RunMetrics]]]:
    """Runs of the same seed in more than one group, by environment."""
    for env in comparison.envs:
        by_seed: dict[Any, list[RunMetrics]] = {}
        for group in comparison.groups:
            for seed in group.seeds if group.env == env else []:
                by_seed.setdefault(seed, []).append(next(run for run in group.runs if run.seed == seed))
        yield from ((seed, runs) for seed, runs in by_seed.items() if len(runs) > 1)


def _why_other_weights(comparison: RunComparison) -> str:
    shaping = [name for name in comparison.differences if name not in CHANGES_NO_RESULT]
    if shaping:
        return f"{_listed(shaping)} shape what is learned"
    settings = comparison.runs[0].settings
    if settings.get("duration") and not settings.get("steps") and not settings.get("num_episodes"):
        return "rates that follow the clock of a timed run differ from run to run"
    return "the settings that differ should not change what is learned, so look at the versions and the machine"


def _all_finished(runs: Sequence[RunMetrics]) -> Check:
    question = "Are all runs finished, with the settings they began with?"
    open_ones = [f"{run.name} ({run.summary.state})" for run in runs if run.summary.state != "finished"]
    if open_ones:
        return Check(question, "no", _listed(open_ones))
    changed = [f"{run.name}: {_listed(names)}" for run in runs if (names := _changed_on_resume(run))]
    if changed:
        return Check(question, "no", f"resumed with other settings: {'; '.join(changed)}")
    return Check(question, "yes", f"{len(runs)} of {len(runs)}")


def _changed_on_resume(run: RunMetrics) -> list[str]:
    began = run.manifest.get("settings")
    return list(differing_settings([began, run.settings])) if isinstance(began, dict) else []


def _enough_seeds(comparison: RunComparison) -> Check:
    question = "Are there enough seeds?"
    counts = {group.label: len(group.seeds) for group in comparison.groups}
    single = [label for label, count in counts.items() if count == 1]
    repeated = [group.label for group in comparison.groups if len(group.runs) > len(group.seeds)]
    again = f"; runs of the same seed in {_listed(repeated)} count as one" if repeated else ""
    if single:
        facts = f"{_listed(single)} {'has' if len(single) == 1 else 'have'} one seed, and one seed proves nothing"
        return Check(question, "no", f"{facts} about returns: train with others (--seed){again}")
    if len({frozenset(group.seeds) for group in comparison.groups}) > 1:
        again += "; the groups do not have the same seeds"
    fewest = min(counts.values())
    if fewest < 5:
        return Check(question, "no", f"{fewest} seeds give a rough interval; five or more are usual{again}")
    return Check(question, "yes", f"at least {fewest} in each group{again}")


def _machine(run: RunMetrics) -> dict[str, Any]:
    return _mapping(run.manifest.get("machine"))


def _libraries(run: RunMetrics) -> dict[str, Any]:
    return _mapping(_machine(run).get("libraries"))


def _mapping(value: Any) -> dict[str, Any]:
    """A part of a manifest, or an empty dict if it is missing or damaged."""
    return value if isinstance(value, dict) else {}


def _differing(facts: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for each in facts for name in each)
    values = {name: _distinct(_shown(each.get(name)) for each in facts) for name in names}
    return {name: found for name, found in values.items() if len(found) > 1}


def _each(differing: dict[str, list[str]]) -> str:
    return "; ".join(f"{name}: {_listed(values)}" for name, values in differing.items())


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _shown(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_NAMED
    return ", ".join(map(str, words[:_MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")
