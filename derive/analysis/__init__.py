"""Facts about a system: its mistakes, extents, ranges, and the reads that are in range."""
