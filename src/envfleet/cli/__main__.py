"""`python -m envfleet.cli`: the same as `envfleet`."""

import sys

from envfleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
