"""From the record of a run to a readable system of equations, pass by pass.

prune     drop the steps that no result depends on
copies    replace a copy by its source
views     write `q = (x @ w).view(B, S, H, D)` as an equation of q[b,s,h,d]
inline    inline a step without a name that is read once
split     split an index i that is read as i//D and i%D into h and d
rename    name tensors by the variables of the code, indices by their sizes; one extent per index
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from keyword import iskeyword

from derive.analysis.affine import ravel, to_place, unravel
from derive.analysis.places import split_merged
from derive.frontend.torch.exprs import (
    add,
    count_nodes,
    multiply,
    reduce_over,
    substitute_at,
    write_place,
)
from derive.frontend.torch.trace import Shadow, Trace, View, hint_of
from derive.ir import nodes as ir
from derive.ir.functions import REDUCTIONS
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import (
    Names,
    find_accesses,
    find_free,
    find_size_names,
    find_sizes,
    is_reading,
    map_children,
    rewrite_bottom_up,
    walk,
)
from derive.rewrite.rule import drop_unread


@dataclass
class Draft:
    """The equations between two passes, in order, and the names of their tensors in the code."""

    equations: dict[ir.Tensor, ir.Equation]
    names: dict[ir.Tensor, str]
    results: list[ir.Tensor]

    def put_equation(self, old: ir.Tensor, target: ir.Access, value: ir.Expr) -> None:
        """Replace the equation of `old` by `target = value`; its tensor takes over the name."""
        new = ir.Equation(target, value)
        every = (new if tensor is old else each for tensor, each in self.equations.items())
        self.equations = {each.target.tensor: each for each in every}
        self.names[target.tensor] = self.names[old]

    def map_reads(self, tensor: ir.Tensor, read: Callable[[ir.Access], ir.Expr]) -> None:
        """Replace every access of a tensor in the draft by `read(access)`."""
        for reader, each in self.equations.items():
            if is_reading(each.value, tensor):
                self.equations[reader] = ir.Equation(
                    each.target, map_reads(each.value, tensor, read)
                )


def map_reads(value: ir.Expr, tensor: ir.Tensor, read: Callable[[ir.Access], ir.Expr]) -> ir.Expr:
    """Return the value with every access of a tensor replaced by `read(access)`."""

    def act(here: ir.Expr) -> ir.Expr:
        if isinstance(here, ir.Access) and here.tensor is tensor:
            return read(here)
        return here

    return rewrite_bottom_up(value, act)


def prune(draft: Draft) -> None:
    """Drop the steps that no result depends on."""
    kept = drop_unread([*draft.equations.values()], draft.results)
    draft.equations = {each.target.tensor: each for each in kept}


def drop_copies(draft: Draft) -> None:
    """Replace a tensor that is a copy of a made one by its source, unless both are results."""
    for tensor, equation in list(draft.equations.items()):
        value = equation.value
        if not isinstance(value, ir.Access) or value.places != equation.target.places:
            continue
        other = value.tensor
        if other not in draft.equations or (tensor in draft.results and other in draft.results):
            continue
        draft.results = [other if each is tensor else each for each in draft.results]
        del draft.equations[tensor]

        def read(access: ir.Access, other: ir.Tensor = other) -> ir.Expr:
            return ir.Access(other, access.places)

        draft.map_reads(tensor, read)
        draft.names[other] = draft.names[other] or draft.names[tensor]


def name_views(views: Sequence[View], draft: Draft) -> None:
    """Name unnamed steps after variables of their views, and take a view's shape if longer."""
    chosen: dict[ir.Tensor, tuple[View, tuple[ir.Index, ...]]] = {}
    for view in views:
        tensor = view.value.tensor
        if tensor not in draft.equations or draft.names[tensor] not in {"", view.name}:
            continue
        if _multiply_extents(index.extent for index in view.indices) != _multiply_extents(
            tensor.shape
        ):
            continue
        draft.names[tensor] = view.name
        digits = _find_digits(view)
        axes = sum(extent is not ir.ONE for extent in tensor.shape)
        least = len(chosen[tensor][1]) if tensor in chosen else axes
        if len(digits) > least and tensor not in draft.results:
            chosen[tensor] = view, digits
    for tensor, (view, digits) in chosen.items():
        _write_as(draft, tensor, view, digits)


