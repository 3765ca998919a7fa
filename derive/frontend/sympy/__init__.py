"""SymPy index expressions read into the index language, and written from it."""
