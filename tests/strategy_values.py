"""Random expressions; the simple forms come first, so that shrinking ends at them."""

from hypothesis import strategies as st
from strategy_stock import (
    BOUNDED,
    FUNCTIONS,
    INDICES,
    NUMBERS,
    REDUCTIONS,
    SCALARS,
    SMOOTH,
    accesses,
    binds,
    conditions,
    leave_one,
    mention,
    note_size,
    rename,
)


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
    """An expression that stands elsewhere too, perhaps under another index of the same extent."""
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
    """Sums above all, with and without a condition; what may be infinite is squashed."""
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
        body = mention(body, bound)
    over = ", ".join(bound)
    if draw(st.integers(0, 2)) == 2:
        condition = draw(conditions(draft, inner, 1))
        if kind in {"mean", "var"}:
            condition = leave_one(condition, bound)
        over += ", " + condition
        if kind in {"max", "min", "logsumexp"}:
            return f"tanh({kind}[{over}]({body}))"
    if kind == "prod":
        body = f"tanh({body})"
    return f"{kind}[{over}]({body})"


@st.composite
def _rare_reductions(draw, draft, inner, bound, depth):
    """A place of the largest entry, or the variance of a sample that is more than one."""
    if len({INDICES[index] for index in bound}) > 1:  # at most one extent is 1
        body = mention(draw(values(draft, inner, depth)), bound)
        return f"var[{', '.join(bound)}]({body}, correction=1)"
    alone = [index for index in inner if index not in bound[1:]]
    body = mention(draw(accesses(draft, alone, ("x", "A", "B"))), bound[0])
    return f"argmax[{bound[0]}]({body})"


@st.composite
def _rows(draw, draft, scope, depth):
    """A softmax or its kin along an index that is there, or inside a sum that binds it."""
    free = [index for index in INDICES if index not in scope]
    outside = not scope or (free and draw(st.integers(0, 2)) == 2)
    index = draft.use(draw(st.sampled_from(free if outside else list(scope))))
    inner = (index, *scope) if outside else scope
    body = mention(draw(values(draft, inner, depth)), index)
    kind = draw(st.sampled_from(["softmax", "softmax", "softmax", "log_softmax", "cumsum"]))
    over = index
    style = draw(st.integers(0, 7))
    if style > 4:
        condition = leave_one(draw(conditions(draft, inner, 1)), index)
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
    choices,
    _rows,
    _copies,
)
