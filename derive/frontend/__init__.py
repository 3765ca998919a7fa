"""Into the language: from text, from SymPy, from einsum strings."""
