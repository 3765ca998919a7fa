"""The linter: einsums that look wrong in a source tree, found without running it.

lint      which files, findings at their places, the comments that silence them, SARIF
scopes    what a name stands for, where the characters of a text stand
calls     every einsum of a module, patterns of einops, and what a string may be written as
rules     all rules with their chapters, and how a person chooses
"""
