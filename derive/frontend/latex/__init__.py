"""LaTeX as people write it: its tree, and the indices that it leaves out."""
