"""Other libraries, each in a virtual environment of its own, measured as sessions like everything else."""
