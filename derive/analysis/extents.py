"""From which shape each size comes, which extent each index has, and which reads are in range.

Guards of a read: the condition of a `where` (negated for the second branch), the condition of a
reduction, every Iverson bracket of a product (for all other factors at any depth), and in an `and`
the parts before.

A row is the domain of a reduction or of a function along an index: an index under a condition.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from derive.analysis import affine
from derive.analysis.facts import (
    Facts,
    find_facts,
    find_range,
    is_integer,
    is_never_negative,
    is_whole,
)
from derive.analysis.safety import find_guarded
from derive.errors import DeriveError, Diagnostic, Mark, suggest
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, is_same_extent
from derive.ir.recurrences import find_reach
from derive.ir.starts import find_lowest
from derive.ir.text import find_marks, find_undeduced, to_text, write_extent
from derive.ir.walk import (
    Names,
    find_accesses,
    find_all_indices,
    find_free,
    find_size_names,
    find_sizes,
    is_bracket,
    map_children,
    rewrite_bottom_up,
    substitute,
    walk,
)

# Sizes and extents: which size comes from which shape, and one extent for each index.


@dataclass(frozen=True, slots=True)
class SizeSource:
    """The axis of an argument that determines a size: `coefficient * size + rest` is its extent."""

    name: str
    tensor: ir.Tensor
    place: int
    coefficient: ir.Expr = ir.ONE
    rest: ir.Expr = ir.ZERO

    @property
    def is_plain(self) -> bool:
        """Whether the extent is the size alone."""
        return isinstance(self.tensor.shape[self.place], ir.Size)


def find_size_sources(system: ir.System) -> tuple[SizeSource, ...]:
    """The sources of the sizes that are no arguments; each may use arguments and sizes before it.

    Raises DeriveError (`size-untold`) for a size without a source.
    """
    for mistake in find_size_mistakes(system):
        raise DeriveError(mistake)
    return tuple(_find_sources(system).values())


def find_size_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for sizes that no argument determines."""
    known = sorted({*_find_sources(system), *(size.name for size in system.sizes)})
    for name in find_sizes(system):
        if name not in known:
            yield _report_unknown_size(name, system, known)


def find_open_sizes(system: ir.System) -> tuple[str, ...]:
    """The sizes that no argument determines, which must become arguments themselves.

    An extent with several unknowns, `H*D`, is solved for its last one if the others are arguments.
    """
    bounds = [t.below for t in system.tensors if t.kind == "int" and t.below is not None]
    needed = (*find_sizes(system), *find_size_names(*bounds))
    keywords: dict[str, None] = {}
    while True:
        arguments = (*system.sizes, *map(ir.SizeInput, keywords))
        known = {*_find_sources(replace(system, sizes=arguments)), *(e.name for e in arguments)}
        missing = [name for name in needed if name not in known]
        if not missing:
            return tuple(keywords)
        keywords[missing[0]] = None


def _find_sources(system: ir.System) -> dict[str, SizeSource]:
    """The source of each size that is no argument: plain extents first, then solved ones."""
    given = {size.name for size in system.sizes}
    sources: dict[str, SizeSource] = {}
    places = [(tensor, k) for tensor in system.tensors for k in range(len(tensor.shape))]
    for tensor, place in places:
        extent = tensor.shape[place]
        if isinstance(extent, ir.Size) and extent.name not in given:
            sources.setdefault(extent.name, SizeSource(extent.name, tensor, place))
    count = -1
    while count < (count := len(sources)):
        for tensor, place in places:
            extent = tensor.shape[place]
            unknown = [n for n in find_size_names(extent) if n not in sources and n not in given]
            line = Polynomial.of(extent)
            split = line.split_linear(ir.Size(unknown[0])) if len(unknown) == 1 else None
            if split is not None:  # an extent that is linear in its only unknown size
                parts = (part.to_expr() for part in split)
                sources[unknown[0]] = SizeSource(unknown[0], tensor, place, *parts)
    return sources


