"""Time the library against code written by hand: `python -m tests.benchmarks`.

library/    each formula of the library as a competent user writes it, and the sizes of a model
corpus      formulas beyond the library, likewise: `--corpus`
cases       both read, and the judge of the code by hand
run         the measurements of one formula
tables      the table, its geometric means, markdown
"""
