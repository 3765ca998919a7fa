"""Random formulas in the text notation, drawn by hypothesis so that they shrink.

A formula draws from a fixed stock of letters and tensors; only what is used gets declared. Every
value is well conditioned: divisors, logarithms and roots have positive arguments, exponentials
bounded ones, and jumps (comparisons, floor) look at arguments as they are given. Rows with nothing
left in them stand alone in an equation of their own: as factors they would be nan times something.
"""

import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

LETTERS = {"i": "M", "p": "M", "j": "N", "q": "N", "d": "D", "e": "D", "h": "H"}

TENSORS = {
    "x": ("M",),
    "y": ("N",),
    "w": ("D",),
    "A": ("M", "N"),
    "B": ("N", "D"),
    "C": ("D", "M"),
    "Q": ("M", "M"),
    "T": ("M", "N", "D"),
    "R": ("H*D", "N"),
    "G": ("H", "M"),
}
DECLARED = {
    "m": ("bool m[M, N]", ("M", "N")),
    "r": ("bool r[N]", ("N",)),
    "t": ("int t[N] < 3", ("N",)),
    "b": ("b[M, D] > 0", ("M", "D")),
}
SCALARS = {"alpha": "scalar alpha", "eps": "scalar eps = 1/4"}

FUNCTIONS = {
    "phi": "phi(u) = where(u > 0, u + 1, exp(-u**2))",
    "psi": "psi(u) = u * sigmoid(2 * u) + 1",
}

NUMBERS = ("2", "1", "3", "1/2", "0.25", "(-1)", "2/3")
BOUNDED = ("tanh", "sin", "sigmoid", "cos", "erf")
SMOOTH = (
    "tanh",
    "relu",
    "abs",
    "sin",
    "sigmoid",
    "silu",
    "gelu",
    "softplus",
    "leaky_relu",
    "elu",
    "cos",
    "erf",
)
REDUCTIONS = (
    "sum",
    "mean",
    "max",
    "min",
    "var",
    "logsumexp",
    "prod",
    "softmax",
    "log_softmax",
    "cumsum",
)
RELATIONS = ("<=", "<", "==", "!=", ">=", ">")


@dataclass
class Draft:
    """What one formula has used and defined so far."""

    tensors: set = field(default_factory=set)
    letters: set = field(default_factory=set)
    scalars: set = field(default_factory=set)
    sizes: set = field(default_factory=set)
    results: dict = field(default_factory=dict)  # name: extents
    seen: list = field(default_factory=list)  # (expression, letters it was drawn under)
    functions: set = field(default_factory=set)

    def use(self, letter):
        self.letters.add(letter)
        self.sizes.add(LETTERS[letter])
        return letter


@dataclass(frozen=True)
class RandomFormula:
    """The text, the mode for empty rows, and the sizes to evaluate at."""

    text: str
    empty_row: str
    sizes: tuple  # pairs (name, extent)


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
    return RandomFormula(text, mode, tuple(sizes.items()))


def _declare(draft):
    """The lines above the equations: tensors, scalars, sizes that no tensor tells, letters."""
    lines = [f"{n}[{', '.join(TENSORS[n])}]" for n in TENSORS if n in draft.tensors]
    lines += [line for name, (line, _) in DECLARED.items() if name in draft.tensors]
    lines += [line for name, line in SCALARS.items() if name in draft.scalars]
    lines += [line for name, line in FUNCTIONS.items() if name in draft.functions]
    shapes = {**TENSORS, **{name: shape for name, (_, shape) in DECLARED.items()}}
    told = {extent for name in draft.tensors for extent in shapes[name]}
    if "R" in draft.tensors:
        draft.sizes |= {"H", "D"}
    lines += [f"size {size}" for size in "MNDH" if size in draft.sizes and not _is_told(size, told)]
    lines += [
        f"index {letter} < {LETTERS[letter]}" for letter in LETTERS if letter in draft.letters
    ]
    return lines


def _is_told(size, told):
    """Is there a tensor whose shape gives the size, H*D being solved if one of its two is known?"""
    return size in told or (size == "H" and "H*D" in told)


