"""Checks whether an environment follows the Gymnasium API, and says how to fix it if not.

`given` says how the environment is built. `isolation` runs the examination in a separate process, and `announcement`
tells which call it is in. `examination` runs its parts in the order in which a fleet uses an environment. `interface`
inspects the environment without running it, `probe` guards and inspects every call, `episodes` plays episodes,
`seeding` replays them with the same seed, `exactness` restores a state and continues from it. `values` compares a value
with its space, `budget` limits the time, `advice` finds wrappers that let algorithms train on it, and `report` collects
the findings.

`envfleet.check` does all of this and also asks the algorithms (`envfleet.training.checking`).
"""

from __future__ import annotations

from envfleet.conformance.isolation import examine
from envfleet.conformance.report import CheckReport, Problem

__all__ = ["CheckReport", "Problem", "examine"]
