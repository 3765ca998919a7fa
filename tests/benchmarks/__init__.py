"""The whole library timed against code as people write it: `python -m tests.benchmarks`.

cases         the sizes of each formula, those of a model on one thread; the corpus, read
corpus/       formulas beyond the library with code by hand, as text: `--corpus`
by_hand_*     each formula as a competent user writes it, under the formula's name
by_hand       which of these functions belongs to which formula, and the judge of them
run           the measurements of one formula
tables        the table, its geometric means, markdown
"""
