"""The library: one file per family of formulas, found by name."""
