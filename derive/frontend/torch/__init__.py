"""The lifter: torch code is run once, and its calls are recorded as equations."""
