"""The meaning of a name in LaTeX: a tensor with places, a label in it, a power, a transpose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from derive.errors import DeriveError, refuse
from derive.frontend.latex import nodes as tree
from derive.frontend.latex.values import MisfitError

TRANSPOSED = {"T", "top", "intercal"}


@dataclass(frozen=True)
class Shapes:
    """The declarations of a text: shapes of tensors and families (W for all W_x), scalars, .."""

    tensors: Mapping[str, tuple[str, ...]]
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scalars: Set[str] = frozenset()
    indices: Mapping[str, str] = field(default_factory=dict)
    lines: Sequence[str] = ()  # declarations in the notation
    returned: Sequence[str] = ()  # `return` lines
    has_rows: bool | None = None  # whether vectors are rows; None if not stated
    counted: int | None = None  # the first value of all indices; None if not stated
    stated: frozenset[str] = frozenset()  # indices with a declaration

    def find_shape(self, name: str) -> tuple[str, ...] | None:
        """The shape of a tensor; None if unknown."""
        base, _, label = name.partition("_")
        is_member = label and "_" not in label
        return self.tensors.get(name, self.families.get(base) if is_member else None)

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes in declarations."""
        declared = [line.removeprefix("size ") for line in self.lines if line.startswith("size ")]
        every = (*self.tensors.values(), *self.families.values(), self.indices.values(), declared)
        return {word for shape in every for e in shape for word in re.findall(r"[^\W\d]\w*", e)}


def complete_shapes(
    shapes: Shapes, equations: Sequence[tree.Equation], ranges: Mapping[str, tree.Tree]
) -> Shapes:
    r"""Return the shapes with the extents that the equations and `ranges` give.

    `i = 1, \ldots, n` gives the extent of an index. The shape of `W_i`, with i an index of a left
    side, becomes a shape of W.
    """
    targets = tree.find_targets(equations)
    extents = dict[str, str]()
    for left in targets:
        shape = shapes.tensors.get(left.base, ())
        if len(shape) == len(left.below):
            extents |= zip(map(tree.to_word, left.below), shape, strict=True)
    extents |= {index: write_extent(end) for index, end in ranges.items()}
    extents = {
        index: extent for index, extent in extents.items() if index.isidentifier() and extent
    }
    indices = {**extents, **shapes.indices}
    bound = {tree.to_word(place) for left in targets for place in left.below}
    tensors: dict[str, tuple[str, ...]] = {}
    for name, shape in shapes.tensors.items():
        stem, _, label = name.rpartition("_")
        alike = [other for other in shapes.tensors if other.rpartition("_")[0] == stem]
        is_each = stem and label in bound and len(label) == 1 and label.islower()
        if is_each and len(alike) == 1 and label in indices:
            tensors[stem] = (indices[label], *shape)
        else:
            tensors[name] = shape
    stated = frozenset(shapes.indices)
    return replace(shapes, tensors=tensors, indices=indices, stated=stated)


def write_extent(part: tree.Tree) -> str:
    """Return an extent of sizes and numbers as text in the notation, or "" for other parts."""
    match part:
        case tree.Number(number):
            return number
        case tree.Name():
            return tree.write_name(part)[0]
        case tree.Sum(terms):
            written = [(sign, write_extent(term)) for sign, term in terms]
            text = "".join(f" {sign} {term}" for sign, term in written)
            return text.removeprefix(" + ").strip() if all(term for _, term in written) else ""
        case tree.Product(factors) if all(sign != "/" for sign, _ in factors):
            parts = [write_extent(factor) for _, factor in factors]
            return "*".join(parts) if all(parts) else ""
    return ""


@dataclass(frozen=True, slots=True)
class Read:
    """The meaning of a name: the tensor or number, places, power, whether it is transposed."""

    name: str
    places: tuple[tree.Tree, ...] = ()
    power: tree.Tree | None = None
    is_transposed: bool = False


