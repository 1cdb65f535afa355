"""`envfleet train --seeds 1 2 3`: one run per seed, one after another, and a table of their returns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from envfleet.algorithms.settings import TrainingSettings
from envfleet.errors import SettingsError, one_line_of
from envfleet.seeding import checked_seed
from envfleet.settings.values import converted

if TYPE_CHECKING:
    from envfleet.runs.run import Run

__all__ = ["read_seeds", "settings_per_seed", "train_in_turn"]


def read_seeds(words: Sequence[str], *, with_seed: bool) -> tuple[int, ...]:
    """Return the values of --seeds; `with_seed` says whether --seed was given as well."""
    if with_seed:
        raise SettingsError("--seed and --seeds were both given, expected one of them")
    if not words:
        raise SettingsError("--seeds has no value", hint="write --seeds 1 2 3")
    seeds = []
    for word in words:
        try:
            seeds.append(checked_seed(converted(word, int)))
        except ValueError as error:
            raise SettingsError(f"--seeds: got {word!r}, expected whole numbers from 0, e.g. --seeds 1 2 3") from error
        if seeds.count(seeds[-1]) > 1:
            raise SettingsError(f"--seeds has {seeds[-1]} twice, expected each seed once")
    return tuple(seeds)


def settings_per_seed(settings: TrainingSettings, seeds: Sequence[int], folder: Path) -> list[TrainingSettings]:
    """Return the settings of each run. The seed is appended to given folders; folders that are taken are refused."""
    from envfleet.runs.folder import RunFolder

    runs = []
    for seed in seeds:
        named = {name: getattr(settings, name) for name in ("output_dir", "checkpoint_dir")}
        places = {name: f"{str(path).rstrip('/')}-seed{seed}" for name, path in named.items() if path is not None}
        runs.append(settings.but(seed=seed, **places))
    # Check all folders now, not hours later when their run starts.
    for run in runs:
        try:
            RunFolder.refuse_taken(
                run.output_dir, base=folder, overwrite=run.overwrite, checkpoint_dir=run.checkpoint_dir
            )
        except SettingsError as error:
            raise SettingsError(
                f"{one_line_of(error)}; none of the {len(runs)} runs was started", hint=error.hint
            ) from error
    return runs


def train_in_turn(runs: Sequence[TrainingSettings], folder: Path) -> None:
    """Train the runs one after another. If one is interrupted or fails, the rest are not started."""
    from envfleet.training import train

    quiet = runs[0].quiet
    done: list[Run] = []
    for number, settings in enumerate(runs, start=1):
        if not quiet:
            sys.stderr.write(f"\nrun {number} of {len(runs)}: seed {settings.seed}\n")
        try:
            done.append(train(settings, folder=folder))
        except BaseException:
            if left := [str(later.seed) for later in runs[number:]]:
                sys.stderr.write(f"not started: seed {', '.join(left)}\n")
            raise
    if not quiet:
        sys.stdout.write(_table([settings.seed or 0 for settings in runs], done))


def _table(seeds: Sequence[int], runs: Sequence[Run]) -> str:
    from envfleet.runs.live_view import decimals

    found = [_outcome(run) for run in runs]
    kinds = {kind for kind, _ in found}
    returns = [value for _, value in found if value is not None]
    digits = max(2, decimals(*returns))
    rows = [("seed", "return", "run")]
    for seed, (_, value), run in zip(seeds, found, runs, strict=True):
        rows.append((str(seed), "-" if value is None else f"{value:.{digits}f}", str(run.folder.shown)))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{seed:<{widths[0]}}  {value:>{widths[1]}}  {path}" for seed, value, path in rows]
    if returns:
        of_what = " or ".join(sorted(kinds))
        mean = f"mean {fmean(returns):.{digits}f}"
        if len(returns) > 1:
            mean += f" ± {stdev(returns):.{digits}f}"
            of_what = f"standard deviation between seeds; {of_what}"
        lines.append(f"{mean} ({of_what})")
    return "\n" + "\n".join(lines) + "\n"


def _outcome(run: Run) -> tuple[str, float | None]:
    """Return the kind of return and its value: of the last evaluation, or else of the last 100 episodes."""
    from envfleet.runs.metrics import points

    for name, kind in (("eval/mean_reward", "last evaluation"), ("rollout/ep_rew_mean", "last 100 episodes")):
        values = points(run.metrics, name)[1]
        if values:
            return kind, values[-1]
    return "no episode has ended", None
