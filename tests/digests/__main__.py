"""`make digests`: pin the current results of the fixed runs for this machine."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.digests import pinned
from tests.digests.fingerprint import computes_with, fingerprint
from tests.digests.runs import RUNS, digest_of


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: digest_of(name, Path(folder, name)) for name in RUNS}
    table, said = pinned.renewed(pinned.read(), fingerprint(), computes_with(), found)
    pinned.write(table)
    sys.stdout.write("\n".join([*said, ""]))


if __name__ == "__main__":
    main()
