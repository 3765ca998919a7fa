"""Interpretation of names in LaTeX: declarations, places, labels, powers, first values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from derive.frontend.latex import nodes as tree
from derive.frontend.latex.values import MisfitError, write_linear

TRANSPOSED = {"T", "top", "intercal"}


@dataclass(frozen=True)
class Shapes:
    """The declarations: shapes of tensors and of families (W for all W_x), scalars, indices."""

    tensors: Mapping[str, tuple[str, ...]]
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scalars: Set[str] = frozenset()
    indices: Mapping[str, str] = field(default_factory=dict)
    lines: Sequence[str] = ()  # declarations in the notation
    returned: Sequence[str] = ()  # `return` lines
    has_rows: bool | None = None  # whether vectors are rows; None if not stated
    counted: int | None = None  # the first value of all indices; None if not stated
    # new names of sizes that clash with tensors
    renamed: Mapping[str, str] = field(default_factory=dict)
    stated: frozenset[str] = frozenset()  # indices with a declaration

    def find_shape(self, name: str) -> tuple[str, ...] | None:
        """The shape of a tensor; None if unknown."""
        base, _, label = name.partition("_")
        is_member = label and "_" not in label
        return self.tensors.get(name) or (self.families.get(base) if is_member else None)

    @property
    def sizes(self) -> set[str]:
        """The names of all sizes."""
        declared = [line.removeprefix("size ") for line in self.lines if line.startswith("size ")]
        every = (*self.tensors.values(), *self.families.values(), self.indices.values(), declared)
        return {word for shape in every for e in shape for word in re.findall(r"[^\W\d]\w*", e)}


def complete_shapes(
    shapes: Shapes, equations: Sequence[tree.Equation], ranges: Mapping[str, tree.Tree]
) -> Shapes:
    r"""Complete the shapes from the equations.

    `i = 1, \ldots, n` gives the extent of an index. The shape of `W_i`, with i an index of a left
    side, becomes a shape of W. Sizes named like tensors are renamed.
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
    taken = {left.base for left in targets} | {*shapes.tensors}
    clashes = sorted((shapes.sizes | {*extents.values()}) & taken)
    renamed = {size: size.upper() if size.islower() else f"N_{size}" for size in clashes}

    def rename(extent: str) -> str:
        return re.sub(r"[^\W\d]\w*", lambda size: renamed.get(size[0], size[0]), extent)

    indices = {index: rename(extent) for index, extent in {**extents, **shapes.indices}.items()}
    bound = {tree.to_word(place) for left in targets for place in left.below}
    tensors: dict[str, tuple[str, ...]] = {}
    for name, shape in shapes.tensors.items():
        stem, _, label = name.rpartition("_")
        alike = [other for other in shapes.tensors if other.rpartition("_")[0] == stem]
        is_each = stem and label in bound and len(label) == 1 and label.islower()
        own = tuple(map(rename, shape))
        if is_each and len(alike) == 1 and label in indices:
            tensors[stem] = (indices[label], *own)
        else:
            tensors[name] = own
    families = {name: tuple(map(rename, shape)) for name, shape in shapes.families.items()}
    stated = frozenset(shapes.indices)
    shapes = replace(shapes, tensors=tensors, families=families, indices=indices)
    return replace(shapes, renamed=renamed, stated=stated)


def write_extent(part: tree.Tree) -> str:
    """Return an extent of sizes and numbers in the notation, or "" for other parts."""
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


def find_states(equations: Sequence[tree.Equation], shapes: Shapes) -> list[tree.Equation]:
    """Return `h[0] = h_0` for each declared initial state `h_0`.

    That is for h where `h_t` is defined, `h_{t-1}` is read, and no equation defines `h_0`.
    """
    parts = tree.find_names(each.right for each in equations)
    before = {part.base for part in parts if part.below and isinstance(part.below[0], tree.Sum)}
    targets = [left for left in tree.find_targets(equations) if left.below]
    given = {left.base for left in targets if tree.to_word(left.below[0]) == "0"}
    found: dict[str, tree.Equation] = {}
    for left in targets:
        if left.base in before - given and f"{left.base}_0" in shapes.tensors:
            zero = tree.Name(left.base, left.token, None, (tree.Number("0"),), "0")
            found[left.base] = tree.Equation(left.token.line, replace(zero, label=""), zero)
    return [*found.values()]


@dataclass(frozen=True, slots=True)
class Read:
    """A resolved name: its places, its power, and whether it is transposed."""

    name: str
    places: tuple[tree.Tree, ...] = ()
    power: tree.Tree | None = None
    is_transposed: bool = False


