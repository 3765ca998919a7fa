"""The lifter: torch code, run once, written down as equations."""
