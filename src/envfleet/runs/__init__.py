"""Everything around a run: folder, metrics, console, checkpoints and evaluation. Importing it does not load torch."""
