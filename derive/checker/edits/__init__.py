"""Edits that make code right: of its formula, and of its text."""
