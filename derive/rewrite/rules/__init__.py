"""The rules, one file a family: equal in, equal out."""
