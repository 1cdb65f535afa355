"""`python -m envfleet`: same as the `envfleet` command."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current folder first, so a user's `queue.py` would shadow the standard library's.
        # If the user's module:callable needs a folder, the command appends it at the end.
        del sys.path[0]
    from envfleet.cli import main

    sys.exit(main())
