"""Algorithms: each is one file that reads like its paper, with its settings in `<name>_settings.py`.

`docs/own-algorithm.md` shows how to write one outside the package.
"""

from envfleet.algorithms.common_settings import TrainingSettings
from envfleet.algorithms.learner import Learner

__all__ = ["Learner", "TrainingSettings"]
