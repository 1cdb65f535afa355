"""The fleet as other libraries want it: one module per library, imported only by those who use it."""
