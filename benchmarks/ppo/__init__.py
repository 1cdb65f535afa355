"""Benchmarks of PPO: whole cycles of collecting and learning, against other libraries and against arithmetic alone."""
