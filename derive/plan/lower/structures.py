"""The structures: guards of a reduction that make a mask over all pairs of indices unnecessary.

    sum[e, d[e] == n](m[e])       segments: the entries with one label, by one scatter
    sum[j, x[j] <= x[i]](v[j])    orders: the keys below a bound, by a sort and a search

A structure is a function in a module of this folder, listed in STRUCTURES:

    def lower_x(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None

It returns the reduction as an operation, or None if the guards do not have the structure. A mask
that no structure takes, such as `j <= i` under a product, is applied to an operand by
`mask_operands` of product.py; a running sum is found before, by rewrite/rules/masks.py.
To add one, write it on `read_guarded` of guarded.py, and list it here. Formulas with it go to
tests/plan/cells.txt, and similar ones without it to [neighbours] of tests/plan/structures.txt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.lower.orders import lower_ordered
from derive.plan.lower.segments import lower_segments

if TYPE_CHECKING:
    from derive.ir import nodes as ir
    from derive.plan import ops
    from derive.plan.lower.guarded import Wanted

STRUCTURES = (lower_segments, lower_ordered)  # tried in this order


def lower_guarded(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """Lower a reduction by the first structure that fits; None if none does or without cells."""
    tried = STRUCTURES if wanted.context.cells else ()
    return next((op for each in tried if (op := each(reduce, wanted)) is not None), None)