@st.composite
def _equations(draw, draft, name, depth):
    """One equation; some have a left side with merged letters."""
    letters = draw(st.lists(st.sampled_from(list(LETTERS)), unique=True, max_size=3))
    places, extents, k = [], [], 0
    while k < len(letters):
        pair = letters[k : k + 2]
        if len(pair) == 2 and draw(st.integers(0, 7)) == 7:
            one, other = (draft.use(letter) for letter in pair)
            places.append(f"{one}*{LETTERS[other]} + {other}")
            extents.append(None)
            k += 2
            continue
        places.append(draft.use(letters[k]))
        extents.append(LETTERS[letters[k]])
        k += 1
    bare = draw(st.integers(0, 5)) == 5
    value = draw((_empty_rows if bare else _values)(draft, tuple(letters), depth))
    draft.results[name] = (None,) if bare else tuple(extents)  # None: no one reads it
    return f"{name}[{', '.join(places)}] = {value}" if places else f"{name} = {value}"


@st.composite
def _empty_rows(draw, draft, scope, depth):
    """A reduction or a softmax, alone, whose condition may leave nothing."""
    free = [letter for letter in LETTERS if letter not in scope]
    if not free:
        return draw(_values(draft, scope, depth))
    letter = draft.use(draw(st.sampled_from(free)))
    inner = (letter, *scope)
    condition = draw(_conditions(draft, inner, 1))
    body = _mention(draw(_values(draft, inner, max(0, depth - 2))), letter)
    form = draw(st.integers(0, 3))
    if form == 0:
        kind = draw(st.sampled_from(["max", "min", "logsumexp", "mean", "var", "sum", "prod"]))
        return f"{kind}[{letter}, {condition}]({body})"
    values = draw(_accesses(draft, inner))
    if form == 1:
        return f"sum[{letter}](softmax[{letter}, {condition}]({body}) * {values})"
    if form == 2:
        return f"sum[{letter}](softmax[{letter}](where({condition}, {body}, -oo)) * {values})"
    row = next((s for s in scope if LETTERS[s] == LETTERS[letter]), None)
    if row is None:
        return f"max[{letter}, {condition}]({body})"
    body, condition = (
        _mention(draw(_values(draft, scope, 1)), row),
        draw(_conditions(draft, scope, 1)),
    )
    return (
        draw(st.sampled_from(["softmax", "log_softmax", "cumsum"]))
        + f"[{row}, {condition}]({body})"
    )


@st.composite
def _values(draw, draft, scope, depth):
    """An expression; the simple forms come first, so that shrinking ends at them."""
    if depth == 0:
        return draw(_atoms(draft, scope))
    form = draw(st.sampled_from(FORMS))
    text = draw(form(draft, scope, depth - 1))
    draft.seen.append((text, scope))
    return text


@st.composite
def _copies(draw, draft, scope, depth):
    """An expression that stands elsewhere too, perhaps under another letter of the same extent."""
    able = [
        (text, letters)
        for text, letters in draft.seen
        if set(letters) <= set(scope) and not _binds(text, scope)
    ]
    if not able:
        return draw(_values(draft, scope, depth))
    text, letters = draw(st.sampled_from(able))
    pairs = [(a, b) for a in letters for b in scope if a != b and LETTERS[a] == LETTERS[b]]
    pairs = [(a, b) for a, b in pairs if not _binds(text, (a, b))]
    if pairs and draw(st.booleans()):
        one, other = draw(st.sampled_from(pairs))
        return _rename(text, one, other)
    return text


def _binds(text, letters):
    """May one of the letters be bound by a reduction in the text?"""
    brackets = re.findall(rf"\b(?:{'|'.join(REDUCTIONS)})\[(\w+(?:, \w+)*)", text)
    return any(letter in names.split(", ") for names in brackets for letter in letters)


def _rename(text, one, other):
    return re.sub(rf"\b{one}\b", other, text)


@st.composite
def _atoms(draw, draft, scope):
    kind = draw(st.integers(0, 11))
    if kind < 8:
        return draw(_accesses(draft, scope))
    if kind == 8:
        return draw(st.sampled_from(NUMBERS))
    if kind == 9 and scope:
        letter = draft.use(draw(st.sampled_from(scope)))
        return draw(st.sampled_from(["{}", "{}", "({} % 2)", "({} // 2)"])).format(letter)
    if kind == 10:
        name = draw(st.sampled_from(list(SCALARS)))
        draft.scalars.add(name)
        return name
    size = draw(st.sampled_from("MND"))
    draft.sizes.add(size)
    return size


