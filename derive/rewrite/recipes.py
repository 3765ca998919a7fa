"""Recipes: lists of rules in order. `prepare` rewrites a system into the form that a plan needs.

A search may try all other rules of the families, one use at a time:

OPTIONS     lose no digits: a search may use them whenever they make a plan faster
LOSSY       round worse, by the rounding of their summands: not used where a root, a logarithm or a
            quotient reads the value, and not with the option `exact`

The slopes of these functions are unbounded at 0: rounding of a small difference may give a large
error, another sign or nan. Sums, products and names pass that on; exp and similar functions do not,
and neither does a quotient by a nonnegative value of 1 or more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from derive.ir import nodes as ir
from derive.ir.functions import COUNTING
from derive.ir.walk import exchange, find_free, walk
from derive.rewrite import guards, rounding
from derive.rewrite.opening import open_rows, open_wide_sums
from derive.rewrite.rule import (
    IndexNames,
    Rule,
    apply_rules,
    find_valid,
    rename_clashes,
    sort_rules,
)
from derive.rewrite.rules import (
    bands,
    chains,
    deltas,
    expansion,
    exponentials,
    logarithms,
    masks,
    near,
    offsets,
    products,
    radix,
    sums,
    tables,
)

RULES: tuple[Rule, ...] = (
    products.flatten_sum,
    products.flatten_product,
    exponentials.merge_mask,
    exponentials.exponentiate_mask,
    products.guard_product,
    chains.split_root,
    logarithms.turn_sigmoid,
    tables.join_reads,
    products.contract_mean,
    exponentials.find_softmax,
    exponentials.find_full_softmax,
    exponentials.find_share,
    exponentials.find_weighted_softmax,
    exponentials.join_exponents,
    logarithms.split_log,
    logarithms.find_logsumexp,
    logarithms.find_logaddexp,
    logarithms.find_log_softmax,
    logarithms.find_masked_log_softmax,
    logarithms.find_logdet,
    exponentials.exponentiate_row,
    exponentials.restrict_softmax,
    exponentials.drop_largest,
    logarithms.return_shift,
    exponentials.guard_root,
    deltas.split_delta,
    deltas.sift_index,
    deltas.sift_label,
    products.restrict_sum,
    products.pull_sum_out,
    products.merge_sums,
    products.distribute_product,
    products.count_unused,
)


# Rules on whole systems: one before guards are carried, and one that changes ranges after that.
ACROSS = (logarithms.take_logarithm, masks.shorten_ranges)

# First, so that a bracket meets all the factors that it guards.
FLAT = (products.flatten_product,)

# The rules that the generated file mentions; the others only simplify.
REPORTED = (
    products.distribute_product,
    deltas.split_delta,
    deltas.sift_index,
    deltas.sift_label,
    exponentials.find_softmax,
    exponentials.find_full_softmax,
    exponentials.find_share,
    exponentials.find_weighted_softmax,
    logarithms.find_logsumexp,
    logarithms.find_log_softmax,
    exponentials.exponentiate_row,
    exponentials.drop_largest,
    logarithms.return_shift,
)


def prepare(system: ir.System) -> tuple[ir.System, tuple[str, ...]]:
    """The system with every value rewritten by the rules, and the laws to mention."""
    reported: set[Rule] = set()
    inlined = replace(system, equations=open_wide_sums(system.equations, system.results))
    rewrite = _make_rewriter(inlined, guards.find_nonfinite(inlined))
    opened_rows = replace(inlined, equations=open_rows(inlined.equations, inlined.results, rewrite))
    nonfinite = guards.find_nonfinite(opened_rows, signs=True)
    rewrite = _make_rewriter(opened_rows, nonfinite)
    equations = tuple(
        ir.Equation(each.target, rewrite(each.value, reported)) for each in opened_rows.equations
    )

    ruled = replace(opened_rows, equations=equations)
    logged = _apply_across(logarithms.take_logarithm, ruled)
    shorter = _apply_across(masks.shorten_ranges, guards.carry_guards(logged))
    last = rename_clashes(shorter, system)
    return last, tuple(f"{each.name}: {each.law}" for each in REPORTED if each in reported)


def _apply_across(rule: Rule, system: ir.System) -> ir.System:
    """The system after one use of a law that spans equations."""
    return next(rule.across(system), system) if rule.across is not None else system


def _make_rewriter(
    system: ir.System, nonfinite: Mapping[ir.Tensor, ir.Tensor]
) -> Callable[..., ir.Expr]:
    """A function that rewrites a value by the rules, and adds the used ones to a set.

    The tensors that may be infinite or nan are marked for the rules.
    """
    rules = find_valid(RULES, system.empty_row)

    def rewrite(value: ir.Expr, used: set[Rule] | None = None) -> ir.Expr:
        flat = apply_rules(guards.mark_tensors(value, nonfinite), FLAT, used)
        return guards.unmark_tensors(apply_rules(flat, rules, used), nonfinite)

    return rewrite


_FAMILIES = (
    radix,
    near,
    tables,
    expansion,
    sums,
    exponentials,
    logarithms,
    deltas,
    masks,
    bands,
    chains,
    products,
    offsets,
)
_FOUND = dict.fromkeys(
    each
    for family in _FAMILIES
    for each in vars(family).values()
    if isinstance(each, Rule) and each not in (*RULES, *ACROSS)
)
OPTIONS: tuple[Rule, ...] = tuple(each for each in _FOUND if not each.loses)
LOSSY: tuple[Rule, ...] = tuple(each for each in _FOUND if each.loses)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One use of an optional rule, with the whole new system."""

    rule: Rule
    system: ir.System


