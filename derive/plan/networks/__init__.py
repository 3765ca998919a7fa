"""Large networks of tensors: terms with common factors."""