@st.composite
def _accesses(draw, draft, scope, names=None):
    """A tensor read through letters in scope, on a diagonal, at a fixed or at a merged place."""
    results = {name: shape for name, shape in draft.results.items() if None not in shape}
    shapes = {**TENSORS, "t": ("N",), "b": ("M", "D"), **results}
    able = [
        name
        for name in names or shapes
        if all(e == "H*D" or any(LETTERS[s] == e for s in scope) for e in shapes[name])
    ]
    fixed = draw(st.integers(0, 9)) == 9 or not able
    name = draw(st.sampled_from(list(names or shapes) if fixed else able))
    places = [draw(_places(draft, scope, extent, fixed)) for extent in shapes[name]]
    if name not in draft.results:
        draft.tensors.add(name)
    return f"{name}[{', '.join(places)}]" if places else name


@st.composite
def _places(draw, draft, scope, extent, fixed):
    letters = [letter for letter in scope if LETTERS.get(letter) == extent]
    if extent == "H*D":
        pairs = [(h, d) for h in scope for d in scope if (LETTERS[h], LETTERS[d]) == ("H", "D")]
        if not pairs:
            return "0"
        one, other = draw(st.sampled_from(pairs))
        return f"{draft.use(one)}*D + {draft.use(other)}"
    if not letters or (fixed and draw(st.booleans())):
        if draw(st.integers(0, 3)) < 3:
            return "0"
        draft.sizes.add(extent)
        return f"{extent} - 1"
    return draft.use(draw(st.sampled_from(letters)))


@st.composite
def _sums(draw, draft, scope, depth):
    parts = [draw(_values(draft, scope, depth)) for _ in range(draw(st.integers(2, 3)))]
    signs = [draw(st.sampled_from([" + ", " - "])) for _ in parts[1:]]
    return f"({parts[0]}{''.join(s + p for s, p in zip(signs, parts[1:], strict=True))})"


@st.composite
def _products(draw, draft, scope, depth):
    parts = [draw(_values(draft, scope, depth)) for _ in range(draw(st.integers(2, 3)))]
    return f"({' * '.join(parts)})"


@st.composite
def _quotients(draw, draft, scope, depth):
    over = draw(_values(draft, scope, depth))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        size = draw(st.sampled_from("DMN"))
        draft.sizes.add(size)
        return f"({over} / {draw(st.sampled_from(['sqrt({})', '{}'])).format(size)})"
    if kind == 1:
        return f"({over} / {draw(st.sampled_from(['2', '3', '0.5']))})"
    under = draw(_values(draft, scope, depth))
    if kind == 2:
        return f"({over} / sqrt(1 + {under}**2))"
    if kind == 3:
        return f"({over} / (1 + {under}**2) / 2)"
    return f"(exp(tanh({over})) / (2 + sin({under})))"


@st.composite
def _functions(draw, draft, scope, depth):
    inner = draw(_values(draft, scope, depth))
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
            return jump.format(draw(_accesses(draft, scope, ("x", "A", "w", "t"))))
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
                "D", _note_size(draft, "D")
            )
        case 9:
            return f"exp(-{inner}**2)"
        case 10:
            other = draw(_values(draft, scope, depth))
            return f"{draw(st.sampled_from(['max', 'min']))}({inner}, {other})"
        case _:
            return f"(-{inner})"


def _note_size(draft, size):
    draft.sizes.add(size)
    return size


@st.composite
def _reductions(draw, draft, scope, depth):
    """Sums above all, with and without a condition; what may be infinite is squashed."""
    kind = draw(st.sampled_from(["sum"] * 5 + list(REDUCTIONS[1:7])))
    free = [letter for letter in LETTERS if letter not in scope]
    if not free:
        return draw(_atoms(draft, scope))
    bound = draw(st.lists(st.sampled_from(free), unique=True, min_size=1, max_size=2))
    for letter in bound:
        draft.use(letter)
    inner = (*bound, *scope)
    body = draw(_values(draft, inner, depth))
    if kind not in {"sum", "prod"}:
        body = _mention(body, bound)
    over = ", ".join(bound)
    if draw(st.integers(0, 2)) == 2:
        condition = draw(_conditions(draft, inner, 1))
        if kind in {"mean", "var"}:
            condition = _leave_one(condition, bound)
        over += ", " + condition
        if kind in {"max", "min", "logsumexp"}:
            return f"tanh({kind}[{over}]({body}))"
    if kind == "prod":
        body = f"tanh({body})"
    return f"{kind}[{over}]({body})"


def _leave_one(condition, letters):
    """The condition, or the first entry: never nothing."""
    first = " and ".join(f"{letter} == 0" for letter in letters)
    return f"({condition}) or ({first})"


