"""Sums and products of numbers, vectors and matrices, in the notation.

Juxtaposition is the product of matrices and vectors; `u v` of two vectors of one kind is their
inner product. Numbers are broadcast in a sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from derive.frontend.latex.values import ATOM, FACTOR, POWER, TERM, Axes, MisfitError, Value

VECTORS = "write \\odot for their elements, ^T for the inner product"


@dataclass
class Products:
    """The rules of sums and products, with the facts of one interpretation that they need."""

    axes: Axes
    extents: Mapping[str, str]  # extents of indices
    batch: Mapping[str, str]  # indices of omitted extents
    is_strict: bool  # refuse a product of two rows
    open_left: str | None = ""  # the tensor on the left side; None if its shape is declared

    def add_all(self, terms: Sequence[tuple[str, Value]]) -> Value:
        """Return the sum of terms with the same axes; numbers are broadcast."""
        whole = next((value for _, value in terms if value.axes), terms[0][1])
        text, free = "", list[str]()
        for sign, value in terms:
            if value.axes and len(value.axes) == len(whole.axes):
                self.axes.unify_axes(whole.axes, value.axes)
            elif whole.axes and (value.axes or "[" in value.text):
                raise MisfitError("a vector or matrix and something else are added")
            if len(value.axes) == 1 and value.is_row != whole.is_row:
                raise MisfitError("a row and a column are added")
            term = value.within(FACTOR if text or sign == "-" else TERM)
            text += f" {sign} {term}" if text else term if sign == "+" else f"-{term}"
            free += value.free
        is_curved = any(value.is_curved or len(value.axes) < len(whole.axes) for _, value in terms)
        return Value(text, TERM, whole.axes, tuple(dict.fromkeys(free)), whole.is_row, is_curved)

    def multiply(self, one: Value, sign: str, other: Value) -> Value:
        """Return the product by a sign: "", cdot, odot, otimes, times, star or /."""
        free = tuple(dict.fromkeys((*one.free, *other.free)))
        if sign == "/":
            if len(other.axes) > 1 or (len(one.axes) > 1 and other.axes):
                raise MisfitError("a matrix stands in a quotient with a vector or a matrix")
            self.axes.unify_axes(one.axes, other.axes)  # vectors by their elements
            text = f"{one.within(FACTOR)} / {other.within(ATOM)}"
            is_row = one.is_row if one.axes else other.is_row
            return Value(text, FACTOR, one.axes or other.axes, free, is_row)
        text = f"{one.within(FACTOR)} * {other.within(POWER)}"
        a, b = one.axes, other.axes
        is_entry = "[" in one.text and "[" in other.text
        if sign == "star" and (a or b or (is_entry and {*one.free} & {*other.free})):
            says = "* of tensors may mean their elements, or a convolution"
            raise MisfitError(says, help="write \\odot, \\cdot, or the sum")
        if not a or not b:
            along, entry = (one, other) if a else (other, one)
            ends = {axis.extent for axis in along.axes if not along.free}
            written = [i for i in entry.free if i not in self.batch.values()]
            alike = [i for i in written if self.extents.get(i, i.upper()) in ends]
            if alike and self.open_left is not None:
                says = f"it is open whether a tensor beside {alike[0]} has that index too"
                advice = f"write all its indices, or a line with the shape of {self.open_left}"
                raise MisfitError(says, help=advice)
            return Value(text, FACTOR, a or b, free, along.is_row, along.is_curved)
        if sign == "odot":
            if len(a) != len(b):
                raise MisfitError("elements of a vector and of a matrix are multiplied")
            self.axes.unify_axes(a, b)
            return Value(text, FACTOR, a, free, one.is_row)
        of_vectors = len(a) == len(b) == 1
        if of_vectors and sign == "times":
            raise MisfitError("the cross product of vectors is not read", help="write its sum")
        outside = ({*each.free} & {*self.batch.values()} for each in (one, other))
        if sign == "otimes" and len({frozenset(each) for each in outside}) > 1:
            of_vectors = False
        if of_vectors and (sign == "otimes" or (not one.is_row and other.is_row)):
            return Value(text, FACTOR, (a[0], b[0]), free)
        if sign == "otimes":
            raise MisfitError("the outer product of matrices is not read", help="write the indices")
        is_made = "sum[<" in one.text + other.text  # a product of matrices, in `X_i W (X_j V)`
        is_inner = sign == "cdot" or (is_made and not self.is_strict)
        is_open = one.is_curved or other.is_curved or not is_inner
        if of_vectors and one.is_row == other.is_row and is_open:
            raise MisfitError("two vectors are multiplied", help=VECTORS)
        if (len(a) < len(b) and not one.is_row) or (len(b) < len(a) and other.is_row):
            raise MisfitError("a column stands before a matrix, or a row after it")
        self.axes.unify_axes(a[-1:], b[:1])
        left = (*a[:-1], *b[1:])
        is_row = len(a) == 1 if len(left) == 1 else None
        return Value(f"sum[<{b[0].mark}>]({text})", ATOM, left, free, is_row)

    def multiply_all(self, factors: Sequence[tuple[str, Value]]) -> Value:
        """Return the product from left to right; a matrix product after `odot` is one factor."""
        whole = factors[0][1]
        for k, (sign, value) in enumerate(factors[1:], 1):
            rest = factors[k + 1 :]
            is_followed = any(each.axes and after != "odot" for after, each in rest)
            if sign == "odot" and value.axes and whole.axes and is_followed:
                if len(whole.axes) == len(value.axes):
                    says = "it is open whether \\odot or the product behind it goes first"
                    raise MisfitError(says, help="put parentheses")
                return self.multiply(whole, sign, self.multiply_all([("", value), *rest]))
            whole = self.multiply(whole, sign, value)
        return whole
