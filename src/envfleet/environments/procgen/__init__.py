"""Procgen: sixteen games with procedurally generated levels (Cobbe et al. 2020), on the library of openai/procgen."""
