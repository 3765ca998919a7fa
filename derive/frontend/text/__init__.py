"""The text notation: a grammar over Python's `ast`, never evaluated as code."""
