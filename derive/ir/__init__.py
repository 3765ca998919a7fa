"""The index language."""
