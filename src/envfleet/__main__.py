"""`python -m envfleet`: the same as `envfleet`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current folder first, where a file `queue.py` would take the place of Python's own.
        # A folder that the user's module:callable needs is added by the command, as the last one.
        del sys.path[0]
    from envfleet.cli import main

    sys.exit(main())
