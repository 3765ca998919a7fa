"""Out of the index language: plans as PyTorch files, equations as LaTeX, both as data."""
