"""DQN's speed: against Stable-Baselines3, with a replay of a million steps, and with images."""