def _multiply_extents(extents: Iterable[ir.Expr]) -> Polynomial:
    return Polynomial.of(ir.product_of([*extents]))


def _find_digits(view: View) -> tuple[ir.Index, ...]:
    """Return indices whose mixed-radix number is a reshape's position; () for other views."""
    shape = view.value.tensor.shape
    digits = split_merged(to_place(ravel(view.value.places, shape)), ir.product_of(shape))
    return digits if {*digits} == {i for i in view.indices if i.extent is not ir.ONE} else ()


def _write_as(
    draft: Draft, tensor: ir.Tensor, view: View, digits: Sequence[ir.Index]
) -> ir.Tensor | None:
    """Replace a tensor by a new one with the shape of a view; None where that is impossible."""
    indices = tuple(index for index in view.indices if index.extent is not ir.ONE)
    new = ir.Tensor(tensor.name, tuple(index.extent for index in indices), tensor.kind)
    old = draft.equations[tensor]
    try:
        value = substitute_at(old.value, find_free(old.target), view.value.places)
    except ValueError:  # a bound index would become a computed place
        return None

    def read(access: ir.Access) -> ir.Expr:
        found = unravel(ravel(access.places, tensor.shape), [index.extent for index in digits])
        places = dict(zip(digits, found, strict=True))
        return ir.Access(new, tuple(to_place(places[index]) for index in indices))

    draft.map_reads(tensor, read)
    draft.put_equation(tensor, ir.Access(new, indices), value)
    return new


def drop_ones(draft: Draft) -> None:
    """Drop the axes of length 1 of steps that are no results."""
    for tensor in list(draft.equations):
        kept = [k for k, extent in enumerate(tensor.shape) if extent is not ir.ONE]
        if len(kept) == len(tensor.shape) or tensor in draft.results:
            continue
        new = replace(tensor, shape=tuple(tensor.shape[k] for k in kept))

        def read(access: ir.Access, new: ir.Tensor = new, kept: Sequence[int] = kept) -> ir.Access:
            return ir.Access(new, tuple(access.places[k] for k in kept))

        draft.map_reads(tensor, read)
        draft.put_equation(
            tensor, read(draft.equations[tensor].target), draft.equations[tensor].value
        )


def split_indices(trace: Trace, draft: Draft) -> None:
    """Rewrite `a[i,..] = .. i//H .. i%H ..` over i < B*H as an equation of a[b,h,..]."""
    todo = list(draft.equations)
    while todo:
        tensor = todo.pop(0)
        target, value = draft.equations[tensor].target, draft.equations[tensor].value
        indices = find_free(target)
        is_read = any(is_reading(other.value, tensor) for other in draft.equations.values())
        if tensor in draft.results and is_read:
            continue
        found = (_halve(trace, one, value) for one in indices)
        half = next(filter(None, found), None)
        if half is None:
            continue
        index, parts, place = half
        if tensor in draft.results:
            left = tuple(substitute_at(each, (index,), (place,)) for each in target.places)
            value = substitute_at(value, (index,), (place,))
            draft.put_equation(tensor, ir.Access(tensor, left), value)
            todo.insert(0, tensor)
            continue
        pieces = tuple(each for one in indices for each in (parts if one is index else (one,)))
        places = tuple(place if one is index else one for one in indices)
        view = View("", pieces, ir.Access(tensor, places))
        digits = _find_digits(view)
        new = _write_as(draft, tensor, view, digits) if digits else None
        if new is not None:
            todo.insert(0, new)


def _halve(
    trace: Trace, index: ir.Index, body: ir.Expr
) -> tuple[ir.Index, tuple[ir.Index, ir.Index], ir.Expr] | None:
    """Return (i, (h, d), h*D + d) for an index i < H*D that the body divides by D; else None."""
    for part in walk(body):
        match part:
            case ir.Call("floordiv", (over, under)) if over is index and not find_free(under):
                divisor = Polynomial.of(under)
                high = divide_wholly(Polynomial.of(index.extent), divisor)
                if high is not None:
                    is_number = divisor.constant is not None
                    outer = trace.index(high, "g" if is_number else "")
                    inner = trace.index(divisor, hint_of(index) if is_number else "")
                    return index, (outer, inner), add(multiply(divisor.to_expr(), outer), inner)
    return None


