"""Into the index language: from text, SymPy, LaTeX, einsum strings and torch code."""
