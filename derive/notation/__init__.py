"""The words a formula is written in."""
