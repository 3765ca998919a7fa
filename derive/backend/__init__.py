"""Out of the language: printed code."""