class Names:
    """The names of the equations with what is known of each; `resolve` finds their meaning."""

    def __init__(self, shapes: Shapes, equations: Sequence[tree.Equation]) -> None:
        self.shapes = shapes
        self.sizes = shapes.sizes
        masks = " ".join(line for line in shapes.lines if line.startswith("bool"))
        self.truths = {*re.findall(r"\w+", masks)} - {"bool"}
        names = [*tree.find_names(equations)]
        self.words = {part.base for part in names}
        indices = {tree.to_word(place) for part in names for place in part.below} | {"oo"}
        for binder in tree.find_binders(equations):
            if binder.above is not None:
                self.sizes |= tree.to_words(binder.above) - indices
        self.numbers = self.sizes | shapes.scalars
        targets = tree.find_targets(equations)
        self.lefts = {left.base for left in targets}
        # `\\sigma^2 = ..` defines a tensor `sigma_squared`.
        square = tree.Number("2")
        self.squares = {left.base for left in targets if left.above == square}
        # Tensors with an index: if `h_t` occurs, `h_0` is an entry of h.
        self.indexed = {
            part.base
            for part in names
            if part.below and not part.label.isdigit()
            if not tree.has_label(part) and shapes.find_shape(f"{part.base}_{part.label}") is None
        }
        self.defined: set[str] = set()
        self.returned = {*re.findall(r"\w+", " ".join(shapes.returned))} - {"return"}
        # declared indices, and those in the places of tensors with shapes: `y_\alpha = x_\alpha`
        self.places = {*shapes.indices}
        for part in names:
            if len(part.below) == len(shapes.find_shape(part.base) or ()):
                self.places |= {*map(tree.to_word, part.below)}
        # Names that have a number in the superscript at every occurrence, `W^1`.
        plain = {p.base for p in names if p.below or not tree.to_word(p.above).isdigit()}
        self.numbered = self.words - plain
        ranks = [(p.base, len(p.below)) for p in names if p.below and not p.label.isdigit()]
        self.ranks = {*ranks, *((name, len(shape)) for name, shape in shapes.tensors.items())}
        # `W^{(q)}` is W_q if that is declared, or if it is defined and q is no index.
        marked = {(part.base, part.upper) for part in names}
        defined = {(left.base, left.upper) for left in targets}
        known = {(base, word) for base, word in marked if self.is_known(f"{base}_{word}")}
        self.marks = {word for _, word in known} - {word for _, word in marked - defined - known}
        for left in targets:
            self.defined.add(self.resolve(left, is_target=True).name)
        for part in names:
            stem, _, number = part.base.rpartition("_")
            if number.isdigit() and stem in shapes.tensors and not self.is_known(part.base):
                mark = f"{stem}^{{({number})}}"
                says = f"it is open what {mark} is: {stem} has a shape, this has none"
                advice = f"declare {stem}_{number}: [..], or write a power {stem}^{number}"
                raise MisfitError(says, part.token, advice)
            if part.label.isdigit() and f"{part.base}_{part.label}" in self.words:
                number = part.label
                says = f"{part.base}_{number} and {part.base}^{{({number})}} have one name here"
                raise MisfitError(says, part.token, "give one of them another letter")

    def is_known(self, name: str) -> bool:
        """Whether the name is declared or defined."""
        known = self.defined | self.returned | self.sizes | self.shapes.scalars
        return name in known or self.shapes.find_shape(name) is not None

    def resolve(self, name: tree.Name, *, is_target: bool = False) -> Read:
        """Return the meaning of a name; MisfitError if unclear. A target may define a label."""
        if name.base in self.squares and name.above == tree.Number("2"):
            name = replace(name, base=f"{name.base}_squared", above=None)
        digits = re.fullmatch(r"(\w*[^\W\d_])(\d+)", name.base)
        if digits and not self.is_known(name.base) and self.is_known(f"{digits[1]}_{digits[2]}"):
            name = replace(name, base=f"{digits[1]}_{digits[2]}")
        full = f"{name.base}_{name.upper}"
        if name.upper and (self.is_known(full) or (is_target and name.upper in self.marks)):
            name = replace(name, base=full, below=name.below[1:], upper="")
        marks = (f"{name.base}_{name.label}", f"{name.base}{name.label}")
        if name.label.isdigit() and not any(map(self.is_known, marks)):
            count = len(name.label)  # `R_{00}` beside `R_{ij}`
            if count > 1 and (name.base, count) in self.ranks:
                name = replace(name, below=(*map(tree.Number, name.label),), label="")
        above, label = tree.to_word(name.above), name.label
        is_transposed = above in TRANSPOSED and not self.is_known(f"{name.base}_{above}")
        power = None if is_transposed else name.above
        marks = (f"{name.base}_{above}_{label}", f"{name.base}_{label}_{above}")
        for full in marks if above and label and not is_transposed else ():
            if self.is_known(full):
                return Read(full)
        full = f"{name.base}_{above}"
        is_number = above.isdigit() and (self.is_known(full) or full in self.words)
        if is_number and (full in self.words or name.base not in self.numbered):
            mark = f"{name.base}^{{({above})}}"
            says = f"it is open whether {name.base}^{above} is a power or {mark}"
            advice = f"write ({name.base})^{above} for the power, {mark} for the other"
            raise MisfitError(says, name.token, advice)
        if above and not is_transposed and self.is_known(full):
            return Read(full, name.below)
        below = f"{name.base}_{label}"
        is_one = len(name.below) == 1 or below in {*self.shapes.tensors, *self.numbers}
        if label and is_one and self.is_known(below):
            return Read(below, (), power, is_transposed)
        is_free = not is_transposed and above not in self.sizes
        if is_free and tree.is_label(above) and not self.is_known(name.base):
            return Read(f"{name.base}_{above}", name.below)
        is_number = label.isdigit() and name.base not in self.indexed
        if is_number and (is_target or self.is_known(f"{name.base}{label}")):
            return Read(f"{name.base}{label}", (), power, is_transposed)
        is_end = name.base in self.indexed and label in self.sizes  # `h_T`
        if is_end and not self.is_known(below):
            return Read(name.base, name.below, power, is_transposed)
        is_free = label not in self.places if is_target else not self.is_known(name.base)
        if tree.has_label(name) and is_free:
            return Read(below, (), power, is_transposed)
        if name.base in self.sizes and label in {*self.lefts, *self.shapes.tensors}:
            return Read(name.base, (), power)  # `D_z`: the extent D of z
        return Read(name.base, name.below, power, is_transposed)

    def find_reads(self, part: tree.Tree | None) -> set[str]:
        """Return the names of the tensors, numbers and indices that a part reads."""
        if not isinstance(part, tree.Name):
            inside = () if part is None else tree.find_parts(part)
            return set().union(*map(self.find_reads, inside))
        read = self.resolve(part)
        return {read.name}.union(*map(self.find_reads, (*read.places, read.power)))

    def find_linear(self, part: tree.Tree, base: int) -> dict[str, int] | None:
        """Return the integer coefficients of names, {"i": 2, "": 1} of 2i + 1; None: not linear.

        Indices are those of the notation, which count from 0; `base` is added to each.
        """
        match part:
            case tree.Number(text) if text.isdigit():
                return {"": int(text)}
            case tree.Name(_, _, None, ()) if part.base in self.numbers:
                return {part.base: 1}
            case tree.Name(_, _, None, ()):
                is_index = not self.is_known(part.base)
                return {part.base: 1} | ({"": 1} if base else {}) if is_index else None
            case tree.Name():
                read = self.resolve(part)
                is_plain = not read.places and read.power is None and not read.is_transposed
                return {read.name: 1} if is_plain and read.name in self.sizes else None
            case tree.Sum(parts):
                terms: dict[str, int] = {}
                for sign, term in parts:
                    found = self.find_linear(term, base)
                    if found is None:
                        return None
                    for name, factor in found.items():
                        terms[name] = terms.get(name, 0) + (-factor if sign == "-" else factor)
                return {name: factor for name, factor in terms.items() if factor}
            case tree.Product(
                ((_, tree.Number(text)), ("" | "cdot" | "star", tree.Name() as name))
            ) if text.isdigit():
                found = self.find_linear(name, base)
                return None if found is None else {n: int(text) * k for n, k in found.items()}
        return None


