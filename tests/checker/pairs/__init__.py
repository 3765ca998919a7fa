"""Code beside the formulas that it should compute: right in unusual ways, wrong in usual ones."""
