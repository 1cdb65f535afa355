"""Resume: a stopped or killed run continues as if it had never been interrupted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import HARMLESS, TrainingSettings
from envfleet.errors import CheckpointError, EnvError, SettingsError, StateError, WorkerError, one_line_of
from envfleet.policies.weights import load_weights
from envfleet.runs.checkpoints import Checkpoint, Checkpoints
from envfleet.runs.folder import RunFolder
from envfleet.runs.replacing import states_in
from envfleet.runs.run import Run
from envfleet.settings.spelling import as_flag
from envfleet.settings.values import shown
from envfleet.training.assembly import Parts, Resolved, assemble, resolve
from envfleet.training.callbacks import Callback
from envfleet.training.exactness import Exactness
from envfleet.training.filming import refuse_unfilmable
from envfleet.training.loop import Training, start
from envfleet.training.opened_run import recorded_settings
from envfleet.training.reporting import Reporter
from envfleet.training.snapshot import begin_fresh_episodes, restore_parts
from envfleet.training.trust import refuse_untrusted, trusted_algorithm

__all__ = ["resume"]

# Settings that may differ from the initial ones: a resumed run may change them or does not read them.
_MAY_DIFFER = HARMLESS | {"checkpoint_dir", "init_from", "output_dir", "preset", "random_steps", "verbose"}
_log = logging.getLogger("envfleet")


def resume(path: str | Path, *, callbacks: Sequence[Callback] = (), trust: bool = False, **changes: Any) -> Run:
    """Resume the run in `path` from its newest intact checkpoint."""
    folder = RunFolder.open(path)
    # Objects replace code that the run names, which may be part of a script that cannot be imported.
    objects = {name: changes.pop(name) for name in list(changes) if _is_code(changes[name])}
    settings = _settings(folder, changes, objects, trust=trust)
    with folder.lock():  # a run in use may not have saved yet
        never_saved = _never_saved(folder)
    if never_saved:
        _log.warning("%s was stopped before its first checkpoint: it begins again", folder.shown)
        again = settings.but(output_dir=str(folder.shown), overwrite=True)
        if again.checkpoint_dir is not None:  # the recorded folder, independent of the current one
            again = again.but(checkpoint_dir=str(folder.checkpoints))
        return start(again, callbacks=callbacks)
    lock = folder.lock()
    try:
        checkpoint = Checkpoints(folder.checkpoints).load_newest_sound()
        resolved = resolve(settings, recorded=True)
        reporter = Reporter(resolved, folder, lock, resumed=True)
    except BaseException:
        lock.release()
        raise
    with closing(resolved.stage), closing(reporter):
        refuse_unfilmable(resolved)
        exactness = Exactness(resolved, reporter.console.say)
        parts, fresh = _put_back(resolved, checkpoint, exactness)
        with closing(parts):
            if fresh is not None:
                reporter.console.say(f"the environments start fresh episodes: {fresh}")
            training = Training(resolved, parts, reporter, callbacks, exactness)
            training.restore(checkpoint.state)
            if training.progress.spent:
                limits = " and ".join(as_flag(name) for name in training.progress.spent_limits)
                reporter.console.say(f"its budget is spent at step {checkpoint.step:,}: {limits} gives it more")
            elif training.goal is not None:
                reporter.console.say(
                    f"it has ended at step {checkpoint.step:,}: {training.goal}; to continue, set --stop-score or "
                    "--patience to another value or none"
                )
            else:
                reporter.console.say(f"resuming from step {checkpoint.step:,}")
                # Record settings only if training continues: a finished run keeps those it was trained with.
                folder.write_config(settings.recorded())
            return training.run()


def _put_back(resolved: Resolved, checkpoint: Checkpoint, exactness: Exactness) -> tuple[Parts, str | None]:
    """Restore the parts from the checkpoint. Also returns why the environments begin fresh episodes, if they do."""
    saved = checkpoint.state["parts"]
    fresh: str | None = saved["fleet_reason"]
    if saved["fleet"] is not None:
        # A run that was stopped before its first checkpoint had no time to test it.
        exactness.take_over(tried=saved.get("fleet_tried", False))
        fresh = exactness.reason()
        if fresh is None:
            parts = assemble(resolved)
            try:
                load_weights(parts.policy, checkpoint.policy, "the checkpoint")
                restore_parts(parts, saved, checkpoint.pieces)
                return parts, None
            except (EnvError, StateError, WorkerError) as error:
                fresh = one_line_of(error)
                exactness.take_over(tried=False)
                parts.close()  # some environments may already be restored, or broken
            except BaseException:
                parts.close()
                raise
    exactness.heard(fresh)
    parts = assemble(resolved)
    try:
        load_weights(parts.policy, checkpoint.policy, "the checkpoint")
        begin_fresh_episodes(parts, saved, checkpoint.pieces)
    except BaseException:
        parts.close()
        raise
    return parts, fresh


def _never_saved(folder: RunFolder) -> bool:
    """Whether nothing was ever saved, not even a checkpoint that is damaged now.

    Raises a CheckpointError if checkpoints were saved and are gone: beginning again would delete the rest of the run.
    """
    if states_in(folder.checkpoints):
        return False
    if folder.checkpoints.is_dir() and not folder.read_manifest().get("saved"):
        return True
    what = "has no checkpoints" if folder.checkpoints.is_dir() else "does not exist"
    raise CheckpointError(
        f"the checkpoint folder {folder.checkpoints} of the run {folder.shown} {what}",
        hint="put it back (is its disk mounted?); if its checkpoints are lost, start the run again with --overwrite",
    )


def _settings(folder: RunFolder, changes: dict[str, Any], objects: dict[str, Any], *, trust: bool) -> TrainingSettings:
    algorithm = trusted_algorithm(folder, objects.get("algorithm"), trust=trust)
    settings = recorded_settings(folder, algorithm)
    _refuse_edited(folder, settings)
    refuse_untrusted(settings, objects, trust=trust, playing=False)
    refused = sorted(name for name in changes if name not in HARMLESS)
    if refused:
        raise SettingsError(
            f"a run cannot be resumed with another {', '.join(refused)}: it would not be the same run",
            hint=f"start a new run from its weights with --init-from, or change only {', '.join(sorted(HARMLESS))}",
        )
    given = {name: value for name, value in objects.items() if name != "algorithm"}
    # Verbosity is not restored.
    return settings.but(**{"quiet": False, "verbose": False, **changes, **given})


def _refuse_edited(folder: RunFolder, settings: TrainingSettings) -> None:
    """Raise a SettingsError if the config file was edited in settings that affected what was learned."""
    began = folder.read_manifest().get("settings")
    now = settings.recorded()
    if not isinstance(began, dict):  # a run of an older version
        return
    changed = [name for name in now if name in began and now[name] != began[name] and name not in _MAY_DIFFER]
    if changed:
        lines = [f"  {name}: {shown(now[name])}, but the run was trained with {shown(began[name])}" for name in changed]
        raise SettingsError(
            "\n".join([f"{folder.config} was changed, and a run cannot be resumed with other settings:", *lines]),
            hint="put them back, or start a new run from its weights with --init-from",
        )


def _is_code(value: Any) -> bool:
    return callable(value) or (isinstance(value, list | tuple) and any(map(callable, value)))