def _mention(body, letters):
    """The body with those of the letters in it that a reduction over them must meet."""
    absent = [letter for letter in letters if not re.search(rf"\b{letter}\b", body)]
    return f"({body} + sin({' + '.join(absent)}))" if absent else body


@st.composite
def _rows(draw, draft, scope, depth):
    """A softmax or its kin along a letter that is there, or inside a sum that binds it."""
    free = [letter for letter in LETTERS if letter not in scope]
    outside = not scope or (free and draw(st.integers(0, 2)) == 2)
    letter = draft.use(draw(st.sampled_from(free if outside else list(scope))))
    inner = (letter, *scope) if outside else scope
    body = _mention(draw(_values(draft, inner, depth)), letter)
    kind = draw(st.sampled_from(["softmax", "softmax", "softmax", "log_softmax", "cumsum"]))
    over = letter
    style = draw(st.integers(0, 7))
    if style > 4:
        condition = _leave_one(draw(_conditions(draft, inner, 1)), letter)
        kind = "softmax" if style > 5 else kind
        if style == 5:
            over += ", " + condition
        elif style == 6:
            body = f"where({condition}, {body}, -oo)"
        else:
            body = f"{body} + where({condition}, 0, -oo)"
    text = f"{kind}[{over}]({body})"
    twins = [s for s in LETTERS if LETTERS[s] == LETTERS[letter] and s not in inner]
    if style == 4 and twins and not _binds(body, (letter, *twins)):
        twin, wave = draft.use(twins[0]), f"sin({body})"
        text = f"(exp({wave}) / sum[{twin}](exp({_rename(wave, letter, twin)})))"
    if kind == "log_softmax" and over != letter:
        text = f"exp({text})"
    if outside:
        return f"sum[{letter}]({text} * {draw(_accesses(draft, inner))})"
    return text


@st.composite
def _choices(draw, draft, scope, depth):
    condition = draw(_conditions(draft, scope, 1))
    one = draw(_values(draft, scope, depth))
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
        return f"([{condition}] * {one} / (1 + {draw(_values(draft, scope, depth))}**2))"
    return f"where({condition}, {one}, {draw(_values(draft, scope, depth))})"


@st.composite
def _conditions(draw, draft, scope, depth):
    """Comparisons of letters, integers, truth values and given values, and what joins them."""
    kind = draw(st.integers(0, 11 if depth else 7))
    relation = draw(st.sampled_from(RELATIONS))
    if not scope:
        draft.scalars.add("alpha")
        return f"alpha {relation} 0"
    letter = draft.use(draw(st.sampled_from(scope)))
    other = draft.use(draw(st.sampled_from(scope)))
    match kind:
        case 0 | 1:
            return f"{letter} {relation} {other}"
        case 2:
            return f"{letter} {relation} {other} + {draw(st.sampled_from(['1', '2']))}"
        case 3:
            return f"{letter} {relation} {draw(st.sampled_from(['0', '1']))}"
        case 4:
            return draw(_accesses(draft, scope, ("x", "A", "w"))) + f" {relation} 0"
        case 5:
            return draw(_truths(draft, scope))
        case 6:
            draft.sizes.add(LETTERS[letter])
            return f"{letter} {relation} {LETTERS[letter]} - 1"
        case 7:
            return f"0 <= {letter} - {other} < 2"
        case 8:
            return f"not ({draw(_conditions(draft, scope, 0))})"
        case 9:
            pair = [draw(_conditions(draft, scope, 0)) for _ in range(2)]
            return " or ".join(f"({part})" for part in pair)
        case 10:
            draft.tensors.add("t")
            place = next((s for s in scope if LETTERS[s] == "N"), None)
            return f"t[{draft.use(place) if place else '0'}] {relation} 1"
        case _:
            pair = [draw(_conditions(draft, scope, 0)) for _ in range(2)]
            return " and ".join(f"({part})" for part in pair)


@st.composite
def _truths(draw, draft, scope):
    name = draw(st.sampled_from(["m", "r"]))
    draft.tensors.add(name)
    places = [draw(_places(draft, scope, extent, False)) for extent in DECLARED[name][1]]
    return f"{name}[{', '.join(places)}]"


def _leaves(draft, scope, depth):
    return _atoms(draft, scope)


FORMS = (
    _leaves,
    _sums,
    _products,
    _reductions,
    _reductions,
    _products,
    _functions,
    _quotients,
    _choices,
    _rows,
    _copies,
)
