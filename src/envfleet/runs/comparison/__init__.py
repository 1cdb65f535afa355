"""Runs beside each other: figures, statistics, a sceptic's checks, and the files that show them."""
