"""Learning runs that take too long for the tests: what presets reach, and curves beside other libraries'."""
