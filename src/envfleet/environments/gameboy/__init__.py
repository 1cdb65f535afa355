"""Game Boy games on PyBoy: our own adventure, and any ROM for which the user has a small game file."""
