"""Places: the backends, where workers run."""
