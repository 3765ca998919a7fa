"""What is known of a system: its mistakes, extents, ranges, and which reads are in range."""
