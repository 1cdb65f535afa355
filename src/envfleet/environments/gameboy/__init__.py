"""Games of the Game Boy on PyBoy: an adventure of our own, and whatever ROM the user has a small game file for."""
