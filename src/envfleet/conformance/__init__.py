"""Does an environment keep to the rules, and if not, what has to change?

`isolation` runs an examination in a process of its own. `examination` has its parts in the order of a fleet's life.
`interface` looks at an environment without running it, `probe` runs it with every call guarded, `episodes` plays it,
`seeding` plays it again, `exactness` restores a state and plays on. `values` compares a value with its space, `budget`
keeps the time, `advice` finds wrappers that let algorithms train on it, and `report` holds what is found.

`envfleet.check` is all of that, and asks the algorithms (`envfleet.training.checking`).
"""

from __future__ import annotations

from envfleet.conformance.isolation import examine
from envfleet.conformance.report import CheckReport, Problem

__all__ = ["CheckReport", "Problem", "examine"]
