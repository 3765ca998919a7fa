"""Corrected code: edits of the text, each run, until one computes the formula.

running     the functions of a file with another text
sites       the expressions on the lines that ran
operators   what may be written otherwise at one of them, or be put in there
search      all of them by cost, each judged by what the edited code gives
"""
