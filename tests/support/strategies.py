"""Random formulas in the text notation, drawn by hypothesis so that they shrink.

A formula draws from a fixed stock of indices and tensors and declares the ones it uses. Every value
is well conditioned: divisors, logarithms and roots have positive arguments, exponentials bounded
ones, and comparisons and floor are applied to inputs only. A reduction that may have empty rows is
an equation by itself: as a factor it would spread nan.
"""

import re
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from stock import (
    BOUNDED,
    DECLARED,
    FUNCTIONS,
    INDICES,
    MATRICES,
    NUMBERS,
    REDUCTIONS,
    RELATIONS,
    SCALARS,
    SMOOTH,
    TENSORS,
    binds,
    keep_first_entry,
    mention_indices,
    rename,
)

# For slow properties: half of the examples of the profile.
half_as_many = settings(max_examples=settings().max_examples // 2)


@dataclass
class Draft:
    """Names that a formula under construction has used and defined."""

    tensors: set = field(default_factory=set)
    indices: set = field(default_factory=set)
    scalars: set = field(default_factory=set)
    sizes: set = field(default_factory=set)
    results: dict = field(default_factory=dict)  # name: extents
    seen: list = field(default_factory=list)  # (expression, indices it was drawn under)
    functions: set = field(default_factory=set)

    def use(self, index):
        self.indices.add(index)
        self.sizes.add(INDICES[index])
        return index


@st.composite
def accesses(draw, draft, scope, names=None):
    """A read of a tensor through indices in scope, a diagonal, a constant or merged indices."""
    results = {name: shape for name, shape in draft.results.items() if None not in shape}
    shapes = {**TENSORS, "t": ("N",), "b": ("M", "D"), **results}
    able = [
        name
        for name in names or shapes
        if all(e == "H*D" or any(INDICES[s] == e for s in scope) for e in shapes[name])
    ]
    fixed = draw(st.integers(0, 9)) == 9 or not able
    name = draw(st.sampled_from(list(names or shapes) if fixed else able))
    places = [draw(_places(draft, scope, extent, fixed)) for extent in shapes[name]]
    if name not in draft.results:
        draft.tensors.add(name)
    return f"{name}[{', '.join(places)}]" if places else name


@st.composite
def _places(draw, draft, scope, extent, fixed):
    indices = [index for index in scope if INDICES.get(index) == extent]
    if extent == "H*D":
        pairs = [(h, d) for h in scope for d in scope if (INDICES[h], INDICES[d]) == ("H", "D")]
        if not pairs:
            return "0"
        one, other = draw(st.sampled_from(pairs))
        return f"{draft.use(one)}*D + {draft.use(other)}"
    if not indices or (fixed and draw(st.booleans())):
        if draw(st.integers(0, 3)) < 3:
            return "0"
        draft.sizes.add(extent)
        return f"{extent} - 1"
    return draft.use(draw(st.sampled_from(indices)))


@st.composite
def conditions(draw, draft, scope, depth):
    """Comparisons of indices, integers, booleans and inputs, joined by and, or, not."""
    kind = draw(st.integers(0, 11 if depth else 7))
    relation = draw(st.sampled_from(RELATIONS))
    if not scope:
        draft.scalars.add("alpha")
        return f"alpha {relation} 0"
    index = draft.use(draw(st.sampled_from(scope)))
    other = draft.use(draw(st.sampled_from(scope)))
    match kind:
        case 0 | 1:
            return f"{index} {relation} {other}"
        case 2:
            return f"{index} {relation} {other} + {draw(st.sampled_from(['1', '2']))}"
        case 3:
            return f"{index} {relation} {draw(st.sampled_from(['0', '1']))}"
        case 4:
            return draw(accesses(draft, scope, ("x", "A", "w"))) + f" {relation} 0"
        case 5:
            return draw(_truths(draft, scope))
        case 6:
            draft.sizes.add(INDICES[index])
            return f"{index} {relation} {INDICES[index]} - 1"
        case 7:
            return f"0 <= {index} - {other} < 2"
        case 8:
            return f"not ({draw(conditions(draft, scope, 0))})"
        case 9:
            pair = [draw(conditions(draft, scope, 0)) for _ in range(2)]
            return " or ".join(f"({part})" for part in pair)
        case 10:
            draft.tensors.add("t")
            place = next((s for s in scope if INDICES[s] == "N"), None)
            return f"t[{draft.use(place) if place else '0'}] {relation} 1"
        case _:
            pair = [draw(conditions(draft, scope, 0)) for _ in range(2)]
            return " and ".join(f"({part})" for part in pair)


@st.composite
def _truths(draw, draft, scope):
    name = draw(st.sampled_from(["m", "r"]))
    draft.tensors.add(name)
    places = [draw(_places(draft, scope, extent, False)) for extent in DECLARED[name][1]]
    return f"{name}[{', '.join(places)}]"


def note_size(draft, size):
    draft.sizes.add(size)
    return size


# Expressions; the simple forms come first, so that shrinking ends at them.


@st.composite
def values(draw, draft, scope, depth):
    """An expression; the simple forms come first, so that shrinking ends at them."""
    if depth == 0:
        return draw(_atoms(draft, scope))
    form = draw(st.sampled_from(FORMS))
    text = draw(form(draft, scope, depth - 1))
    draft.seen.append((text, scope))
    return text


@st.composite
def _copies(draw, draft, scope, depth):
    """A copy of an earlier expression, perhaps under another index of the same extent."""
    able = [
        (text, indices)
        for text, indices in draft.seen
        if set(indices) <= set(scope) and not binds(text, scope)
    ]
    if not able:
        return draw(values(draft, scope, depth))
    text, indices = draw(st.sampled_from(able))
    pairs = [(a, b) for a in indices for b in scope if a != b and INDICES[a] == INDICES[b]]
    pairs = [(a, b) for a, b in pairs if not binds(text, (a, b))]
    if pairs and draw(st.booleans()):
        one, other = draw(st.sampled_from(pairs))
        return rename(text, one, other)
    return text


@st.composite
def _atoms(draw, draft, scope):
    kind = draw(st.integers(0, 11))
    if kind < 8:
        return draw(accesses(draft, scope))
    if kind == 8:
        return draw(st.sampled_from(NUMBERS))
    if kind == 9 and scope:
        index = draft.use(draw(st.sampled_from(scope)))
        return draw(st.sampled_from(["{}", "{}", "({} % 2)", "({} // 2)"])).format(index)
    if kind == 10:
        name = draw(st.sampled_from(list(SCALARS)))
        draft.scalars.add(name)
        return name
    size = draw(st.sampled_from("MND"))
    draft.sizes.add(size)
    return size


@st.composite
def _sums(draw, draft, scope, depth):
    parts = [draw(values(draft, scope, depth)) for _ in range(draw(st.integers(2, 3)))]
    signs = [draw(st.sampled_from([" + ", " - "])) for _ in parts[1:]]
    return f"({parts[0]}{''.join(s + p for s, p in zip(signs, parts[1:], strict=True))})"


@st.composite
def _products(draw, draft, scope, depth):
    parts = [draw(values(draft, scope, depth)) for _ in range(draw(st.integers(2, 3)))]
    return f"({' * '.join(parts)})"


@st.composite
def _quotients(draw, draft, scope, depth):
    over = draw(values(draft, scope, depth))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        size = draw(st.sampled_from("DMN"))
        draft.sizes.add(size)
        return f"({over} / {draw(st.sampled_from(['sqrt({})', '{}'])).format(size)})"
    if kind == 1:
        return f"({over} / {draw(st.sampled_from(['2', '3', '0.5']))})"
    under = draw(values(draft, scope, depth))
    if kind == 2:
        return f"({over} / sqrt(1 + {under}**2))"
    if kind == 3:
        return f"({over} / (1 + {under}**2) / 2)"
    return f"(exp(tanh({over})) / (2 + sin({under})))"


@st.composite
def _functions(draw, draft, scope, depth):
    inner = draw(values(draft, scope, depth))
    kind = draw(st.integers(0, 13))
    match kind:
        case 0 | 1 | 2:
            return f"{draw(st.sampled_from(SMOOTH))}({inner})"
        case 12:
            name = draw(st.sampled_from(list(FUNCTIONS)))
            draft.functions.add(name)
            return f"{name}({inner})"
        case 13:
            jump = draw(st.sampled_from(["sign({})", "floor({})", "floor({} * 2)"]))
            return jump.format(draw(accesses(draft, scope, ("x", "A", "w", "t"))))
        case 3:
            return f"exp({draw(st.sampled_from(BOUNDED))}({inner}))"
        case 4:
            return f"log(1 + {inner}**2)"
        case 5:
            return f"sqrt(1 + {inner}**2)"
        case 6:
            return f"{inner}**2"
        case 7:
            return f"(2 + {draw(st.sampled_from(BOUNDED))}({inner}))**(-3/2)"
        case 8:
            return f"clip({inner}, -1, {draw(st.sampled_from(['1', '3/2', 'D']))})".replace(
                "D", note_size(draft, "D")
            )
        case 9:
            return f"exp(-{inner}**2)"
        case 10:
            other = draw(values(draft, scope, depth))
            return f"{draw(st.sampled_from(['max', 'min']))}({inner}, {other})"
        case _:
            return f"(-{inner})"


@st.composite
def _reductions(draw, draft, scope, depth):
    """Reductions, mostly sums, with and without a condition; unbounded results are squashed."""
    kind = draw(st.sampled_from(["sum"] * 5 + list(REDUCTIONS[1:7])))
    free = [index for index in INDICES if index not in scope]
    if not free:
        return draw(_atoms(draft, scope))
    bound = draw(st.lists(st.sampled_from(free), unique=True, min_size=1, max_size=2))
    for index in bound:
        draft.use(index)
    inner = (*bound, *scope)
    if draw(st.integers(0, 11)) == 11:
        return draw(_rare_reductions(draft, inner, bound, depth))
    body = draw(values(draft, inner, depth))
    if kind not in {"sum", "prod"}:
        body = mention_indices(body, bound)
    over = ", ".join(bound)
    if draw(st.integers(0, 2)) == 2:
        condition = draw(conditions(draft, inner, 1))
        if kind in {"mean", "var"}:
            condition = keep_first_entry(condition, bound)
        over += ", " + condition
        if kind in {"max", "min", "logsumexp"}:
            return f"tanh({kind}[{over}]({body}))"
    if kind == "prod":
        body = f"tanh({body})"
    return f"{kind}[{over}]({body})"


@st.composite
def _rare_reductions(draw, draft, inner, bound, depth):
    """An argmax, or the variance of at least two entries."""
    if len({INDICES[index] for index in bound}) > 1:  # at most one extent is 1
        body = mention_indices(draw(values(draft, inner, depth)), bound)
        return f"var[{', '.join(bound)}]({body}, correction=1)"
    alone = [index for index in inner if index not in bound[1:]]
    body = mention_indices(draw(accesses(draft, alone, ("x", "A", "B"))), bound[0])
    return f"argmax[{bound[0]}]({body})"


@st.composite
def _rows(draw, draft, scope, depth):
    """A softmax, log_softmax or cumsum along an index in scope, or inside a sum that binds it."""
    free = [index for index in INDICES if index not in scope]
    outside = not scope or (free and draw(st.integers(0, 2)) == 2)
    index = draft.use(draw(st.sampled_from(free if outside else list(scope))))
    inner = (index, *scope) if outside else scope
    body = mention_indices(draw(values(draft, inner, depth)), index)
    kind = draw(st.sampled_from(["softmax", "softmax", "softmax", "log_softmax", "cumsum"]))
    over = index
    style = draw(st.integers(0, 7))
    if style > 4:
        condition = keep_first_entry(draw(conditions(draft, inner, 1)), index)
        kind = "softmax" if style > 5 else kind
        if style == 5:
            over += ", " + condition
        elif style == 6:
            body = f"where({condition}, {body}, -oo)"
        else:
            body = f"{body} + where({condition}, 0, -oo)"
    text = f"{kind}[{over}]({body})"
    twins = [s for s in INDICES if INDICES[s] == INDICES[index] and s not in inner]
    if style == 4 and twins and not binds(body, (index, *twins)):
        twin, wave = draft.use(twins[0]), f"sin({body})"
        text = f"(exp({wave}) / sum[{twin}](exp({rename(wave, index, twin)})))"
    if kind == "log_softmax" and over != index:
        text = f"exp({text})"
    if outside:
        return f"sum[{index}]({text} * {draw(accesses(draft, inner))})"
    return text


@st.composite
def choices(draw, draft, scope, depth):
    condition = draw(conditions(draft, scope, 1))
    one = draw(values(draft, scope, depth))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"[{condition}]"
    if kind == 5 and scope:
        pair = [draft.use(draw(st.sampled_from(scope))) for _ in range(2)]
        return f"(delta({', '.join(pair)}) * {one})"
    if kind == 1:
        return f"({one} * [{condition}])"
    if kind == 2:
        return f"where({condition}, {one}, 0)"
    if kind == 3:
        return f"([{condition}] * {one} / (1 + {draw(values(draft, scope, depth))}**2))"
    return f"where({condition}, {one}, {draw(values(draft, scope, depth))})"


MOVES = (  # position that replaces an index of extent E, and the guard of the read
    *(("{i} + 1", "{i} + 1 < {E}"), ("{i} - 2", "{i} >= 2"), ("2*{i}", "2*{i} < {E}")),
    *(("{E} - 1 - {i}", ""), ("({i} + 1) % {E}", ""), ("{i} // 2", "")),
    *(("min({i} + 2, {E} - 1)", ""), ("max({i} - 1, 0)", "")),
)


@st.composite
def _moved(draw, draft, scope, depth):
    """A read of a tensor at a shifted, reversed, cyclic or gathered position."""
    wanted = [
        (t, k, i)
        for t, shape in TENSORS.items()
        for k, e in enumerate(shape)
        for i in scope
        if INDICES[i] == e
    ]
    if not wanted:
        return draw(_atoms(draft, scope))
    name, number, index = draw(st.sampled_from(wanted))
    draft.tensors.add(name)
    extent = note_size(draft, INDICES[draft.use(index)])
    place, guard = (each.format(i=index, E=extent) for each in draw(st.sampled_from(MOVES)))
    gathered = [i for i in scope if INDICES[i] == "N"] if extent == "M" else []
    if gathered and draw(st.booleans()):
        draft.tensors.add("g")
        place, guard = f"g[{draft.use(draw(st.sampled_from(gathered)))}]", ""
    places = [draw(_places(draft, scope, e, False)) for e in TENSORS[name]]
    read = f"{name}[{', '.join([*places[:number], place, *places[number + 1 :]])}]"
    if not guard:
        return read
    return draw(st.sampled_from(["({1} * [{0}])", "where({0}, {1}, 2)"])).format(guard, read)


@st.composite
def _matrices(draw, draft, scope, depth):
    """A function of a diagonally dominant matrix."""
    pairs = [(a, b) for a in INDICES for b in INDICES if a < b and INDICES[a] == INDICES[b]]
    free = [pair for pair in pairs if not {*pair} & {*scope}]
    if not free:
        return draw(_atoms(draft, scope))
    one, other = map(draft.use, draw(st.sampled_from(free)))
    body = draw(values(draft, (one, other, *scope), depth))
    matrix = f"6 * delta({one}, {other}) + tanh({mention_indices(body, (one, other))})"
    kind = draw(st.sampled_from(MATRICES))
    right = mention_indices(draw(values(draft, (one, *scope), min(depth, 1))), (one,))
    if kind in {"det", "logdet"} or binds(right, (other,)):
        return f"{kind if kind == 'logdet' else 'det'}[{one}, {other}]({matrix})"
    if kind == "inverse":
        return f"sum[{one}, {other}](inverse[{one}, {other}]({matrix}) * {right})"
    return f"sum[{other}](solve[{one}, {other}]({matrix}, {right}))"


def _leaves(draft, scope, depth):
    return _atoms(draft, scope)


FORMS = (
    *(_leaves, _sums, _products, _reductions, _reductions, _products),
    *(_functions, _quotients, choices, _rows, _copies, _moved, _moved, _matrices),
)


# Formulas.


@dataclass(frozen=True)
class RandomFormula:
    """A text, its empty-row mode, the sizes to evaluate at and the sizes to plan for."""

    text: str
    empty_row: str
    sizes: tuple  # pairs (name, extent)
    planned: tuple = ()  # pairs (name, extent); they choose the order of contractions only


@st.composite
def formulas(draw, depth=3, equations=2):
    """A formula of one or more equations with its sizes."""
    draft = Draft()
    lines = []
    for number in range(draw(st.integers(1, equations))):
        lines.append(draw(_equations(draft, f"z{number}", depth)))
    if len(draft.results) > 1 and draw(st.booleans()):
        lines.append("return " + ", ".join(draw(st.permutations(sorted(draft.results)))))
    text = "\n".join([*_declare(draft), *lines])
    extents = draw(st.permutations([2, 3, 4, 5]))
    sizes = dict(zip("MNDH", extents, strict=True))
    if draw(st.booleans()):
        sizes[draw(st.sampled_from("MNDH"))] = 1
    mode = draw(st.sampled_from(["nan", "zeros"]))
    planned = [(size, draw(st.sampled_from([64, 2, 1000]))) for size in sizes]
    return RandomFormula(text, mode, tuple(sizes.items()), tuple(planned))


def _declare(draft):
    """Declarations: tensors, scalars, sizes that no tensor shape determines, indices."""
    lines = [f"{n}[{', '.join(TENSORS[n])}]" for n in TENSORS if n in draft.tensors]
    lines += [line for name, (line, _) in DECLARED.items() if name in draft.tensors]
    lines += [line for name, line in SCALARS.items() if name in draft.scalars]
    lines += [line for name, line in FUNCTIONS.items() if name in draft.functions]
    shapes = {**TENSORS, **{name: shape for name, (_, shape) in DECLARED.items()}}
    known = {extent for name in draft.tensors for extent in shapes[name]}
    if "R" in draft.tensors:
        draft.sizes |= {"H", "D"}
    lines += [
        f"size {size}" for size in "MNDH" if size in draft.sizes and not _is_determined(size, known)
    ]
    lines += [f"index {index} < {INDICES[index]}" for index in INDICES if index in draft.indices]
    return lines


def _is_determined(size, known):
    """Whether tensor shapes determine a size; H*D gives H where D is known."""
    return size in known or (size == "H" and "H*D" in known)


@st.composite
def _equations(draw, draft, name, depth):
    """One equation, with plain or merged indices on its left; or a recurrence, or parts."""
    style = draw(st.integers(0, 9))
    if style > 7:
        return draw((_recurrences, _parts)[style - 8](draft, name, depth))
    indices = draw(st.lists(st.sampled_from(list(INDICES)), unique=True, max_size=3))
    places, extents, k = [], [], 0
    while k < len(indices):
        pair = indices[k : k + 2]
        if len(pair) == 2 and draw(st.integers(0, 7)) == 7:
            one, other = (draft.use(index) for index in pair)
            places.append(f"{one}*{INDICES[other]} + {other}")
            extents.append(None)
            k += 2
            continue
        places.append(draft.use(indices[k]))
        extents.append(INDICES[indices[k]])
        k += 1
    bare = draw(st.integers(0, 5)) == 5
    value = draw((_empty_rows if bare else values)(draft, tuple(indices), depth))
    draft.results[name] = (
        (None,) if bare else tuple(extents)
    )  # None: not readable by later equations
    return f"{name}[{', '.join(places)}] = {value}" if places else f"{name} = {value}"


@st.composite
def _recurrences(draw, draft, name, depth):
    """A linear or nonlinear recurrence over its first index, with its initial equation."""
    step, *others = draw(
        st.lists(st.sampled_from(list(INDICES)), unique=True, min_size=1, max_size=2)
    )
    scope = tuple(draft.use(index) for index in (step, *others))
    extent = note_size(draft, INDICES[step])
    value = draw(values(draft, scope, depth - 1))
    style = draw(st.sampled_from([0, 3] if binds(value, (step,)) else [0, 1, 2, 3]))
    places = ", ".join(["{}", *others])
    begin = places.format(("-1", "0", f"{extent} - 1", "")[style])
    before = f"{name}[{places.format(f'{step} + 1' if style == 2 else f'{step} - 1')}]"
    if style == 3:
        before = f"({before} * [{step} >= 1])"
    start = mention_indices(draw(values(draft, tuple(others), min(depth, 1))), others)
    if others and style in {0, 3} and not binds(value, scope) and draw(st.booleans()):
        return _grid(draw, draft, name, scope, value, is_guarded=style == 3)
    forms = ["tanh({0}) * {1} + tanh({0})", "tanh({1} + {0})", "max({1}, tanh({0})) / 2"]
    line = f"{name}[{places.format(step)}] = {draw(st.sampled_from(forms)).format(value, before)}"
    draft.results[name] = tuple(INDICES[index] for index in scope)
    return line if style == 3 else f"{name}[{begin}] = {start}\n{line}"


def _grid(draw, draft, name, scope, value, *, is_guarded):
    """A recurrence over two indices that reads the previous position in one or both."""
    places = [
        [f"{i} - {back}" if back else i for i, back in zip(scope, lag, strict=True)]
        for lag in ((1, 0), (0, 1), (1, 1))
    ]
    reads = [f"{name}[{', '.join(place)}]" for place in places]
    lines = [f"{name}[-1, {scope[1]}] = 1", f"{name}[{scope[0]}, -1] = 2", f"{name}[-1, -1] = 3"]
    if is_guarded:
        guards = [[f"{i} >= 1" for i in scope if f"{i} - 1" in place] for place in places]
        reads = [f"({r} * [{' and '.join(g)}])" for r, g in zip(reads, guards, strict=True)]
        lines = []
    form = draw(st.sampled_from(["tanh({0} + {1} - {2})", "max({1}, {2}) / 2 + tanh({0})"]))
    pair = draw(st.permutations(reads))[:2]
    draft.results[name] = tuple(INDICES[index] for index in scope)
    return "\n".join([*lines, f"{name}[{', '.join(scope)}] = {form.format(value, *pair)}"])


@st.composite
def _parts(draw, draft, name, depth):
    """Two equations that together fill a tensor."""
    index = draft.use(draw(st.sampled_from(list(INDICES))))
    other = draw(st.sampled_from([i for i in INDICES if i != index]))
    size = note_size(draft, INDICES[index])
    halves = [("2*{0}", "2*{0} + 1"), ("{0}", "{0} + {1}"), ("0", "{0} + 1"), ("{0}", "{1}")]
    lines = []
    for half in draw(st.sampled_from(halves)):
        value = draw(values(draft, (index, draft.use(other)), depth - 1))
        place = half.format(index, size)
        inside = [i for i in (index, other) if i == other or re.search(rf"\b{index}\b", place)]
        value = value if index in inside else draw(values(draft, (other,), depth - 1))
        lines.append(f"{name}[{place}, {other}] = {value}")
    draft.results[name] = (None,)
    return "\n".join(lines)


@st.composite
def _empty_rows(draw, draft, scope, depth):
    """A reduction or softmax, alone in its equation, whose condition may exclude every entry."""
    free = [index for index in INDICES if index not in scope]
    if not free:
        return draw(values(draft, scope, depth))
    index = draft.use(draw(st.sampled_from(free)))
    inner = (index, *scope)
    condition = draw(conditions(draft, inner, 1))
    body = mention_indices(draw(values(draft, inner, max(0, depth - 2))), index)
    form = draw(st.integers(0, 3))
    if form == 0:
        kind = draw(st.sampled_from(["max", "min", "logsumexp", "mean", "var", "sum", "prod"]))
        return f"{kind}[{index}, {condition}]({body})"
    tensor = draw(accesses(draft, inner))
    if form == 1:
        return f"sum[{index}](softmax[{index}, {condition}]({body}) * {tensor})"
    if form == 2:
        return f"sum[{index}](softmax[{index}](where({condition}, {body}, -oo)) * {tensor})"
    row = next((s for s in scope if INDICES[s] == INDICES[index]), None)
    if row is None:
        return f"max[{index}, {condition}]({body})"
    body, condition = (
        mention_indices(draw(values(draft, scope, 1)), row),
        draw(conditions(draft, scope, 1)),
    )
    return (
        draw(st.sampled_from(["softmax", "log_softmax", "cumsum"]))
        + f"[{row}, {condition}]({body})"
    )
