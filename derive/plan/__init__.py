"""The order of work: steps, contraction paths, layout."""