class Names:
    """Resolver of the names in the equations."""

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
        # Constant places.
        places = [p for part in names for p in self.resolve(part).places]
        linear = [found for p in places if (found := self.find_linear(p, set())) is not None]
        self.fixed = {write_linear(e) for e in linear if not {*e} - self.sizes - {""}}
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

    def make_sizes(self, count: int) -> str:
        """Return free letters for the shape in an advice."""
        taken = self.sizes | self.words
        return ", ".join([letter for letter in "NMKLPQRSTUV" if letter not in taken][:count])

    def is_known(self, name: str) -> bool:
        """Whether the name is declared or defined."""
        known = name in self.defined or name in self.sizes or name in self.shapes.scalars
        return known or self.shapes.find_shape(name) is not None

    def resolve(self, name: tree.Name, *, is_target: bool = False) -> Read:
        """Return the tensor or number of a name; `x_1` is x1 if neither is declared."""
        if name.base in self.squares and name.above == tree.Number("2"):
            name = replace(name, base=f"{name.base}_squared", above=None)
        digits = re.fullmatch(r"(\w*[^\W\d_])(\d+)", name.base)
        if digits and not self.is_known(name.base) and self.is_known(f"{digits[1]}_{digits[2]}"):
            name = replace(name, base=f"{digits[1]}_{digits[2]}")
        full = f"{name.base}_{name.upper}"
        if name.upper and (self.is_known(full) or (is_target and name.upper in self.marks)):
            name = replace(name, base=full, below=name.below[1:], upper="")
        if name.label.isdigit() and not self.is_known(f"{name.base}_{name.label}"):
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
        if tree.has_label(name) and (is_target or not self.is_known(name.base)):
            return Read(below, (), power, is_transposed)
        if name.base in self.sizes and label in {*self.lefts, *self.shapes.tensors}:
            return Read(name.base, (), power)  # `D_z`: the extent D of z
        return Read(name.base, name.below, power, is_transposed)

    def find_reads(self, part: tree.Tree | None) -> set[str]:
        """Return the names that a part reads, without labels."""
        if not isinstance(part, tree.Name):
            inside = () if part is None else tree.find_parts(part)
            return set().union(*map(self.find_reads, inside))
        read = self.resolve(part)
        return {read.name}.union(*map(self.find_reads, (*read.places, read.power)))

    def find_valued(self, part: tree.Tree) -> set[str]:
        """Return the indices whose values enter the part, not only their differences."""
        if isinstance(part, tree.Relation):
            sides = pairwise((part.first, *(side for _, side in part.rest)))
            return set().union(
                *(self.find_valued(tree.Sum((("+", a), ("-", b)))) for a, b in sides)
            )
        if isinstance(part, tree.Name) and part.below:
            inside = [place for place in part.below if self.find_linear(place, set()) is None]
            inside += [part.above] if part.above is not None else []
            return set().union(*map(self.find_valued, inside))
        linear = self.find_linear(part, set())
        if linear is not None:
            own = {name: factor for name, factor in linear.items() if name not in self.sizes | {""}}
            return {*own} if sum(own.values()) else set()
        inside = [*tree.find_parts(part)]
        for each in part.below if isinstance(part, (tree.Big, tree.Call)) else ():
            match each:  # an index, with or without its first value
                case tree.Name() | tree.Relation(_, (("==", _), *_)):
                    inside.remove(each)
        return set().union(*map(self.find_valued, inside))

    def find_linear(self, part: tree.Tree, first: Set[str]) -> dict[str, int] | None:
        """Return integer coefficients of indices, sizes and 1 (under ""); None if not linear."""
        match part:
            case tree.Number(text) if text.isdigit():
                return {"": int(text)}
            case tree.Name(_, _, None, ()):
                return {part.base: 1} | ({"": 1} if part.base in first else {})
            case tree.Name():
                read = self.resolve(part)
                is_plain = not read.places and read.power is None and not read.is_transposed
                return {read.name: 1} if is_plain and read.name in self.sizes else None
            case tree.Sum(parts):
                terms: dict[str, int] = {}
                for sign, term in parts:
                    found = self.find_linear(term, first)
                    if found is None:
                        return None
                    for name, factor in found.items():
                        terms[name] = terms.get(name, 0) + (-factor if sign == "-" else factor)
                return {name: factor for name, factor in terms.items() if factor}
            case tree.Product(
                ((_, tree.Number(text)), ("" | "cdot" | "star", tree.Name() as name))
            ) if text.isdigit():
                found = self.find_linear(name, first)
                return None if found is None else {n: int(text) * k for n, k in found.items()}
        return None


