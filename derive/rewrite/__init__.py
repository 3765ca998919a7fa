"""Equal in, equal out."""