def _report_unknown_size(name: str, system: ir.System, known: list[str]) -> Diagnostic:
    facts = []
    for tensor in system.tensors:
        for place, extent in enumerate(tensor.shape):
            if name in find_size_names(extent):
                facts.append(
                    f"place {place} of {tensor.name} has extent {write_extent(extent)}, "
                    f"which alone does not determine {name}"
                )
    for index in find_all_indices(system):
        if name in find_size_names(index.extent):
            facts.append(f"index {index.name} has extent {write_extent(index.extent)}")
    return Diagnostic(
        "size-untold",
        f"no shape determines the size {name}",
        facts=tuple(facts),
        help=("" if facts else suggest(name, known))
        or f"make it an argument by a line before: size {name}",
    )


def find_extent_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for indices with two extents, and for extents that are not integers."""
    first: dict[str, ir.Index] = {}
    for index in find_all_indices(system):
        if not _is_integral(index.extent):
            yield _report_fraction(index.extent, f"index {index.name}")
        known = first.setdefault(index.name, index)
        if not is_same_extent(known.extent, index.extent):
            yield _report_two_extents(known, index, system)
    for tensor in system.tensors:
        for place, length in enumerate(tensor.shape):
            if not _is_integral(length):
                yield _report_fraction(length, f"place {place} of {tensor.name}")


def _report_fraction(extent: ir.Expr, owner: str) -> Diagnostic:
    message = f"the extent {write_extent(extent)} of {owner} is no whole number"
    return Diagnostic("extent-form", message, help="divide with //: floor(a/b) in SymPy")


def _is_integral(extent: ir.Expr) -> bool:
    """Whether the extent is an integer at each of six choices of sizes."""
    value = Polynomial.of(extent)
    for start in range(1, 7):
        chosen = {name: start + k for k, name in enumerate(find_size_names(extent))}
        try:
            if value.at(chosen).denominator != 1:
                return False
        except (TypeError, KeyError, ZeroDivisionError, OverflowError):
            return True  # not evaluable here; checked where it is used
    return True


def _report_two_extents(one: ir.Index, other: ir.Index, system: ir.System) -> Diagnostic:
    equation = next((e for e in system.equations if find_marks(e, other)), system.equations[-1])
    return Diagnostic(
        "index-extents",
        f"index {one.name} has two extents, "
        f"{write_extent(one.extent)} and {write_extent(other.extent)}",
        find_marks(equation, other),
        (describe_extent(one, system), describe_extent(other, system)),
        "give one of them a name of its own",
    )


def describe_extent(index: ir.Index, system: ir.System) -> str:
    """The fact for a message, `c has extent 64, from place 2 of K`."""
    written = f"{index.name} has extent {write_extent(index.extent)}"
    uses = (
        (access.tensor, number)
        for equation in system.equations
        for access in find_accesses(equation.value)
        for number, (place, extent) in enumerate(
            zip(access.places, access.tensor.shape, strict=False)
        )
        if place is index and is_same_extent(extent, index.extent)
    )
    origin = min(uses, key=lambda use: use[0] not in system.inputs, default=None)
    if origin is None:
        return f"{written}, as declared"
    return f"{written}, from place {origin[1]} of {origin[0].name}"


@dataclass(frozen=True, slots=True)
class Read:
    """One place of an access in an equation."""

    access: ir.Access
    number: int
    equation: ir.Equation
    system: ir.System

    @property
    def place(self) -> ir.Expr:
        """The position read."""
        return self.access.places[self.number]

    @property
    def extent(self) -> ir.Expr:
        """The extent of the axis that is read."""
        return self.access.tensor.shape[self.number]

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The mark under the place in the equation's text."""
        return find_marks(self.equation, self.access, self.place)


