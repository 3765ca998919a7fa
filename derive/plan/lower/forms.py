"""Affine places of a tensor: the steps of their indices, and the range of positions they read.

x[z*t + k - 1]     steps z for t and 1 for k, from -1 to z*(T - 1) + K - 2
"""

from collections.abc import Mapping
from dataclasses import dataclass

from derive.analysis.affine import to_linear
from derive.analysis.extents import is_above_zero
from derive.analysis.facts import is_never_negative, is_positive
from derive.analysis.places import split_merged
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, split_steps
from derive.ir.walk import find_accesses, find_free


@dataclass(frozen=True, slots=True)
class AffineForm:
    """An affine place: the steps of its indices, the largest first, and the range it reads."""

    steps: tuple[tuple[ir.Index, Polynomial], ...]
    down: tuple[ir.Index, ...]  # indices with negative steps
    low: Polynomial  # the least position
    length: Polynomial  # positions from the least to the largest, or the whole extent
    spare: int = 0  # an extra position, first (-1) or last (1), that ensures a window
    row: ir.Index | None = None  # k in i - k or i + k that is read in rows along an axis k

    @property
    def is_windowed(self) -> bool:
        """Whether windows overlap or have gaps, so that they need unfold."""
        return len(self.steps) > 1 and any(
            step != _find_length(self.steps[k + 1 :]) for k, (_, step) in enumerate(self.steps[:-1])
        )

    @property
    def is_square(self) -> bool:
        """Whether a form i + k has two equal extents, which may be 0."""
        extents = {Polynomial.of(index.extent) for index, _ in self.steps}
        is_one = len(extents) == 1 and all(step == ONE for _, step in self.steps)
        return is_one and len(self.steps) == 2 and not is_above_zero(self.steps[0][0].extent)


def find_form(place: ir.Expr, extent: ir.Expr) -> AffineForm | None:
    """Return a place as an affine form whose steps have known signs, or None."""
    (position, low), whole = split_steps(to_linear(place)), to_stride(find_free(place))
    signs = (is_positive(step) or is_positive(-step) for step in position.values())
    is_part = not all(signs) and is_never_negative(Polynomial.of(extent) - whole)
    length = whole if is_part else Polynomial.of(extent)
    parts = split_merged(place, length.to_expr())
    if parts:
        strides = [to_stride(parts[k + 1 :]) for k in range(len(parts))]
        steps = tuple(zip(parts, strides, strict=True))
        return AffineForm(steps, (), Polynomial.of(0), length)
    known = {atom: step for atom, step in position.items() if isinstance(atom, ir.Index)}
    if find_accesses(place) or not known or len(known) < len(position):
        return None
    down = tuple(index for index, step in known.items() if is_positive(-step))
    if not all(index in down or is_positive(step) for index, step in known.items()):
        return None
    sizes = {index: -step if index in down else step for index, step in known.items()}
    for index in down:
        low = low - sizes[index] * (Polynomial.of(index.extent) - ONE)
    steps = _sort_steps(sizes, place)
    return AffineForm(steps, down, low, _find_length(steps))


def to_stride(parts: tuple[ir.Index, ...]) -> Polynomial:
    """Return the stride of an index that is merged before `parts`: the product of their extents."""
    return Polynomial.of(ir.product_of([index.extent for index in parts]))


def _sort_steps(
    sizes: Mapping[ir.Index, Polynomial], written: ir.Expr
) -> tuple[tuple[ir.Index, Polynomial], ...]:
    """Return pairs (index, step), the largest step first, equal ones in the order of `written`."""
    left, found = [i for i in find_free(written) if i in sizes], []
    while left:
        largest = (i for i in left if all(is_never_negative(sizes[i] - sizes[j]) for j in left))
        first = next(largest, left[0])
        left.remove(first)
        found.append((first, sizes[first]))
    return tuple(found)


def _find_length(steps: tuple[tuple[ir.Index, Polynomial], ...]) -> Polynomial:
    """Return the number of positions that a form covers.

    It includes the remainder behind the last window if an extent, such as (L - K)//z + 1, has one.
    """
    length = ONE
    for index, step in steps:
        length = length + step * (Polynomial.of(index.extent) - ONE)
    largest = steps[0][1]
    for index, step in steps if len(steps) > 1 else ():
        over = find_left_over(index, step)
        if over != Polynomial.of(0) and is_never_negative(largest - step):
            return length + over
    return length


def find_left_over(index: ir.Index, step: Polynomial) -> Polynomial:
    """Return the remainder behind the last window, by the extent of the index: (L - K)//z + 1.

    That is the number of windows of K in L positions with step z. 0 for other extents.
    """
    extent = Polynomial.of(index.extent)
    for atom in extent.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if Polynomial.of(under) == step:
                count = Polynomial.of(atom)
                if atom not in (extent - count).atoms:
                    return Polynomial.of(over) - step * count
    return Polynomial.of(0)
