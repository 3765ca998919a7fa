"""LaTeX as people write it: its syntax tree, and the indices that it leaves out."""
