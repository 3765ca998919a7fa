"""Systems rewritten to equal ones: the rules, the recipes that apply them, guards of values."""
