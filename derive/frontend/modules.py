"""The arguments of a formula that a module holds, and their names in its state dict.

    all                                     by a rule: real tensors without the batch
    W_q, W_k                                these, under their own names
    q_proj.weight=W_q.T, scale=tau          under others; .T for one that is stored transposed
    in_proj.weight[2*N, D]; W_q[d,n] = in_proj.weight[n,d]; W_k[d,n] = in_proj.weight[N + n,d]
                                            the held tensors are declared in the notation, and
                                            arguments of the formula are defined by them

The batch is the extent of the first place of the first tensor; every result has to have it.
"""

import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace

from derive.errors import refuse, suggest
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.ir import nodes as ir
from derive.ir.text import to_declaration, to_lines
from derive.ir.walk import Names, find_sizes
from derive.notation.formula import Formula, Held

ALL = "all"
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.\w+)+")
_NAMED = re.compile(r"(?:(?P<dotted>[^\W\d]\w*(?:\.\w+)*)\s*=\s*)?(?P<name>\w+)(?P<turned>\.T)?")
_FORM = "write W_q,W_k or q_proj.weight=W_q.T, names of the state dict first"


def hold_parameters(
    formula: Formula, asked: bool | str | Mapping[str, str] | Iterable[str]
) -> Formula:
    """The formula with the tensors held by its module; refused where they are ambiguous.

    A mapping goes from names of the state dict to names of the formula. Where held tensors define
    arguments, the returned formula takes the tensors instead.
    """
    if asked in (True, ALL):
        if formula.held is None:
            formula = _with(formula, [Held(n, n) for n in _choose(to_system(formula))])
    elif isinstance(asked, str) and "[" in asked:
        formula = _define(formula, asked)
    elif isinstance(asked, Mapping):
        formula = _hold_named(formula, [f"{dotted}={name}" for dotted, name in asked.items()])
    else:
        each = asked.split(",") if isinstance(asked, str) else asked
        formula = _hold_named(formula, [str(one) for one in each])  # type: ignore[union-attr]
    # a non-persistent buffer whose elements differ stays an argument
    held = [each for each in formula.held or () if each.is_persistent or each.value is not None]
    _check(to_system(formula), held)
    return _with(formula, held)


def _with(formula: Formula, held: Iterable[Held]) -> Formula:
    made = copy(formula)
    made.held = tuple(held)
    return made


def _choose(system: ir.System) -> list[str]:
    """The names of the real tensors without a batch axis."""
    real = [each for each in system.tensors if each.kind == "real"]
    batch = next((each.shape[0] for each in system.tensors if each.shape), None)
    found = [each.name for each in real if batch not in each.shape]
    has_batch = isinstance(batch, ir.Size) and all(batch in each.shape for each in system.results)
    if not has_batch or not found:
        raise refuse(
            "module-which",
            "it is not clear which arguments are parameters of a module",
            facts=[
                "by the rule they are those without the extent of the first argument's first "
                "place, which the results have to have",
                f"the real arguments are {', '.join(each.name for each in real) or 'none'}",
            ],
            help=f"name them, --parameters {real[-1].name if real else 'W'}",
        )
    return found


def _hold_named(formula: Formula, words: Iterable[str]) -> Formula:
    """The formula that holds the named arguments; `.T` ones are defined from held tensors."""
    system = to_system(formula)
    entries = {entry.name: entry for entry in system.inputs}
    held, lines = [], []
    taken = Names.of(system)
    for word in words:
        found = _NAMED.fullmatch(word.strip())
        if found is None:
            raise refuse(
                "module-form", f"{word.strip() or 'nothing'} names no parameter", help=_FORM
            )
        name, entry = found["name"], entries.get(found["name"])
        if entry is None:
            raise refuse(
                "module-unknown",
                f"{system.name} has no argument {name}",
                facts=[f"its arguments are {', '.join(entries)}"],
                help=suggest(name, entries),
            )
        dotted = found["dotted"] or name
        if not found["turned"]:
            held.append(Held(dotted, name))
            continue
        if not isinstance(entry, ir.Tensor) or len(entry.shape) != 2:
            raise refuse("module-form", f"{name} has no two places to be turned", help=_FORM)
        stems = dotted, f"{name}_row", f"{name}_column"
        own, *indices = (taken.take(stem.replace(".", "_")) for stem in stems)
        lines.append(to_declaration(replace(entry, name=own, shape=entry.shape[::-1])))
        lines.append(f"{name}[{', '.join(indices)}] = {own}[{', '.join(indices[::-1])}]")
        held.append(Held(dotted, own))
    return _with(_redefine(formula, lines) if lines else formula, held)