def find_bases(
    equations: Sequence[tree.Equation], ranges: Mapping[str, tree.Tree], names: Names
) -> tuple[int, ...]:
    """Return the numbers from which indices may count: (0,), (1,), or (0, 1) if that is open.

    It is declared, or the start of a sum or a range, if 0 or 1; 1 if `h_0` is given beside `h_t`; 0
    if another place is 0. DeriveError if both are used.
    """
    if names.shapes.counted is not None:
        return (names.shapes.counted,)
    below = (each for part in tree.find_binders(equations) for each in part.below)
    starts = {start for each in below for _, start in find_starts(each) if start < 2}
    starts |= {1} if ranges else set()
    firsts = [(e.base, tree.to_word(e.below[0])) for e in tree.find_targets(equations) if e.below]
    counted = {base for base, word in firsts if word[:1].isalpha()}
    starts |= {int(base in counted) for base, word in firsts if word == "0"}
    if len(starts) > 1:
        raise ask_base("some indices start at 0, and others at 1")
    words = (tree.to_word(place) for name in tree.find_names(equations) for place in name.below)
    return tuple(sorted(starts)) or ((0,) if any({*word} == {"0"} for word in words) else (0, 1))


def ask_base(says: str, *facts: str) -> DeriveError:
    """Return the error that asks from which number indices count."""
    advice = "add a line: indices count from 0, or: indices count from 1"
    return refuse("latex-form", says, facts=facts, help=advice)


def find_starts(below: tree.Tree) -> Iterator[tuple[str, int]]:
    """Yield pairs (index, least value) for the lower bounds in a range such as `j = 1`."""
    if not isinstance(below, tree.Relation):
        return
    sides = [below.first, *(side for _, side in below.rest)]
    for one, (sign, _), other in zip(sides, below.rest, sides[1:], strict=False):
        match one, sign, other:
            case tree.Name() as name, "==" | ">=" | ">", tree.Number(number):
                pass
            case tree.Number(number), "<=" | "<", tree.Name() as name:
                pass
            case _:
                continue
        if number.isdigit():
            yield tree.to_word(name), int(number) + (sign in {"<", ">"})


@dataclass(frozen=True)
class Choice:
    """One way to read tensors that have fewer written indices than axes."""

    places: Mapping[str, tuple[int, ...]]  # by tensor, the axes of its written indices
    axes: Mapping[str, int]  # by tensor, the number of last axes: 0 number, 1 vector, 2 matrix
    extents: Mapping[str, str]  # extents of the written indices
    has_rows: bool = True  # whether vectors are rows
    is_strict: bool = True  # refuse a product of two rows, which papers write for the inner product
