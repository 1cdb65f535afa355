"""Resume: a run that was stopped or killed goes on as if it never had been."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import ALGORITHMS, PPO
from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.run import Run
from envfleet.training.assembly import assemble, resolve
from envfleet.training.callbacks import Callback
from envfleet.training.loop import Training
from envfleet.training.reporting import Reporter
from envfleet.training.snapshot import restore_parts

__all__ = ["HARMLESS", "resume"]

# Settings that do not change what was learned so far; all others would make another run of it.
HARMLESS = frozenset(
    {
        "backend",
        "checkpoint_every",
        "checkpoint_minutes",
        "duration",
        "eval_episodes",
        "eval_every",
        "keep_checkpoints",
        "num_episodes",
        "quiet",
        "start_method",
        "steps",
        "timeout",
        "track",
        "verbose",
        "workers",
    }
)


def resume(path: str | Path, *, callbacks: Sequence[Callback] = (), trust: bool = False, **changes: Any) -> Run:
    """Goes on from the newest sound checkpoint of the run in `path`."""
    folder = RunFolder.open(path)
    settings = _settings(folder, changes, trust=trust)
    lock = folder.lock()
    try:
        checkpoint = Checkpoints(folder.checkpoints).load_newest_sound()
        resolved = resolve(settings)
        reporter = Reporter(resolved, folder, lock, resumed=True)
    except BaseException:
        lock.release()
        raise
    with closing(reporter):
        parts = assemble(resolved, quiet=settings.quiet)
        with closing(parts):
            parts.policy.load_state_dict(checkpoint.policy)
            fresh = restore_parts(parts, checkpoint.state["parts"])
            if fresh is not None:
                reporter.console.say(f"the environments start fresh episodes: {fresh}")
            training = Training(resolved, parts, reporter, callbacks)
            training.restore(checkpoint.state)
            reporter.console.say(f"going on from step {checkpoint.step:,}")
            folder.write_config({"algorithm": settings.algorithm, **settings.to_json()})
            return training.run()


def _settings(folder: RunFolder, changes: dict[str, Any], *, trust: bool) -> PPO:
    recorded = folder.read_config()
    kind = ALGORITHMS[recorded.pop("algorithm")]
    assert kind is PPO
    settings = PPO.from_mapping(recorded, source=str(folder.config))
    _refuse_untrusted(settings, trust=trust)
    refused = sorted(name for name in changes if name not in HARMLESS)
    if refused:
        raise SettingsError(
            f"a run cannot be resumed with another {', '.join(refused)}: it would not be the same run",
            hint=f"start a new run from its weights with --init-from, or change only {', '.join(sorted(HARMLESS))}",
        )
    return settings.but(**changes)


def _refuse_untrusted(settings: PPO, *, trust: bool) -> None:
    """Names of code that the run recorded are imported on trust only; Gymnasium ids are not code."""
    named = [settings.env, settings.network, settings.policy, *settings.wrappers]
    paths = [name for name in named if isinstance(name, str) and ":" in name]
    if paths and not trust:
        raise SettingsError(
            f"the run was trained with code that is not part of Envfleet: {', '.join(paths)}",
            hint="say that you trust it: envfleet resume RUN --trust",
        )
