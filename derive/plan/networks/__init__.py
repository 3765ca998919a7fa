"""Large networks of tensors: trees of contractions, and terms with common factors."""
