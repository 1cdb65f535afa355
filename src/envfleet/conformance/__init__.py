"""`envfleet.check`: does my environment keep to the rules, and if not, what do I change?

`examination` runs the checks in the order of a fleet's life. `interface` looks at an environment without
running it, `probe` runs it with every call guarded, `episodes` plays it, `seeding` plays it again, `exactness`
restores a state and plays on; `values` compares a value with its space, and `report` holds what is found.
"""

from __future__ import annotations

from envfleet.conformance.examination import check
from envfleet.conformance.report import CheckReport, Problem

__all__ = ["CheckReport", "Problem", "check"]
