"""What a forward pass keeps for the backward one, and the plans of both.

Of the tensors that the gradients read, one is kept if it is small beside the largest argument or
result of a batch; what a normalized row runs along, or makes, only if it is no larger than what is
made out of the row. What is not kept is computed again, from what is. Nor is anything kept where
that takes more time, by the model of the machine: it may keep torch's own call for several steps
from being used. Both are weighed against what autograd makes of the plan of the results alone.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod

from derive.analysis.extents import find_open_sizes
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial, add_all, evaluate_extent
from derive.ir.recurrences import find_groups
from derive.ir.text import to_text
from derive.ir.walk import Names, find_accesses, find_free, rewrite_bottom_up, walk
from derive.plan import ops
from derive.plan.build import make_plan, to_product
from derive.plan.chunks import close_running
from derive.plan.cost import Storage, count_elements, find_inner, find_true_axes, time_op
from derive.plan.machine import WIDTH, Machine
from derive.plan.plan import Plan, find_root, fix_chunks
from derive.plan.scans import open_recurrences
from derive.plan.search import Request, find_plan
from derive.plan.steps import free_name
from derive.plan.waves import turn_upward

LONGER = 2  # times autograd's time, with as much memory: a backward of its own is of no use
LARGER = 4  # times as many elements as the largest argument or result of a batch: still small


@dataclass(frozen=True, slots=True)
class Passes:
    """The plan of the results and of what is kept, and the plan of the gradients out of that.

    `given` names the gradient that comes in for each result, `made` the one that goes out for each
    argument.
    """

    forward: Plan  # its results are those of the formula, then what is kept
    backward: Plan
    gradients: ir.System  # all that the backward is made of, from the arguments
    kept: tuple[str, ...]  # results among them
    given: Mapping[str, str]
    made: Mapping[str, str]

    @property
    def blocks(self) -> dict[str, str]:
        """The keyword of each block of the backward, by the name that it has there."""
        taken = set(self.forward.names) | {tile.block for tile in self.forward.tiles}
        return {t.block: free_name(f"backward_{t.block}", taken) for t in self.backward.tiles}

    def compare(self, plan: Plan, machine: Machine) -> tuple[str, ...]:
        """Why autograd does far better on a plan of the results alone; nothing where it does not.

        So much more time as it takes less memory is fine.
        """
        tensors = (e for e in self.backward.system.inputs if isinstance(e, ir.Tensor))
        kept = (Polynomial.of(ir.Mul(e.shape)) for e in tensors if e.name in self.kept)
        beside = plan.at_sizes(add_all(kept))
        elements = max(self.forward.peak, self.backward.peak + beside)
        whole = replace(self.backward, uses=())
        seconds = self.forward.find_time(machine) + whole.find_time(machine)
        other, alive = find_trained(plan, machine)
        if not other:
            return ()  # all are views, which cost nothing
        times, share = seconds / other, elements / max(1, alive)
        if times < LONGER * max(1, 1 / max(share, 1e-9)):
            return ()
        return (
            f"no backward of its own: at these sizes it takes {times:.2g} times as long as the one "
            f"that autograd makes, and {share:.2g} times its memory",
        )

    def say(self) -> str:
        """What the backward costs, and what is kept for it."""
        flops, peak = (
            to_text(p.to_expr()).replace(" * ", "*")
            for p in (self.backward.flops, self.backward.peak_elements)
        )
        kept = f"{', '.join(self.kept)} kept for it" if self.kept else "nothing kept for it"
        return f"its own backward: {flops} operations; {peak} elements alive at once; {kept}"


def plan_passes(  # noqa: PLR0913, PLR0917 - a formula, its gradients, and what is asked
    system: ir.System,
    gradients: ir.System,
    names: tuple[Mapping[str, str], Mapping[str, str]],
    sizes: Mapping[str, int],
    request: Request,
    compared: tuple[str, ...] = (),
) -> Passes:
    """The plans of a formula and of its gradients; `names` are those of gradients, in and out.

    What is `compared` with its maximum is kept: computed anew it may round otherwise.
    """
    found = _find_kept(system, gradients, sizes)
    kept = (*found, *(name for name in compared if name not in found))

    def time(names: tuple[str, ...]) -> float:
        pair = cut(system, gradients, names)
        opened = (open_recurrences(close_running(turn_upward(each)))[0] for each in pair)
        plans = [make_plan(each, sizes, cells=request.cells) for each in opened]
        return sum(plan.find_time(request.machine) for plan in plans)

    least = time(kept)
    sure = {*compared, *(tensor.name for tensor in system.results)}
    for name in [each for each in kept if each not in sure]:
        fewer = tuple(each for each in kept if each != name)
        if (seconds := time(fewer)) <= least:
            kept, least = fewer, seconds
    ahead, behind = cut(system, gradients, kept)
    lean = replace(request, keywords=False, in_place=True)
    forward = fix_chunks(find_plan(ahead, sizes, lean))
    uses = _find_uses(ahead, behind, sizes)
    backward = fix_chunks(find_plan(behind, sizes, replace(lean, uses=uses)))
    forward, backward, more = _keep_products(forward, backward, {*names[0].values()})
    kept = (*kept, *more)
    read = {tensor.name for tensor in backward.system.inputs}
    used = tuple(name for name in kept if name in read)
    return Passes(forward, backward, gradients, used, *names)


def name_compared(system: ir.System) -> tuple[ir.System, tuple[str, ...]]:
    """The system with a tensor for all that a maximum or minimum is taken of, and their names.

    What recurs stays: its places are computed again one by one, from those before that are kept.
    """
    names = Names.of(system)
    equations: list[ir.Equation] = []
    named: dict[str, None] = {}

    def name(stem: str, expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Reduce("max" | "min", bound, condition, body):
                if not isinstance(body, ir.Access):
                    made = ir.name_axes(names.take(f"{stem}_in"), find_free(body))
                    equations.append(ir.Equation(made, body))
                    body = made
                named[body.tensor.name] = None
                return ir.Reduce(expr.kind, bound, condition, body)
        return expr

    recurring = [each for group in find_groups(system) for each in group]
    for equation in system.equations:
        stem = equation.target.tensor.name
        if equation in recurring:
            equations.append(equation)
            continue
        value = rewrite_bottom_up(equation.value, partial(name, stem))
        equations.append(replace(equation, value=value))
    made_here = {e.target.tensor.name for e in equations}
    return replace(system, equations=tuple(equations)), tuple(n for n in named if n in made_here)


def _keep_products(
    forward: Plan, backward: Plan, given: Set[str]
) -> tuple[Plan, Plan, tuple[str, ...]]:
    """The plans with products of the arguments in both kept, by name.

    Those are kept that are no larger than the largest result or than what they are made of.
    """

    def list_products(plan: Plan) -> dict[str, ops.Einsum]:
        """Those that are made outside of loops."""
        first, last = (plan.tile.first, plan.tile.last) if plan.tile is not None else (0, -1)
        steps = () if plan.scans else (*plan.steps[:first], *plan.steps[last + 1 :])
        return {step.name: step.op for step in steps if isinstance(step.op, ops.Einsum)}

    def count(axes: Iterable[ir.Index]) -> int:
        return forward.at_sizes(count_elements(axes))

    made = {to_product(op): name for name, op in list_products(forward).items()}
    known = {entry.name for entry in forward.system.inputs}
    taken = known | {tensor.name for tensor in forward.system.results}
    least = max((count(ops.axes_of(op)) for op in forward.results), default=0)
    again: dict[str, tuple[str, tuple[ir.Index, ...]]] = {}
    for name, op in list_products(backward).items():
        most = max(least, *(count(ops.axes_of(arg)) for arg in op.args))
        same = made.get(to_product(op), "")
        if same and ops.find_reads(op) <= known and name not in taken and count(op.axes) <= most:
            again[name] = same, op.axes
            known |= {name} if name == same else set()
    own = {step.name: step.axes for step in forward.steps}
    more = [ir.Tensor(name, tuple(i.extent for i in axes)) for name, (_, axes) in again.items()]
    results = [ops.arrange(ops.Source(n, own[n]), axes) for n, axes in again.values()]
    system = replace(forward.system, results=(*forward.system.results, *more))
    ahead = replace(forward, system=system, results=(*forward.results, *results))
    inputs = sorted((*backward.system.inputs, *more), key=lambda entry: entry.name in given)
    kept = [step.name not in again for step in backward.steps]
    reads = [ops.find_reads(step.op) for step in backward.steps]
    behind = replace(
        backward,
        system=replace(backward.system, inputs=tuple(inputs)),
        steps=tuple(step for step in backward.steps if step.name not in again),
        tile=backward.tile
        and backward.tile.keep(kept, [*reads, *map(ops.find_reads, backward.results)]),
    )
    return (ahead, behind, tuple(again)) if again else (forward, backward, ())


def cut(
    system: ir.System, gradients: ir.System, kept: tuple[str, ...]
) -> tuple[ir.System, ir.System]:
    """The formula with what is kept among its results, and the gradients that take that."""
    made = {each.target.tensor.name: each.target.tensor for each in gradients.equations}
    needed = {tensor.name for tensor in gradients.results}
    equations: list[ir.Equation] = []
    made_here = [e for e in gradients.equations if e.target.tensor.name not in kept]
    while len(equations) < len(
        equations := [e for e in made_here if e.target.tensor.name in needed]
    ):  # those that recur read what later ones define
        needed |= {each.tensor.name for e in equations for each in find_accesses(e.value)}
    used = [name for name in kept if name in needed]
    inputs = (*gradients.inputs, *(made[name] for name in used))
    whole = replace(gradients, inputs=inputs, equations=tuple(equations))
    read = [e for e in inputs if not isinstance(e, ir.Tensor) or e.name in needed]
    outside = {entry.name for entry in (*system.inputs, *(made[name] for name in used))}
    # A gradient that comes in may be None: the other arguments stand first, and tell the sizes.
    read.sort(key=lambda entry: entry.name not in outside)
    short = replace(whole, inputs=tuple(read))
    sure = replace(short, inputs=tuple(e for e in read if e.name in outside))
    has_real = any(getattr(entry, "kind", "") == "real" for entry in sure.inputs)
    backward = short if has_real and not find_open_sizes(sure) else whole
    own = {each.target.tensor.name: each.target.tensor for each in system.equations}
    results = [tensor.name for tensor in system.results]
    more = tuple(own[name] for name in used if name not in results)
    return replace(system, results=(*system.results, *more)), backward


def _count(tensor: ir.Tensor, sizes: Mapping[str, int]) -> int:
    """The elements of a tensor."""
    return prod(evaluate_extent(extent, sizes) for extent in tensor.shape)


def _find_uses(
    ahead: ir.System, behind: ir.System, sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], ...]:
    """All gradients, and those by what is no larger than a result: what is larger may be constant.

    What rests on a large table of constants is not to wait for the gradients by it.
    """
    most = max((_count(tensor, sizes) for tensor in ahead.results), default=0)
    every = tuple(tensor.name for tensor in behind.results)
    fewer = tuple(tensor.name for tensor in behind.results if _count(tensor, sizes) <= most)
    return tuple(dict.fromkeys((every, fewer or every)))


def _find_kept(
    system: ir.System, gradients: ir.System, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    """The results, and the tensors that are small, as far as something is computed for them."""
    count = partial(_count, sizes=sizes)
    rows: dict[str, int | None] = {}  # what a row makes, or runs along: how large it may be
    for equation in system.equations:
        for part in walk(equation.value):
            if isinstance(part, ir.Along):
                own = {equation.target.tensor.name} if part is equation.value else set()
                inside = [
                    a.tensor.name for a in find_accesses(part.body) if part.index in find_free(a)
                ]
                made = [
                    e.target.tensor
                    for e in system.equations
                    if own & {a.tensor.name for a in find_accesses(e.value)}
                ]
                made = made if own else [equation.target.tensor]
                most = max(map(count, made), default=None) if ROWS[part.kind].normalizes else None
                rows.update(dict.fromkeys((*inside, *own), most))
    results = [tensor for tensor in system.results if tensor.name not in rows]
    first = next((tensor.shape[0] for tensor in results if tensor.shape), None)
    tensors = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    batches = [t for t in tensors if first is None or first in t.shape]
    largest = max(map(count, (*results, *(batches or tensors))), default=1)
    reads = [a for each in gradients.equations for a in find_accesses(each.value)]
    positions = {a.tensor.name for read in reads for p in read.places for a in find_accesses(p)}
    small: dict[str, None] = {}
    for equation in system.equations:
        tensor, value = equation.target.tensor, equation.value
        most = rows[tensor.name] or largest if tensor.name in rows else LARGER * largest
        is_result = tensor in system.results
        if is_result or (not isinstance(value, ir.Access) and count(tensor) <= most):
            small[tensor.name] = None
    defined = {each.target.tensor.name for each in gradients.equations}
    return tuple(name for name in small if name in defined and name not in positions)


def find_trained(plan: Plan, machine: Machine) -> tuple[float, int]:
    """Seconds with the backward that autograd makes of it, and the elements alive at once."""
    sizes = plan.complete(plan.sizes)
    memory, seconds = Storage(sizes), replace(plan, uses=()).find_time(machine)
    named = {step.op: step.name for step in plan.steps}
    tensors = [e for e in plan.system.inputs if isinstance(e, ir.Tensor)]
    kept: dict[ops.Op | str, int] = {tensor.name: 0 for tensor in tensors}  # views of one: none
    largest = 0
    for place, step in enumerate(plan.steps):
        around = [tile for tile in plan.tiles if tile.first <= place <= tile.last]
        turns = prod(ceil(memory.extent(t.index) / sizes[t.block]) for t in around)
        turns *= prod(memory.extent(s.index) for s in plan.scans if s.first <= place <= s.last)
        for op in ops.walk_ops(step.op):
            if not has_gradient(op):
                continue
            seconds += turns * time_gradients(op, memory, machine)
            count = memory.count(find_true_axes(op)) * turns
            largest = max(largest, 0 if isinstance(op, ops.Source) else count)
            for saved in find_saved(op):
                key = saved.name if isinstance(saved, ops.Source) else named.get(saved, saved)
                width = WIDTH if ops.is_boolean(saved) else 1
                count = memory.count(find_true_axes(saved)) * turns // width
                kept.setdefault(key, count)
        memory.note([(step.name, step.op)])
        root = find_root(step.op)
        if isinstance(root, ops.Source) and root.name in kept:
            kept[step.name] = 0  # a view
    cut = [op for tile in plan.tiles for _, op in tile.sliced if has_gradient(op)]
    for op in cut:  # the gradients by its blocks are joined
        seconds += 2 * time_op(ops.Apply("neg", (op,), ops.axes_of(op)), memory, machine)
        largest = max(largest, memory.count(ops.axes_of(op)))
    given = sum(_count(tensor, sizes) for tensor in tensors if tensor.kind == "real")
    return seconds, max(plan.peak, sum(kept.values()) + given + largest)


def has_gradient(op: ops.Op) -> bool:
    """Does autograd follow it, where all real arguments have gradients?"""
    if ops.is_boolean(op) or ops.is_integral(op):
        return False
    return isinstance(op, ops.Source) or any(map(has_gradient, ops.args_of(op)))


def find_saved(op: ops.Op) -> tuple[ops.Op, ...]:
    """What autograd keeps for the backward of an operation."""
    args = ops.args_of(op)
    match op:
        case ops.Einsum() | ops.Apply("*"):
            pairs = zip(args, args[::-1], strict=True) if len(args) == 2 else ()
            found = tuple(one for one, other in pairs if has_gradient(other))
        case ops.Apply("+" | "-" | "neg") | ops.Reduction("sum" | "mean") | ops.Cast():
            found = ()
        case ops.Apply("exp" | "sqrt" | "rsqrt" | "tanh" | "sigmoid") | ops.Along():
            found = (op,)
        case ops.Fill(_, mask) | ops.Choose(mask):
            found = (mask,)
        case ops.Cell():
            found = (*args, *((op.whole, *ops.args_of(op.whole)) if op.scratch else (op,)))
        case ops.Apply() | ops.Reduction() | ops.Recur():
            found = args
        case _:
            found = ()
    return tuple(each for each in map(find_root, found) if not isinstance(each, ops.Num))


CALLED = 2.5  # times what a call of torch takes, its own backward does: 2 to 2.5


def time_gradients(op: ops.Op, memory: Storage, machine: Machine) -> float:
    """The time that autograd takes from the gradient by an operation to those by its operands."""

    def stand(axes: tuple[ir.Index, ...], name: str = "gradient") -> ops.Op:
        return ops.Source(name, axes)  # a tensor that lies in one piece

    def walk(axes: tuple[ir.Index, ...], times: float = 1) -> float:
        """The time of products element by element."""
        pair = (stand(axes), stand(axes, "other"))
        return times * time_op(ops.Apply("*", pair, axes), memory, machine)

    axes, args, seconds = find_true_axes(op), ops.args_of(op), 0.0
    active = [arg for arg in args if has_gradient(arg)]
    match op:
        case ops.Einsum((one, other)):
            for arg, beside in ((one, other), (other, one)):
                if has_gradient(arg):
                    product = ops.Einsum((stand(op.axes), beside), ops.axes_of(arg))
                    seconds += time_op(product, memory, machine)
        case ops.Apply(function):
            each = {"+": 0, "-": 0, "*": 1, "neg": 1}.get(function, 2)
            for arg in active:
                seconds += walk(axes, each) if each else 0
                over = tuple(i for i in axes if i not in find_true_axes(arg))
                if over:
                    summed = ops.Reduction("sum", stand(axes), over)
                    seconds += time_op(summed, memory, machine)
        case ops.Reduction(kind, arg):
            seconds += walk(find_true_axes(arg), 0.5 if kind in {"sum", "mean"} else 2)
        case ops.Along():
            seconds += walk(axes, 2)
        case ops.Cell() | ops.Recur():
            seconds += CALLED * time_op(op, memory, machine)
            if isinstance(op, ops.Cell) and op.scratch:  # torch writes it out, and keeps its steps
                inner = find_inner(op.whole, op.args)
                seconds += sum(time_gradients(each, memory, machine) for each in inner)
        case ops.Fill() | ops.Choose():
            seconds += walk(axes, len(active))
        case ops.Select(arg) | ops.Slice(arg) | ops.Take(arg) | ops.Expand(arg):
            seconds += walk(find_true_axes(arg), 0.5)
    return seconds