def find_counted(
    equations: Sequence[tree.Equation], ranges: Iterable[str], names: Names
) -> tuple[set[str], MisfitError | None]:
    """Return the indices that count from 1, and the question that remains open.

    An index counts from 1 if the least place that its sum reads is 1, and from 0 if that is 0 or
    less. Indices that are compared, or are plain places of one axis of a tensor, count alike. The t
    of `h_t` counts from 1 if `h_0` is given. An index is open if its least place is above 1, or if
    it is used as a number; so are constant places unless one is 0.
    """
    least: dict[str, int] = {}
    links, bound = list[set[str]](), list[tree.Tree]()
    places: dict[tuple[str, int], set[str]] = {}
    targets = [left for left in tree.find_targets(equations) if left.below]
    starts = {left.base for left in targets if tree.to_word(left.below[0]) == "0"}
    relations = (part for part in tree.walk_parts(equations) if isinstance(part, tree.Relation))
    links += map(tree.to_words, relations)
    for name in tree.find_names(equations):
        for k, place in enumerate(name.below):
            places.setdefault((name.base, k), set()).add(tree.to_word(place))
    for part in tree.find_binders(equations):
        bound += (e.first if isinstance(e, tree.Relation) else e for e in part.below)
        for below in part.below:
            for index, start in find_starts(below):
                inside = part.body if isinstance(part, tree.Big) else part.arguments
                first = start + min(find_shifts(inside, index, starts), default=0)
                least[index] = min(least.get(index, start), start, first)
            if isinstance(below, tree.Relation) or part.above is not None:
                links.append(tree.to_words((below, part.above or below)))
    kept = set(ranges)
    kept |= {tree.to_word(left.below[0]) for left in targets if left.base in starts}
    links += places.values()
    indices = {word for link in [*links, {*least}] for word in link if word[:1].isalpha()}
    indices -= names.numbers
    stated = names.shapes.counted
    if early := [index for index, place in least.items() if place < (stated or 0)]:
        says = f"{early[0]} starts below {stated}, where indices count from {stated}"
        advice = "let its sum start there, and shift its places"
        raise MisfitError(says, find_token(equations, early[0]), advice)
    if stated is not None:  # "1" is the mark of constant places
        return {*indices, "1"} if stated else set(), None
    links = [link & indices for link in links]
    alike = [place & indices for place in places.values()]
    zero = close_links({index for index, place in least.items() if place < 1}, alike, kept)
    counted = {index for index, place in least.items() if place == 1} - zero
    counted = close_links((counted | kept) & (indices | {*ranges}), links, zero)
    zero = close_links(zero, links, counted)
    known = counted | zero
    valued = set[str]().union(*(names.find_valued(each.right) for each in equations)) & indices
    valued &= {*map(tree.to_word, bound)}.union(*places.values())
    fixed = [] if known or "0" in names.fixed else [f"the place {p}" for p in sorted(names.fixed)]
    asked = [*sorted({*least} - known), *sorted(valued - known), *fixed]
    if not asked:
        return counted, None
    says = f"it is open whether {asked[0]} counts from 0 or from 1"
    advice = "add a line: indices count from 0, or: indices count from 1"
    question = MisfitError(says, find_token(equations, asked[0]), advice)
    if asked[0] in least:
        raise question
    return counted, question


def find_token(equations: Sequence[tree.Equation], place: str) -> tree.Token | None:
    """Return the token of an index, or of the tensor that is read at a constant place."""
    for name in tree.find_names(equations):
        if name.base == place or place.removeprefix("the place ") in map(write_extent, name.below):
            return name.token
    return None


def close_links(found: set[str], links: Sequence[set[str]], kept: Set[str]) -> set[str]:
    """Return the closure of `found` under the links, without the words in `kept`."""
    found = set(found)
    while also := {word for link in links if link & found for word in link - found - kept}:
        found |= also
    return found


def find_starts(below: tree.Tree) -> Iterator[tuple[str, int]]:
    """Yield the indices in a range that have a lower bound, each with its least value."""
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


def find_shifts(
    body: tree.Tree | tuple[tree.Tree, ...], index: str, starts: Set[str]
) -> Iterator[int]:
    """Yield the numbers that are added to an index in the places of an unguarded body.

    Tensors in `starts` are excluded: they have a given initial entry.
    """
    parts = [*tree.walk_parts(body)]
    if any(isinstance(part, (tree.Bracket, tree.Cases)) for part in parts):
        return
    for part in parts:
        for place in part.below if isinstance(part, tree.Name) and part.base not in starts else ():
            match place:
                case tree.Sum((("+", tree.Name() as name), (sign, tree.Number(number)))) if (
                    number.isdigit()
                ):
                    if tree.to_word(name) == index:
                        yield int(f"{sign}{number}")


def find_ends(equations: Sequence[tree.Equation], sizes: Set[str]) -> dict[str, str]:
    """Return the last values of indices: the limit of a sum, or the size with the same letter."""
    found: dict[str, str] = {}
    for binder in tree.find_binders(equations):
        if end := tree.to_word(binder.above):
            starts = (index for below in binder.below for index, _ in find_starts(below))
            found |= dict.fromkeys(starts, end)
    places = (tree.to_word(place) for name in tree.find_names(equations) for place in name.below)
    lettered = {word: word.upper() for word in places if word.islower() and word.upper() in sizes}
    return lettered | found


@dataclass(frozen=True)
class Choice:
    """The positions of written indices, the axes of each tensor, and the kind of vectors."""

    places: Mapping[str, tuple[int, ...]]
    axes: Mapping[str, int]
    extents: Mapping[str, str]  # extents of the written indices
    has_rows: bool = True
    is_strict: bool = True  # refuse a product of two rows, which papers write for the inner product
