"""Benchmarks of the fleet: speed against the limit of the machine and against other libraries."""
