"""Facts about a system, found without changing it."""
