"""Loads the images of all games, 360 MB, when it is imported: in the process that workers are forked from.

The library loads them with the first game of a process and keeps them. So all workers share one copy, and their first
game takes milliseconds instead of seconds.
"""

from envfleet.environments.procgen.environment import ProcgenEnv

_env = ProcgenEnv("coinrun")
_env.reset()
_env.close()
