"""Judges: direct loops, samples, comparison."""
