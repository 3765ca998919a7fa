"""Recurrences: loops over turns, chunks of linear ones, wavefronts, and calls of torch for them."""
