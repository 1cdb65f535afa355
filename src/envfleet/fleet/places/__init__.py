"""Places: where workers live."""
