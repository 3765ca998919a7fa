"""The library's formulas as their fields write them in torch: one file a family, no word of derive.

A reference has the name of its formula, and its arguments by name. Where torch has a function of
its own it is that; else it goes another way than the formula does: heads one by one, matrices in
place of sums, the rows that a mask leaves in place of -oo.
"""
