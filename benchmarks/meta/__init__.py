"""Benchmarks of collecting trials: our fleet, independent processes, and a process per environment with pipes."""
