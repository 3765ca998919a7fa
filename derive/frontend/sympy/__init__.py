"""SymPy expressions with indices, translated into the index language."""