def _define(formula: Formula, text: str) -> Formula:
    """The formula with arguments defined by the tensors that the text declares."""
    system = to_system(formula)
    taken = Names.of(system)
    names: dict[str, str] = {}
    for dotted in dict.fromkeys(_DOTTED.findall(text)):
        names[dotted] = taken.take(dotted.replace(".", "_"))
    plain = _DOTTED.sub(lambda found: names[found[0]], text)
    made = _redefine(formula, [line for part in plain.splitlines() for line in part.split(";")])
    dotted_of = {name: dotted for dotted, name in names.items()}
    before = {entry.name for entry in system.inputs}
    new = [e.name for e in to_system(made).inputs if e.name not in before]
    if not new:
        raise refuse("module-form", "the text declares nothing that a module holds", help=_FORM)
    return _with(made, [Held(dotted_of.get(name, name), name) for name in new])


def _redefine(formula: Formula, lines: list[str]) -> Formula:
    """The formula with lines added before it that define some of its arguments."""
    system = to_system(formula)
    targets = {
        found[1] for line in lines if (found := re.match(r"\s*(\w+)\s*\[[^=]*\]\s*=[^=]", line))
    }
    kept = tuple(entry for entry in system.inputs if entry.name not in targets)
    strange = sorted(targets - {entry.name for entry in system.inputs})
    if strange:
        raise refuse(
            "module-unknown",
            f"{system.name} has no argument {strange[0]} that could be defined",
            facts=[f"its arguments are {', '.join(entry.name for entry in system.inputs)}"],
        )
    own = to_lines(replace(system, inputs=kept))
    count = next(k for k, line in enumerate(own) if "] =" in line or re.match(r"\w+ =", line))
    text = "\n".join(
        [*own[:count], *(line.strip() for line in lines if line.strip()), *own[count:]]
    )
    made = parse(text, system.name, empty_row=system.empty_row)
    made.title, made.source, made.typical = formula.title, formula.source, formula.typical
    return made


def _check(system: ir.System, held: list[Held]) -> None:
    """Refuse names that a module cannot have, and parameters that are not real."""
    from torch import nn

    entries = {entry.name: entry for entry in system.inputs}
    own, used = set(dir(nn.Module())), dict[str, str]()
    for each in held:
        parts = each.dotted.split(".")
        owners = {".".join(parts[:k]) for k in range(1, len(parts))}
        clash = next((n for n in used if n in owners or n.startswith(f"{each.dotted}.")), "")
        if each.dotted in used or clash or own & set(parts) or "self" in parts:
            raise refuse(
                "module-name",
                f"{each.dotted} cannot name a parameter of a module",
                facts=[f"it is taken by {clash or 'torch.nn.Module'}"],
                help=f"give it another name, --parameters weight={each.name}",
            )
        used[each.dotted] = each.name
        entry = entries.get(each.name)
        if isinstance(entry, ir.Tensor) and entry.kind != "real" and not each.is_buffer:
            raise refuse("module-kind", f"{each.name} holds no real numbers, and is no parameter")
    words = {*own, "self", "device", "dtype", "nn"}
    owners = {dotted.partition(".")[0] for dotted in used}
    for name in dict.fromkeys((*find_sizes(system), *entries)):
        if name in used.values():
            continue
        is_given = isinstance(entries.get(name), ir.Tensor)
        if name not in {"self", system.name} if is_given else name not in words | owners:
            continue
        raise refuse(
            "module-name",
            f"{name} is a name that its module needs for something else",
            help="rename it in the formula",
        )
