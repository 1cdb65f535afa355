"""Other libraries, each in its own virtual environment, measured as sessions like everything else."""
