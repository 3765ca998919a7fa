"""Judges: loops (reference), evaluate (torch), fields (exact), samples, compare."""
