"""The stock of random formulas: indices, tensors, functions; reading a tensor; conditions."""

import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

INDICES = {"i": "M", "p": "M", "j": "N", "q": "N", "d": "D", "e": "D", "h": "H"}

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
    "argmax",
)
RELATIONS = ("<=", "<", "==", "!=", ">=", ">")


@dataclass
class Draft:
    """What one formula has used and defined so far."""

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
    """A tensor read through indices in scope, on a diagonal, at a fixed or at a merged place."""
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
    """Comparisons of indices, integers, truth values and given values, and what joins them."""
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


def binds(text, indices):
    """May one of the indices be bound by a reduction in the text?"""
    brackets = re.findall(rf"\b(?:{'|'.join(REDUCTIONS)})\[(\w+(?:, \w+)*)", text)
    return any(index in names.split(", ") for names in brackets for index in indices)


def rename(text, one, other):
    return re.sub(rf"\b{one}\b", other, text)


def mention(body, indices):
    """The body with those of the indices in it that a reduction over them must meet."""
    absent = [index for index in indices if not re.search(rf"\b{index}\b", body)]
    return f"({body} + sin({' + '.join(absent)}))" if absent else body


def leave_one(condition, indices):
    """The condition, or the first entry: never nothing."""
    first = " and ".join(f"{index} == 0" for index in indices)
    return f"({condition}) or ({first})"
