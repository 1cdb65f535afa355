"""Benchmarks of DQN: against Stable-Baselines3, with a replay buffer of a million steps, and with images."""
