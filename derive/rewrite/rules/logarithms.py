"""Rules on logarithms of sums of exponentials, of a softmax, of a sigmoid.

Exponentials overflow where the logarithm of their sum does not. The logarithm of a value near 0 or
1 loses digits that a function for both steps keeps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import combinations

from derive.analysis.extents import is_alike, match_index
from derive.analysis.facts import is_positive
from derive.analysis.safety import is_safe
from derive.ir import nodes as ir
from derive.ir.functions import is_complex
from derive.ir.walk import Names, find_free, is_reading, rewrite_bottom_up
from derive.rewrite.rule import find_value, put_value, rule, system_rule
from derive.rewrite.rules import sums


@rule(
    law="log(sum_j exp(e_j) * b_j) = logsumexp_j(e_j + log(b_j)) where b > 0",
    before="x[M, N]; v[N] > 0; y[i] = log(sum[j](v[j] * exp(x[i,j])))",
    after="x[M, N]; v[N] > 0; y[i] = logsumexp[j](x[i,j] + log(v[j]))",
    refuses="x[M, N]; v[N]; y[i] = log(sum[j](v[j] * exp(x[i,j])))",
)
def find_logsumexp(expr: ir.Call) -> ir.Expr | None:
    """Write the logarithm of a sum of products with exponentials as a logsumexp.

    A sum with a factor that has an index of no exponent is a matrix product, and stays.
    """
    match expr:
        case ir.Call("log", (ir.Reduce("sum", bound, condition, body),)) if not is_complex(body):
            logits, rest = split_logits(body)
        case ir.Call("log", (ir.Call("exp", (logit,)),)) if not is_complex(logit):
            return logit
        case _:
            return None
    logit = ir.sum_of(logits)
    is_bare = any(not isinstance(each, ir.Along) for each in logits)
    if is_bare and set(find_free(body)) <= set(find_free(logit)) and all(map(is_positive, rest)):
        logs = [ir.Call("log", (ir.product_of(rest),))] if rest else []
        return ir.Reduce("logsumexp", bound, condition, ir.sum_of([*logits, *logs]))
    return None


@rule(
    law="log(exp(a) * b) = a + log(b);  log(exp(a) / b) = a - log(b)",
    before="x[M, N]; y[i,j] = log(exp(x[i,j])**2 / (1 + sum[k](exp(x[i,k]))))",
    after="x[M, N]; y[i,j] = 2 * x[i,j] - log(1 + sum[k](exp(x[i,k])))",
    refuses="x, y[N]; z[i] = log(exp(x[i]) + y[i])",
)
def split_log(expr: ir.Call) -> ir.Expr | None:
    """Write the logarithm of a product with an exponential as a sum, which does not overflow."""
    match expr:
        case ir.Call("log", (value,)) if not is_complex(expr):
            logits, rest = split_logits(value)
        case _:
            return None
    match rest:
        case _ if not logits:
            return None
        case []:
            return ir.sum_of(logits)
        case [ir.Pow(under, ir.Number(-1))]:
            return ir.sum_of([*logits, sums.negate_term(ir.Call("log", (under,)))])
    return ir.sum_of([*logits, ir.Call("log", (ir.product_of(rest),))])


def split_logits(value: ir.Expr) -> tuple[list[ir.Expr], list[ir.Expr]]:
    """(logarithms of the factors that are exponentials or normalized, the other factors)."""
    logits, rest = list[ir.Expr](), list[ir.Expr]()
    for factor in sums.find_factors(value):
        match factor:
            case ir.Call("exp", (logit,)):
                logits.append(logit)
            case ir.Pow(ir.Call("exp", (logit,)), ir.Number() as power):
                logits.append(ir.product_of([power, logit]))
            case ir.Pow(total, ir.Number(-1)) if whole := _find_logit(total):
                logits.append(sums.negate_term(whole))
            case ir.Along("softmax", index, ir.TRUE, logit):
                logits.append(ir.Along("log_softmax", index, ir.TRUE, logit))
            case _:
                rest.append(factor)
    return logits, rest


def _find_logit(total: ir.Expr) -> ir.Expr | None:
    """The logarithm of a total as a logsumexp or logaddexp, or None."""
    whole = ir.Call("log", (total,))
    return find_logsumexp(whole) or find_logaddexp(whole)


@rule(
    law="log(exp(a) + exp(b)) = logaddexp(a, b), and so for more terms and sums of exponentials",
    before="x, y[N]; s[N, M]; z[i] = log(exp(x[i]) + exp(-y[i]) + sum[j](exp(s[i,j])))",
    after="x, y[N]; s[N, M]; z[i] = logaddexp(x[i], logaddexp(-y[i], logsumexp[j](s[i,j])))",
    refuses="x, y[N]; z[i] = log(exp(x[i]) - exp(y[i]))",
)
def find_logaddexp(expr: ir.Call) -> ir.Expr | None:
    """Write the logarithm of added exponentials as a logaddexp, which does not overflow."""
    match expr:
        case ir.Call("log", (ir.Add(terms),)) if not is_complex(expr):
            logits = [find_logsumexp(ir.Call("log", (term,))) for term in terms]
            for k, term in enumerate(terms):
                if isinstance(term, ir.Call) and term.function == "exp":
                    logits[k] = term.arguments[0]
            found = [logit for logit in logits if logit is not None]
            if len(found) == len(terms):
                join = partial(ir.Call, "logaddexp")
                return reduce(lambda rest, logit: join((logit, rest)), found[::-1])
    return None


@system_rule(
    law="p = softmax_j(x): log(p_k) = l_k where l = log_softmax_j(x)",
    before="x[M, N]; int t[M] < N; p[i,j] = softmax[j](x[i,j]); y[i] = log(p[i,t[i]])",
    after="x[M, N]; int t[M] < N; log_p[i,j] = log_softmax[j](x[i,j]); y[i] = log_p[i,t[i]]",
    refuses="x[M, N]; int t[M] < N; p[i,j] = softmax[j](x[i,j]); y[i] = p[i,t[i]] + log(p[i,t[i]])",
)
def take_logarithm(system: ir.System) -> Iterator[ir.System]:
    """Replace a named softmax by a log_softmax if only its logarithms are read."""
    for place, named in enumerate(system.equations):
        tensor, whole = named.target.tensor, ir.Call("log", (named.value,))
        value = find_log_softmax(whole)
        if value is None and system.empty_row == "nan":
            value = find_masked_log_softmax(whole)
        if value is None or tensor in system.results:
            continue
        new = replace(tensor, name=Names.of(system).take(f"log_{tensor.name}"))

        def act(here: ir.Expr, old: ir.Tensor = tensor, new: ir.Tensor = new) -> ir.Expr:
            match here:
                case ir.Call("log", (ir.Access(read, places),)) if read is old:
                    return ir.Access(new, places)
            return here

        found = [replace(e, value=rewrite_bottom_up(e.value, act)) for e in system.equations]
        found[place] = ir.Equation(ir.Access(new, named.target.places), value)
        if not any(is_reading(each.value, tensor) for each in found):
            yield replace(system, equations=tuple(found))


@rule(
    law="c + logsumexp_j(e_j - c) = logsumexp_j(e)",
    before="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j] - c[i]) + c[i]",
    after="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j])",
    refuses="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j] - c[i]) + 2 * c[i]",
)
def return_shift(expr: ir.Add) -> ir.Expr | None:
    """Drop a finite shift that is subtracted from every logit and added again."""
    for k, term in enumerate(expr.terms):
        match term:
            case ir.Reduce("logsumexp", bound, condition, ir.Add(logits)):
                others = [*expr.terms[:k], *expr.terms[k + 1 :]]
            case _:
                continue
        for n, logit in enumerate(logits):
            spot = next(
                (m for m, o in enumerate(others) if is_alike(o, sums.negate_term(logit))), None
            )
            if spot is None or set(find_free(logit)) & set(bound) or not is_safe(logit):
                continue
            left = ir.sum_of([*logits[:n], *logits[n + 1 :]])
            whole = ir.Reduce("logsumexp", bound, condition, left)
            return ir.sum_of([*others[:spot], *others[spot + 1 :], whole])
    return None


@rule(
    law="e_j - logsumexp_j(e) = log_softmax_j(e);  log(softmax_j(e)) = log_softmax_j(e)",
    before="x[M, N]; b[N]; y[i,j] = x[i,j] + b[j] - logsumexp[k](x[i,k])",
    after="x[M, N]; b[N]; y[i,j] = b[j] + log_softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = z[i,j] - logsumexp[k](x[i,k])",
)
def find_log_softmax(expr: ir.Call | ir.Add) -> ir.Expr | None:
    """Recognise a logit minus the logsumexp of its row, or a log of a softmax."""
    match expr:
        case ir.Call("log", (ir.Along("softmax", index, ir.TRUE, body),)):
            return ir.Along("log_softmax", index, ir.TRUE, body)
        case ir.Add(terms):
            for k, term in enumerate(terms):
                found = _find_normalised(term, [*terms[:k], *terms[k + 1 :]])
                if found is not None:
                    return found
    return None


@rule(
    law="log(softmax_{j: c}(e)) = log_softmax_{j: c}(e) where a row of nothing is nan",
    before="x[M, N]; bool m[N]; y[i,j] = log(softmax[j, m[j]](x[i,j]))",
    after="x[M, N]; bool m[N]; y[i,j] = log_softmax[j, m[j]](x[i,j])",
    refuses="x[M, N]; bool m[N]; y[i,j] = log(softmax[j, m[j]](x[i,j]) + 1)",
    nan_rows=True,
)
def find_masked_log_softmax(expr: ir.Call) -> ir.Expr | None:
    """Write the log of a masked softmax as a log_softmax, unless an empty row is zeros."""
    match expr:
        case ir.Call("log", (ir.Along("softmax", index, condition, body),)):
            return ir.Along("log_softmax", index, condition, body)
    return None


@system_rule(
    law="l = logsumexp_j(e): e_j - l = log_softmax_j(e)",
    before="x[M, N]; l[i] = logsumexp[j](x[i,j]); p[i,j] = exp(x[i,j] - l[i]); return l, p",
    after="x[M, N]; l[i] = logsumexp[j](x[i,j]); p[i,j] = exp(log_softmax[j](x[i,j])); return l, p",
    refuses="x, z[M, N]; l[i] = logsumexp[j](z[i,j]); p[i,j] = exp(x[i,j] - l[i]); return l, p",
)
def find_named_softmax(system: ir.System) -> Iterator[ir.System]:
    """Recognise a logit minus a named logsumexp as a log_softmax."""
    for named in system.equations:
        if isinstance(named.value, ir.Reduce) and named.value.kind == "logsumexp":
            yield from _inline_named(system, named, _inline_logits)


def _inline_logits(here: ir.Expr, named: ir.Equation) -> ir.Expr:
    """The log_softmax of a sum with a subtracted, named logsumexp; else the expression itself."""
    terms = here.terms if isinstance(here, ir.Add) else ()
    values = [find_value(sums.negate_term(term), named) for term in terms]
    pairs = zip(terms, values, strict=True)
    opened = [term if value is None else sums.negate_term(value) for term, value in pairs]
    return (any(values) and find_log_softmax(ir.sum_of(opened))) or here


def _inline_named(
    system: ir.System, named: ir.Equation, open_read: Callable[[ir.Expr, ir.Equation], ir.Expr]
) -> Iterator[ir.System]:
    """Yield the system with a named value inlined by `open_read`, and dropped if then unread."""
    values = [rewrite_bottom_up(e.value, lambda e: open_read(e, named)) for e in system.equations]
    opened = [ir.Equation(e.target, v) for e, v in zip(system.equations, values, strict=True)]
    tensor = named.target.tensor
    if opened != [*system.equations]:
        is_kept = tensor in system.results or any(is_reading(e.value, tensor) for e in opened)
        kept = (e for e in opened if is_kept or e.target is not named.target)
        yield replace(system, equations=tuple(kept))


@rule(
    law="log(1 - sigmoid(x)) = log(sigmoid(-x))",
    before="x[N]; y[i] = log(1 - sigmoid(x[i]))",
    after="x[N]; y[i] = log(sigmoid(-x[i]))",
    refuses="x[N]; y[i] = log(2 - sigmoid(x[i])) + (1 - sigmoid(x[i]))",
)
def turn_sigmoid(expr: ir.Call) -> ir.Expr | None:
    """Write 1 - sigmoid(x) under a logarithm as sigmoid(-x), which keeps digits."""
    match expr:
        case ir.Call("log", (value,)):
            turned = _turn_sigmoid(value)
            return None if turned is value else ir.Call("log", (turned,))
    return None


def _turn_sigmoid(value: ir.Expr) -> ir.Expr:
    match value:
        case ir.Where(condition, then, other):
            return ir.Where(condition, _turn_sigmoid(then), _turn_sigmoid(other))
        case ir.Add((one, other)):
            for number, term in ((one, other), (other, one)):
                match sums.negate_term(term):
                    case ir.Call("sigmoid", (argument,)) if number is ir.ONE:
                        return ir.Call("sigmoid", (sums.negate_term(argument),))
    return value


@system_rule(
    law="p = sigmoid(x): log(f(p)) = log(f(sigmoid(x)))",
    before="x[N]; p[i] = sigmoid(x[i]); y = sum[i](log(p[i]))",
    after="x[N]; y = sum[i](log(sigmoid(x[i])))",
    refuses="x[N]; p[i] = sigmoid(x[i]); y = sum[i](exp(p[i]))",
)
def open_sigmoid(system: ir.System) -> Iterator[ir.System]:
    """Inline a named sigmoid into logarithms that read it, so that one call computes both."""
    for named in system.equations:
        if _is_call(named.value, "sigmoid"):
            yield from _inline_named(
                system, named, lambda e, named: put_value(e, named) if _is_call(e, "log") else e
            )


def _is_call(expr: ir.Expr, function: str) -> bool:
    return isinstance(expr, ir.Call) and expr.function == function


def _find_normalised(term: ir.Expr, others: Sequence[ir.Expr]) -> ir.Expr | None:
    """`others` whose logsumexp `term` subtracts, as a log_softmax, plus the rest; or None."""
    match term:
        case ir.Mul((sign, ir.Reduce("logsumexp", (summed,), condition, logit))) if (
            sign is ir.MINUS_ONE
        ):
            if find_free(condition):
                return None
        case _:
            return None
    wanted = ir.split_sum(logit)
    for chosen in combinations(range(len(others)), len(wanted)):
        one = ir.sum_of([others[k] for k in chosen])
        index = match_index(one, logit, summed)
        if index is not None:
            rest = [other for k, other in enumerate(others) if k not in chosen]
            return ir.sum_of([*rest, ir.Along("log_softmax", index, condition, one)])
    return None


@rule(
    law="log(det A) = logdet A",
    before="A[M, N, N]; y[b] = log(det[i, j](A[b,i,j]))",
    after="A[M, N, N]; y[b] = logdet[i, j](A[b,i,j])",
    refuses="A[M, N, N]; y[b] = log(1 + det[i, j](A[b,i,j]))",
)
def find_logdet(expr: ir.Call) -> ir.Expr | None:
    """Write the logarithm of a determinant, which may overflow, as a logdet."""
    match expr:
        case ir.Call("log", (ir.Reduce("det", bound, condition, body),)):
            return ir.Reduce("logdet", bound, condition, body)
    return None
