"""Learning runs that take too long for the tests: returns of the presets, and curves of other libraries."""
