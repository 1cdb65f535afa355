"""The fleet: groups of environments on workers, behind one vector env."""
