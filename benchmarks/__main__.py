"""`python -m benchmarks`: install the other libraries, benchmark the fleet, write the results and the tables.

Without arguments it measures everything and updates docs/benchmarks/fleet.json, docs/benchmarks.md and README.md.
With arguments (see `python -m benchmarks.fleet --help`) it measures what they select and writes only to `--output`.
"""

from __future__ import annotations

import sys

from benchmarks import fleet, tables
from benchmarks.peers import install


def main(arguments: list[str]) -> int:
    if not {"--no-peers", "--help", "-h"} & set(arguments):
        install.main([])
    if arguments:
        return fleet.main(arguments)
    code = fleet.main(["--output", str(tables.ROOT / "docs" / "benchmarks" / "fleet.json")])
    return code or tables.main([])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
