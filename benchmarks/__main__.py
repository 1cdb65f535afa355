"""`python -m benchmarks`: sets up the other libraries, measures everything, writes the results and the tables.

With arguments, which `python -m benchmarks.fleet --help` explains, it measures what they say and writes only
where they say.
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
