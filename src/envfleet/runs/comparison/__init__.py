"""Comparison of runs: figures, statistics, a sceptic's checks, and the reports."""