def split_sums(trace: Trace, draft: Draft) -> None:
    """Rewrite `sum[i](.. i//D .. i%D ..)` over i < H*D as a sum over h and d."""

    def visit(here: ir.Expr) -> ir.Expr:
        new = map_children(here, visit)
        if not isinstance(new, ir.Reduce) or new.kind == "argmax":
            return new
        kept = {i for part in walk(new.body) if isinstance(part, ir.Along) for i in part.indices}
        halves = (_halve(trace, index, new.body) for index in new.bound if index not in kept)
        half = next(filter(None, halves), None)
        if half is None:
            return new
        index, parts, place = half
        bound = (each for one in new.bound for each in (parts if one is index else (one,)))
        condition, body = (
            substitute_at(part, (index,), (place,)) for part in (new.condition, new.body)
        )
        return visit(ir.Reduce(new.kind, tuple(bound), condition, body))

    draft.equations = {t: ir.Equation(e.target, visit(e.value)) for t, e in draft.equations.items()}


# words of the notation that name no tensor or index
_WORDS = (*(row.name for row in REDUCTIONS if row.is_kept), "exp", "log", "sqrt", "oo", "pi")
_WORDS += ("where", "delta", "index", "size")
_NEXT = 3  # letters tried after the preferred one, before numbers


class _Names:
    """The namespace of tensors, sizes, scalars and indices; each index has one extent."""

    def __init__(self, taken: Sequence[str], sizes: Sequence[str]) -> None:
        self.taken = Names((*taken, *_WORDS))
        self.wishes = dict.fromkeys((*(size.lower() for size in sizes), "i"))
        self.extents: dict[str, ir.Expr] = {}

    def make_name(self, wish: str) -> str:
        """Return a new name for a tensor, the wish if it is free."""
        wish = wish if wish.isidentifier() and not iskeyword(wish) else "t"
        wish = wish.lstrip("_") or "t"
        return self.taken.take(Names((*self.taken, *self.extents)).propose(wish))

    def index(self, index: ir.Index, used: Mapping[str, None]) -> str:
        """Return a name for an index: not in `used`, and of the same extent wherever it occurs."""
        extent, wish = index.extent, hint_of(index) or "i"
        if wish == "i" and not hint_of(index) and isinstance(extent, ir.Size):
            wish = extent.name.lower() if extent.name[0].isupper() else "i"
        # the next letters that no size prefers, then numbers
        following = (
            [chr(ord(wish) + step) for step in range(1, _NEXT + 1)] if len(wish) == 1 else []
        )
        near = (each for each in following if each <= "z" and each not in self.wishes)
        for name in chain((wish,), near, (f"{wish}{number}" for number in count(1))):
            is_free = name not in self.taken and self.extents.get(name, extent) is extent
            if name not in used and is_free:
                self.extents[name] = extent
                return name
        raise AssertionError


def rename(
    draft: Draft,
    inputs: tuple[ir.Tensor | ir.ScalarInput, ...],
    sizes: Mapping[str, bool],
    name: str,
) -> ir.System:
    """Return the draft's system, with readable names of tensors and indices.

    `sizes` says of each size whether it is an argument of the code. Such a size stays an argument,
    except where it is a whole extent.
    """
    atoms = (part for each in draft.equations.values() for part in walk(each.value))
    known = (part.name for part in atoms if isinstance(part, (ir.Size, ir.Scalar)))
    names = _Names([*(entry.name for entry in inputs), *known, *sizes, name], [*sizes])
    tensors: dict[ir.Tensor, ir.Tensor] = {}
    equations = []
    for tensor, each in draft.equations.items():
        wish = draft.names[tensor] or ("out" if tensor in draft.results else "t")
        tensors[tensor] = ir.Tensor(names.make_name(wish), tensor.shape, tensor.kind)
        equations.append(_rename_equation(names, tensors, each.target, each.value))
    results = tuple(tensors[tensor] for tensor in draft.results)
    system = ir.System(name, inputs, (), tuple(equations), results)
    extents = [extent for tensor in system.tensors for extent in tensor.shape]
    whole = [extent for extent in extents if isinstance(extent, ir.Size)]
    free = {*find_sizes(system)} - {*find_size_names(*whole)}
    free -= {size for size in find_size_names(*extents) if not sizes[size]}
    return replace(system, sizes=tuple(ir.SizeInput(size) for size in sizes if size in free))