Site = tuple[Rule, int, ir.Expr, ir.Expr]  # the equation's number, a node, what it becomes


def find_rewritings(system: ir.System, rules: Sequence[Rule]) -> Iterator[Rewriting]:
    """Every system that one use of one rule gives, each once: by site, then by rule.

    Equal nodes of one equation are one site. At the end, each rule is used at all of its sites.
    Positions and conditions are left alone, and so are rules invalid for the system's empty rows.
    """
    seen = {system: None}
    indices = IndexNames(system)
    rules = find_valid(rules, system.empty_row)
    nonfinite = guards.find_nonfinite(system, signs=True)
    uses = _find_sites(system, rules, nonfinite)
    use = partial(_use_rule, system=system, indices=indices, nonfinite=nonfinite)
    alike = ([each for each in uses if each[0] is rule] for rule in rules)
    wholes = [group for group in alike if len(group) > 1]
    found = chain(
        (use([each]) for each in uses), _find_across(system, rules, indices), map(use, wholes)
    )
    for rewriting in found:
        if rewriting is not None and rewriting.system not in seen:
            seen[rewriting.system] = None
            yield rewriting


def _find_sites(
    system: ir.System, rules: Sequence[Rule], nonfinite: Mapping[ir.Tensor, ir.Tensor]
) -> list[Site]:
    """Each fitting rule at each node, but where a root, log or quotient reads lost digits."""
    names = rounding.find_sensitive_names(system)
    marked = [replace(e, value=guards.mark_tensors(e.value, nonfinite)) for e in system.equations]
    signed_names = rounding.find_signed_names(replace(system, equations=tuple(marked)))
    at = sort_rules(rules)
    uses: list[Site] = []
    for number, equation in enumerate(marked):
        sensitive = rounding.find_sensitive(equation, names)
        signed = rounding.find_signed(equation, signed_names)
        for site in _walk_values(equation.value):
            for rule in at[type(site)]:
                new = rule.act(site)
                if new is None or new is site:
                    continue
                is_free = not rule.loses
                is_free = is_free or guards.is_count(site)  # integers are exact
                if not is_free and _find_changed(site, new) in sensitive[rule.keeps_sign]:
                    continue
                if rule.keeps_sign and site not in signed and site not in sensitive[0]:
                    new = _drop_floor(new)
                uses.append((rule, number, site, new))
    return uses


def _use_rule(
    group: Sequence[Site],
    system: ir.System,
    indices: IndexNames,
    nonfinite: Mapping[ir.Tensor, ir.Tensor],
) -> Rewriting | None:
    """The system with one rule applied at these sites; None if a reduction loses an index."""
    equations = list(system.equations)
    for number in dict.fromkeys(number for _, number, _, _ in group):
        value = guards.mark_tensors(system.equations[number].value, nonfinite)
        for _, place, site, new in group:
            value = exchange(value, site, new, _find_values) if place == number else value
        value = guards.unmark_tensors(value, nonfinite)
        equations[number] = indices.rename_bound(replace(equations[number], value=value))
        if not _uses_all_indices(equations[number].value):
            return None
    return Rewriting(group[0][0], replace(system, equations=tuple(equations)))


def _drop_floor(value: ir.Expr) -> ir.Expr:
    """The result of a rule without its max(.., 0), also as a factor: no reader needs its sign."""
    match value:
        case ir.Call("max", (inner, ir.Number(0))):
            return inner
        case ir.Mul(factors):
            return ir.Mul(tuple(map(_drop_floor, factors)))
    return value


def _find_changed(site: ir.Expr, new: ir.Expr) -> ir.Expr:
    """The part of a site whose rounding changes: the body of a row that stays a row, or all."""
    match site, new:
        case ir.Reduce("argmax", _, _, body), ir.Reduce("argmax"):
            return body
        case ir.Along(kind, index, condition, body), ir.Along(same, over, where, _) if (
            kind,
            index,
            condition,
        ) == (same, over, where):
            return body
        case _:
            return site


def _find_across(
    system: ir.System, rules: Sequence[Rule], indices: IndexNames
) -> Iterator[Rewriting]:
    values = {equation.target.tensor: equation for equation in system.equations}
    for rule in rules:
        for new in rule.across(system) if rule.across is not None else ():
            equations = tuple(
                each if values.get(each.target.tensor) is each else indices.rename_bound(each)
                for each in new.equations
            )
            tensors = ((e.target.tensor, e) for e in equations)
            changed = next((e for tensor, e in tensors if values.get(tensor, e) is not e), None)
            if changed is not None and _uses_all_indices(changed.value):
                yield Rewriting(rule, replace(new, equations=equations))


def _uses_all_indices(value: ir.Expr) -> bool:
    """Whether no reduction has an unused index, but those that count it, as a sum does."""
    return all(
        set(part.indices) <= {*find_free(part.body), *find_free(part.condition)}
        for part in walk(value)
        if isinstance(part, (ir.Reduce, ir.Along)) and part.kind not in COUNTING
    )


def _find_values(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The children of a node that are values, so neither positions nor conditions."""
    match expr:
        case ir.Access() | ir.Compare() | ir.Call("floordiv" | "mod"):
            return ()
        case ir.Where(_, then, other):
            return (then, other)
        case ir.Reduce(_, _, _, body) | ir.Along(_, _, _, body):
            return (body,)
    return expr.children


def _walk_values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The nodes that are values, outermost first, each once."""
    seen: dict[ir.Expr, None] = {}
    stack = [expr]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen[here] = None
            yield here
            stack.extend(reversed(_find_values(here)))
