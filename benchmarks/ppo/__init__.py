"""Benchmarks of PPO: collecting and learning, compared with other libraries and with arithmetic alone."""
