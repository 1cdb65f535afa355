"""Adapters of a fleet for other RL libraries: one module per library, imported only when used."""
