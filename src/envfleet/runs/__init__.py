"""What surrounds a run: its folder, metrics, console, checkpoints and evaluation. Imports no torch by itself."""
