"""The index language: nodes of expressions, their text, and operations on them."""
