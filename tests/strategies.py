"""Random formulas in the text notation, drawn by hypothesis so that they shrink.

A formula draws from a fixed stock of indices and tensors; only what is used gets declared. Every
value is well conditioned: divisors, logarithms and roots have positive arguments, exponentials
bounded ones, and jumps (comparisons, floor) look at arguments as they are given. Rows with nothing
left in them stand alone in an equation of their own: as factors they would be nan times something.
"""

from dataclasses import dataclass

from hypothesis import strategies as st
from strategy_stock import (
    DECLARED,
    FUNCTIONS,
    INDICES,
    SCALARS,
    TENSORS,
    Draft,
    accesses,
    conditions,
    mention,
)
from strategy_values import values


@dataclass(frozen=True)
class RandomFormula:
    """The text, the mode for empty rows, the sizes to evaluate at and those to plan for."""

    text: str
    empty_row: str
    sizes: tuple  # pairs (name, extent)
    planned: tuple = ()  # the same; the order of contractions depends on them, no value does


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
    """The lines above the equations: tensors, scalars, sizes that no tensor tells, indices."""
    lines = [f"{n}[{', '.join(TENSORS[n])}]" for n in TENSORS if n in draft.tensors]
    lines += [line for name, (line, _) in DECLARED.items() if name in draft.tensors]
    lines += [line for name, line in SCALARS.items() if name in draft.scalars]
    lines += [line for name, line in FUNCTIONS.items() if name in draft.functions]
    shapes = {**TENSORS, **{name: shape for name, (_, shape) in DECLARED.items()}}
    told = {extent for name in draft.tensors for extent in shapes[name]}
    if "R" in draft.tensors:
        draft.sizes |= {"H", "D"}
    lines += [f"size {size}" for size in "MNDH" if size in draft.sizes and not _is_told(size, told)]
    lines += [f"index {index} < {INDICES[index]}" for index in INDICES if index in draft.indices]
    return lines


def _is_told(size, told):
    """Is there a tensor whose shape gives the size, H*D being solved if one of its two is known?"""
    return size in told or (size == "H" and "H*D" in told)


@st.composite
def _equations(draw, draft, name, depth):
    """One equation; some have a left side with merged indices."""
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
    draft.results[name] = (None,) if bare else tuple(extents)  # None: no one reads it
    return f"{name}[{', '.join(places)}] = {value}" if places else f"{name} = {value}"


@st.composite
def _empty_rows(draw, draft, scope, depth):
    """A reduction or a softmax, alone, whose condition may leave nothing."""
    free = [index for index in INDICES if index not in scope]
    if not free:
        return draw(values(draft, scope, depth))
    index = draft.use(draw(st.sampled_from(free)))
    inner = (index, *scope)
    condition = draw(conditions(draft, inner, 1))
    body = mention(draw(values(draft, inner, max(0, depth - 2))), index)
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
        mention(draw(values(draft, scope, 1)), row),
        draw(conditions(draft, scope, 1)),
    )
    return (
        draw(st.sampled_from(["softmax", "log_softmax", "cumsum"]))
        + f"[{row}, {condition}]({body})"
    )
