"""The rules, one file a family: equal in, equal out.

A rule is used where `rewrite/recipes` names it in `RULES`, or as an option that the search tries
where its family is in `_FAMILIES`.
"""