def _rename_equation(
    names: _Names, tensors: Mapping[ir.Tensor, ir.Tensor], left: ir.Access, value: ir.Expr
) -> ir.Equation:
    new: dict[ir.Index, ir.Index] = {}
    first = {part for place in left.places for part in find_free(place)}
    used: dict[str, None] = {}

    def rename(index: ir.Index) -> ir.Index:
        if index not in new:
            name = names.index(index, used)
            used[name] = None
            new[index] = ir.Index(name, index.extent)
        return new[index]

    def visit(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Index():
                return rename(here)
            case ir.Access(read, places):
                written = (visit(write_place(place, first)) for place in places)
                return ir.Access(tensors.get(read, read), tuple(written))
            case ir.Compare(relation, left, right):
                return ir.Compare(relation, *(visit(write_place(s, first)) for s in (left, right)))
            case ir.Reduce(kind, bound, condition, body):
                bound = tuple(map(rename, bound))
                return reduce_over(kind, bound, visit(body), visit(condition))
            case ir.Along(kind, _, condition, body):
                index, *columns = map(rename, here.indices)
                return ir.Along(kind, index, visit(condition), visit(body), *columns)
        return map_children(here, visit)

    target = ir.Access(tensors[left.tensor], tuple(visit(place) for place in left.places))
    return ir.Equation(target, visit(value))


_MOST_NODES = 40  # the largest equation that inlining may make


def collect(
    trace: Trace,
    results: Sequence[Shadow],
    inputs: Sequence[ir.Tensor | ir.ScalarInput],
    sizes: Mapping[str, bool],
    name: str,
) -> ir.System:
    """Return the readable system, called `name`, that computes these results of a run."""
    draft = _draft(trace, results)
    prune(draft)
    drop_copies(draft)
    name_views(trace.views, draft)
    _inline(draft)
    prune(draft)
    drop_copies(draft)
    drop_ones(draft)
    split_indices(trace, draft)
    split_sums(trace, draft)
    return rename(draft, tuple(inputs), sizes, name)


def _draft(trace: Trace, results: Sequence[Shadow]) -> Draft:
    """Return the run's steps as a draft, in which each result has an equation of its own."""
    found: list[ir.Tensor] = []
    for shadow in results:
        value = trace.read_number(shadow, shadow.indices)
        known = None
        if isinstance(value, ir.Access) and value.places == shadow.indices:
            known = value.tensor if value.tensor in trace.steps else None
        if known is None or known in found:
            trace.define(shadow.indices, value, "real" if shadow.kind == "bool" else shadow.kind)
            known = [*trace.steps][-1]
        found.append(known)
    return Draft(dict(trace.steps), dict(trace.names), found)


def _inline(draft: Draft) -> None:
    """Inline the unnamed steps that are read once."""
    uses: dict[ir.Tensor, int] = {}

    def count_reads(value: ir.Expr) -> None:
        """Count the reads; a shared node counts at each occurrence."""
        if isinstance(value, ir.Access):
            uses[value.tensor] = uses.get(value.tensor, 0) + 1
        for child in value.children:
            count_reads(child)

    for equation in draft.equations.values():
        count_reads(equation.value)
    for tensor in list(draft.equations):
        if draft.names[tensor] or tensor in draft.results or uses.get(tensor) != 1:
            continue
        own = draft.equations[tensor]
        reader = next(e for e in draft.equations.values() if is_reading(e.value, tensor))
        is_found = any(isinstance(part, ir.Reduce) for part in walk(own.value))
        places = (place for each in find_accesses(reader.value) for place in each.places)
        if is_found and any(is_reading(place, tensor) for place in places):
            continue  # a place cannot be a reduction

        def read(access: ir.Access, own: ir.Equation = own) -> ir.Expr:
            return substitute_at(own.value, find_free(own.target), access.places)

        try:
            whole = map_reads(reader.value, tensor, read)
        except ValueError:  # a bound index is read at a computed place, or on a diagonal
            continue
        if count_nodes(whole) <= _MOST_NODES:
            draft.put_equation(reader.target.tensor, reader.target, whole)
            del draft.equations[tensor]
