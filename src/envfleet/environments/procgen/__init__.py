"""Procgen: sixteen games whose levels are drawn anew (Cobbe et al. 2020), over the library of openai/procgen."""