def find_read_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for reads that may be out of range, and for indices used with other extents."""
    declared = {index.name for index in find_undeduced(system)}
    counts = Counter(equation.target.tensor for equation in system.equations)
    lowest = find_lowest(system)
    filled = _find_filled(system)
    for equation in system.equations:
        for access, facts in find_guarded(equation.value, filled):
            for number in range(len(access.places)):
                read = Read(access, number, equation, system)
                yield from _find_position_mistakes(read)
                yield from _find_fractions(read)
                low = lowest.get((access.tensor, number), 0)
                yield from _find_range_mistakes(read, facts, declared, low)
        for number, place in enumerate(equation.target.places):
            if counts[equation.target.tensor] > 1:
                break  # each equation fills a part of the tensor
            read = Read(equation.target, number, equation, system)
            if isinstance(place, ir.Index) and not is_same_extent(place.extent, read.extent):
                yield _report_other_extent(read, place)


def _find_filled(system: ir.System) -> Facts:
    """The facts on extents that equations for fixed places imply: h[1] = .. has extent >= 2."""
    found: list[Polynomial] = []
    for target in (equation.target for equation in system.equations):
        for place, extent in zip(target.places, target.tensor.shape, strict=True):
            if not find_free(place):
                found += [here := Polynomial.of(place), Polynomial.of(extent) - ONE - here]
    return tuple(dict.fromkeys(each for each in found if each.constant is None))


def _find_position_mistakes(read: Read) -> Iterator[Diagnostic]:
    """The errors for positions read from non-integer tensors or from unbounded, unclipped ones."""
    access, equation = read.access, read.equation
    clips = [
        part for part in walk(read.place) if isinstance(part, ir.Call) and part.function == "clip"
    ]
    clipped = {inside for clip in clips for inside in walk(clip.arguments[0])}
    for here in walk(read.place):
        if not isinstance(here, ir.Access):
            continue
        is_given = here.tensor in read.system.inputs
        if here.tensor.kind != "int":
            code, lacks = "position-not-integer", "holds no integers"
        elif here.tensor.below is None and here not in clipped and is_given:
            code, lacks = "position-unbounded", "has no bound"
        else:
            continue
        advice = "a position is a whole number: take floor(..) of it"
        if is_given:
            shape = ", ".join(map(write_extent, here.tensor.shape))
            bound = write_extent(read.extent)
            advice = f"declare int {here.tensor.name}[{shape}] < {bound}"
        message = f"{here.tensor.name} is used as a position of {access.tensor.name} but {lacks}"
        yield Diagnostic(code, message, find_marks(equation, access, here), help=advice)


def _find_fractions(read: Read) -> Iterator[Diagnostic]:
    """The error for a position such as `i / 2` that is no integer; none if it reads a tensor."""
    value = Polynomial.of(read.place)
    if is_whole(value) or any(isinstance(here, ir.Access) for here in walk(read.place)):
        return
    yield Diagnostic(
        "position-not-integer",
        f"{write_extent(read.place)} is no whole number, as a place must be",
        read.marks,
        help="divide with //, i // 2, which is floor(i/2) in SymPy"
        if is_integer(value)
        else "a place holds indices, sizes, whole numbers and integer tensors",
    )


def _find_range_mistakes(
    read: Read, facts: Facts, declared: set[str], lowest: int
) -> Iterator[Diagnostic]:
    """The error for a read not shown to be in range; places exist from `lowest` on, -1 of h[-1]."""
    place, extent = read.place, read.extent
    if isinstance(place, ir.Index) and is_same_extent(place.extent, extent):
        return
    length = Polynomial.of(extent)
    starts, ends = find_sides(place, length, facts)
    if lowest:  # the initial values of a recurrence have negative places
        starts = is_never_negative(Polynomial.of(place) - Polynomial.of(lowest), facts)
    if isinstance(place, ir.Index):
        # An index with a deduced extent must not silently leave out the end of another tensor.
        falls_short = is_never_negative(length - Polynomial.of(place.extent))
        is_given = read.access.tensor in read.system.inputs
        if not ends or (falls_short and is_given and place.name not in declared):
            yield _report_other_extent(read, place)
    elif not (starts and ends):
        yield _report_outside(_restore_read(read), starts=starts, ends=ends)


def _restore_read(read: Read) -> Read:
    """The read as the user wrote it, with equations that the compiler split off inlined again."""
    system = read.system
    written = {equation.target.tensor.name for equation in system.written}
    made = {e.target.tensor: e for e in system.equations if e.target.tensor.name not in written}

    def act(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Access) or expr.tensor not in made:
            return expr
        equation = made[expr.tensor]
        places = dict(zip(equation.target.places, expr.places, strict=True))
        return rewrite_bottom_up(substitute(equation.value, places), act)

    if not written or not made:
        return read
    access = rewrite_bottom_up(read.access, act)
    assert isinstance(access, ir.Access)
    value = rewrite_bottom_up(read.equation.value, act)
    return replace(read, access=access, equation=ir.Equation(read.equation.target, value))


def find_sides(place: ir.Expr, length: Polynomial, facts: Facts) -> tuple[bool, bool]:
    """The pair (place >= 0 is shown, place < length is shown)."""
    match place:
        case ir.Call("max" | "min" as function, parts):
            starts, ends = zip(*(find_sides(each, length, facts) for each in parts), strict=True)
            is_max = function == "max"
            return (any if is_max else all)(starts), (all if is_max else any)(ends)
    value = Polynomial.of(place)
    return is_never_negative(value, facts), is_never_negative(length - ONE - value, facts)


def _report_other_extent(read: Read, index: ir.Index) -> Diagnostic:
    here, there = write_extent(read.extent), write_extent(index.extent)
    tensor = read.access.tensor.name
    origin = f"{index.name} has extent {here}, from place {read.number} of {tensor}"
    return Diagnostic(
        "index-extents",
        f"index {index.name} has two extents, {there} and {here}",
        read.marks,
        (describe_extent(index, read.system), origin),
        _propose_indices(read, index, here),
    )


def _propose_indices(read: Read, index: ir.Index, here: str) -> str:
    """The advice for an index with two extents: place 0, another index, or a guard."""
    tensor = read.access.tensor.name
    if Polynomial.of(read.extent) == ONE:
        return f"an axis of extent 1 is not broadcast: write 0 for {index.name} in {tensor}"
    gap = Polynomial.of(read.extent) - Polynomial.of(index.extent)
    other = f"guard {tensor} with [{index.name} < {here}]"
    if is_never_negative(gap):
        other = f"declare index {index.name} < {write_extent(index.extent)}"
    return f"give one of them a name of its own, or {other}"


def _report_outside(read: Read, *, starts: bool, ends: bool) -> Diagnostic:
    place, tensor = read.place, read.access.tensor.name
    written, bounds = write_extent(place), find_range(place)
    facts = [f"place {read.number} of {tensor} has extent {write_extent(read.extent)}"]
    if bounds.low is not None and bounds.high is not None and find_free(place):
        low, high = write_extent(bounds.low), write_extent(bounds.high)
        facts.append(f"{written} runs from {low} to {high}")
    facts += [describe_extent(index, read.system) for index in find_free(place)]
    return Diagnostic(
        "reads-outside",
        f"{to_text(read.access)} may read outside {tensor}",
        read.marks,
        tuple(facts),
        _propose_guard(read, starts=starts, ends=ends),
    )


def _propose_guard(read: Read, *, starts: bool, ends: bool) -> str:
    bounds = find_range(read.place)
    end = bounds.low if not starts else bounds.high
    if read.access.tensor is read.equation.target.tensor and end is not None:
        places = list(map(to_text, read.equation.target.places))
        places[read.number] = write_extent(end)
        there = f"{read.access.tensor.name}[{','.join(places)}] = .."
        side = "behind the last" if starts else "before the first"
        return f"give the value {side} place on a line above: {there}"
    written, extent = write_extent(read.place), write_extent(read.extent)
    if not find_free(read.place):
        last = f"positions run from 0 to {write_extent(Polynomial.of(read.extent) - ONE)}"
        is_open = starts and Polynomial.of(read.extent).constant is None
        return f"{last}; guard it with a factor [{written} < {extent}]" if is_open else last
    if ends:
        guard = f"{written} >= 0"
    else:
        guard = f"{written} < {extent}" if starts else f"0 <= {written} < {extent}"
    return f"guard it with a factor [{guard}]"


def find_guard(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """The condition `0 <= place < extent`, without parts that always hold."""
    value, length = Polynomial.of(place), Polynomial.of(extent)
    parts: list[ir.Expr] = [] if is_never_negative(value) else [ir.Compare(">=", place, ir.ZERO)]
    if not is_never_negative(length - ONE - value):
        parts.append(ir.Compare("<", place, extent))
    return ir.all_of(*parts)


def is_always(condition: ir.Expr, facts: Facts = ()) -> bool:
    """Whether a condition is shown to hold for all values of indices, sizes and tensors."""
    return decide_condition(condition, facts) is True


def decide_condition(condition: ir.Expr, facts: Facts = ()) -> bool | None:
    """The truth of a condition for all indices, sizes and tensors; None if it is not shown."""
    match condition:
        case ir.Truth(value):
            return value
        case ir.Compare(relation, left, right):
            for held, asked in ((True, relation), (False, ir.NEGATED[relation])):
                wanted = find_facts(ir.Compare(asked, left, right))
                if wanted and all(is_never_negative(each, facts) for each in wanted):
                    return held
        case ir.And(parts) | ir.Or(parts):
            found = {decide_condition(part, facts) for part in parts}
            last = isinstance(condition, ir.Or)
            return last if last in found else None if None in found else not last
        case ir.Not(part):
            truth = decide_condition(part, facts)
            return None if truth is None else not truth
    return None


def take_decided(expr: ir.Expr, facts: Facts = ()) -> ir.Expr:
    """The branch of a `where` whose condition always or never holds; other expressions as is."""
    if isinstance(expr, ir.Where) and (held := decide_condition(expr.condition, facts)) is not None:
        return expr.then if held else expr.other
    return expr


def drop_false_reads(system: ir.System) -> ir.System:
    """The system without reads at fixed places, such as x[-2], whose guard is never true.

    A guard of sizes may be true where they are 0. Other values stay under a false guard, so that
    their gradients are zeros. A read that needs a guard at some sizes, such as x[1], becomes a sum
    over the places that are there.
    """
    names = Names.of(system)
    defined = {tensor for tensor, own in find_reach(system).items() if tensor in own}

    def drop(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Where(condition, then, other):
                held = decide_condition(lower_sizes(condition))
                if held is not None and _is_fixed(other if held else then):
                    return then if held else other
            case ir.Mul(factors):
                guards = (lower_sizes(f.condition) for f in factors if is_bracket(f))
                if _is_fixed(expr) and any(decide_condition(each) is False for each in guards):
                    return ir.ZERO
            case ir.Reduce("sum", _, condition, body):
                if _is_fixed(body) and decide_condition(lower_sizes(condition)) is False:
                    return ir.ZERO
        return expr

    def open_read(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Access) or expr.tensor in defined or expr.tensor.kind != "real":
            return expr
        places, here = list(expr.places), dict[ir.Index, ir.Expr]()
        for k, (place, extent) in enumerate(zip(places, expr.tensor.shape, strict=True)):
            is_fixed = not find_free(place) and not find_accesses(place)
            if is_fixed and find_guard(place, extent) is not ir.TRUE:
                places[k] = index = names.take_index(ir.Index("n", extent))
                here[index] = ir.Compare("==", index, place)
        read = ir.Access(expr.tensor, tuple(places))
        return ir.Reduce("sum", tuple(here), ir.all_of(*here.values()), read) if here else expr

    equations = tuple(
        ir.Equation(e.target, rewrite_bottom_up(rewrite_bottom_up(e.value, drop), open_read))
        for e in system.equations
    )
    if equations == system.equations:
        return system
    return replace(system, equations=equations, written=system.written or system.equations)


def _is_fixed(expr: ir.Expr) -> bool:
    """Whether an expression contains a read at a place without indices."""
    places = (place for access in find_accesses(expr) for place in access.places)
    return any(not find_free(place) for place in places)


def is_never_empty(condition: ir.Expr, index: ir.Index) -> bool:
    """Whether a condition is shown to hold for some value of an index, for all other indices."""
    if condition is ir.TRUE or not is_never_negative(Polynomial.of(index.extent) - ONE):
        return is_never_negative(Polynomial.of(index.extent) - ONE)
    if find_accesses(condition):
        return False
    relations: list[affine.Relation] = []
    for part in ir.split_and(condition):
        facts = find_facts(part) if isinstance(part, ir.Compare) else ()
        if not facts:
            return False
        relations += [("least", fact, True) for fact in facts]
    return affine.is_never_empty(index, relations)


def is_filled(index: ir.Index) -> bool:
    """Whether an index is shown to have a value even where sizes are 0."""
    return is_above_zero(index.extent)


def is_above_zero(number: ir.Expr) -> bool:
    """Whether a number is shown to be >= 1 even where sizes are 0."""
    return is_never_negative(Polynomial.of(lower_sizes(number)) - ONE)


def lower_sizes(expr: ir.Expr, kept: Collection[str] = ()) -> ir.Expr:
    """The expression with each size less 1: if it holds for sizes >= 1, the original does for 0."""
    sizes = (ir.Size(name) for name in find_size_names(expr) if name not in kept)
    return substitute(expr, {size: ir.Add((size, ir.MINUS_ONE)) for size in sizes})


def match_index(one: ir.Expr, other: ir.Expr, summed: ir.Index) -> ir.Index | None:
    """The free index of `one` that, put for `summed` in `other`, makes both equal; None without."""
    for index in find_free(one):
        if index.extent is summed.extent and index not in find_free(other):
            if is_alike(substitute(other, {summed: index}), one):
                return index
        elif index is summed and is_alike(one, other):
            return index
    return None


def align_condition(condition: ir.Expr, known: ir.Expr) -> ir.Expr:
    """The condition with its parts written as in `known`: j != i for i != j."""
    parts = {_orient(part): part for part in ir.split_and(known)}
    return ir.all_of(*(parts.get(_orient(part), part) for part in ir.split_and(condition)))


def _orient(condition: ir.Expr) -> ir.Expr:
    match condition:
        case ir.Compare(relation, left, right) if relation in {">", ">="} or (
            relation in {"==", "!="} and to_text(right) < to_text(left)
        ):
            return ir.Compare(ir.MIRRORED[relation], right, left)
    return condition


def is_alike(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether two expressions are equal up to the names of bound indices."""
    return one is other or number_indices(one) is number_indices(other)


def number_indices(expr: ir.Expr, depth: int = 0) -> ir.Expr:
    """The expression with bound indices numbered from outside to inside (de Bruijn levels)."""
    if isinstance(expr, ir.Reduce):
        numbered = (ir.Index(f"@b{depth + k}", i.extent) for k, i in enumerate(expr.bound))
        new: dict[ir.Expr, ir.Expr] = dict(zip(expr.bound, numbered, strict=True))
        condition, body = (substitute(part, new) for part in (expr.condition, expr.body))
        expr = ir.Reduce(expr.kind, tuple(new.values()), condition, body)  # type: ignore[arg-type]
        depth += len(new)
    return map_children(expr, lambda child: number_indices(child, depth))


@lru_cache(maxsize=1 << 14)
def to_key(expr: ir.Expr) -> tuple[ir.Expr, tuple[ir.Index, ...]]:
    """The pair (expression, its free indices), with indices numbered: equal for renamed copies."""
    indices = find_free(expr)
    plain = {i: ir.Index(f"@{k}", i.extent) for k, i in enumerate(indices)}
    return substitute(number_indices(expr), plain), indices  # type: ignore[arg-type]
