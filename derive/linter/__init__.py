"""The linter: einsums that look wrong in a source tree, found without running it.

lint      the order of the work, findings, the comments that silence them
sources   which files, and the text of each
scopes    what a name stands for, where the characters of a text stand
calls     every einsum of a module, and patterns of einops
rule      what a rule is, and a finding
rules     all of them, and how a person chooses; shapes has those on shapes
plain     what a string may be written as without einsum
sarif     findings in the form that code hosts read
"""
