"""The linter: einsums that look wrong in a source tree, found without running it.

`lint.py` is the order of the work. `sources.py` says which files and gives their text,
`notebooks.py` that of cells. `scopes.py` knows what a name stands for, `literals.py` where a text's
letters stand. `calls.py` finds every einsum of a module; its letters are read by `spec.py`, those
of einops by `patterns.py`. `rule.py` says what a rule is, `rules_*.py` are the rules, `catalog.py`
names all. `ignores.py` reads the comments that silence, `finding.py` is what is told, `sarif.py`
the same in the form that code hosts read.
"""
