"""What each torch operation means, one file a family; each row carries its examples."""
