"""Benchmark of SAC: training, recurrent updates, replay buffer, schedules."""
