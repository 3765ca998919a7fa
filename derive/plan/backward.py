"""The plans of a forward and a backward pass, and the tensors saved between them.

A tensor that the gradients read is saved if it is small beside the largest argument or result of a
batch. The input or output of a normalized row is saved only if it is no larger than the tensor
computed from the row. Other tensors are recomputed. A tensor is not saved either where the machine
model says that saving takes more time: it may prevent one call of torch for several steps. Both
passes are compared with the backward that autograd derives from the plan of the results alone.
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
from derive.plan.build import make_plan
from derive.plan.common import to_product
from derive.plan.cost import Storage, count_elements, find_inner, find_true_axes, time_op
from derive.plan.machine import WIDTH
from derive.plan.plan import Plan, find_root, fix_chunks
from derive.plan.recurrences.chunks import Chunks, use_prefixes
from derive.plan.recurrences.scans import extract_loops
from derive.plan.recurrences.waves import turn_upward
from derive.plan.search import Request, find_plan
from derive.plan.steps import free_name

LONGER = 2  # times autograd's time, at equal memory, from which a separate backward is no use
LARGER = 4  # a tensor of at most so many times the largest argument or result is small


@dataclass(frozen=True, slots=True)
class Passes:
    """The plan of the results and saved tensors, and the plan of the gradients.

    `given` maps results to names of incoming gradients, `made` arguments to those of outgoing ones.
    """

    forward: Plan  # the results of the formula, then the saved tensors
    backward: Plan
    gradients: ir.System  # computed from the arguments alone
    kept: tuple[str, ...]  # the saved tensors, results included
    given: Mapping[str, str]
    made: Mapping[str, str]

    @property
    def blocks(self) -> dict[str, str]:
        """The keyword argument for each block of the backward, by the block's name in its plan."""
        taken = set(self.forward.names) | {tile.block for tile in self.forward.tiles}
        return {t.block: free_name(f"backward_{t.block}", taken) for t in self.backward.tiles}

    def compare(self, plan: Plan) -> tuple[str, ...]:
        """A remark if autograd's backward of `plan` is far better than this one; () if it is not.

        The time may be longer by the factor by which the memory is smaller.
        """
        tensors = (e for e in self.backward.system.inputs if isinstance(e, ir.Tensor))
        kept = (Polynomial.of(ir.Mul(e.shape)) for e in tensors if e.name in self.kept)
        beside = plan.at_sizes(add_all(kept))
        elements = max(self.forward.peak, self.backward.peak + beside)
        whole = replace(self.backward, uses=())
        seconds = self.forward.find_time() + whole.find_time()
        other, alive = find_trained(plan)
        if not other:
            return ()  # views cost nothing
        times, share = seconds / other, elements / max(1, alive)
        if times < LONGER * max(1, 1 / max(share, 1e-9)):
            return ()
        return (
            f"no backward of its own: at these sizes it takes {times:.2g} times as long as the one "
            f"that autograd makes, and {share:.2g} times its memory",
        )

    def describe_costs(self) -> str:
        """The cost of the backward and the names of the saved tensors, in words."""
        flops, peak = (
            to_text(p.to_expr()).replace(" * ", "*")
            for p in (self.backward.flops, self.backward.peak_elements)
        )
        kept = f"{', '.join(self.kept)} kept for it" if self.kept else "nothing kept for it"
        return f"its own backward: {flops} operations; {peak} elements alive at once; {kept}"


def plan_passes(  # noqa: PLR0913, PLR0917 - a formula, its gradients, and the request
    system: ir.System,
    gradients: ir.System,
    names: tuple[Mapping[str, str], Mapping[str, str]],
    sizes: Mapping[str, int],
    request: Request,
    compared: tuple[str, ...] = (),
) -> Passes:
    """The plans of a formula and of its gradients; `names` are `given` and `made` of Passes.

    The `compared` tensors are saved: recomputed values could round differently from their maximum.
    """
    found = _find_kept(system, gradients, sizes)
    kept = (*found, *(name for name in compared if name not in found))

    def time_saving(names: tuple[str, ...]) -> float:
        pair = split_passes(system, gradients, names)
        opened = (extract_loops(Chunks(use_prefixes(turn_upward(each))))[0] for each in pair)
        plans = [make_plan(each, sizes, cells=request.cells) for each in opened]
        return sum(plan.find_time() for plan in plans)

    least = time_saving(kept)
    sure = {*compared, *(tensor.name for tensor in system.results)}
    for name in [each for each in kept if each not in sure]:
        fewer = tuple(each for each in kept if each != name)
        if (seconds := time_saving(fewer)) <= least:
            kept, least = fewer, seconds
    ahead, behind = split_passes(system, gradients, kept)
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
    """(the system with a named tensor for each operand of a maximum or minimum, these names).

    Recurrences are left alone: their values are recomputed step by step from saved ones.
    """
    names = Names.of(system)
    equations: list[ir.Equation] = []
    named: dict[str, None] = {}

    def name_operand(stem: str, expr: ir.Expr) -> ir.Expr:
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
        value = rewrite_bottom_up(equation.value, partial(name_operand, stem))
        equations.append(replace(equation, value=value))
    made_here = {e.target.tensor.name for e in equations}
    return replace(system, equations=tuple(equations)), tuple(n for n in named if n in made_here)


def _keep_products(
    forward: Plan, backward: Plan, given: Set[str]
) -> tuple[Plan, Plan, tuple[str, ...]]:
    """(forward plan, backward plan, names): products that both need are saved under these names.

    A saved product is no larger than the largest result or than its operands.
    """

    def list_products(plan: Plan) -> dict[str, ops.Einsum]:
        """The products computed outside of loops."""
        first, last = (plan.tile.first, plan.tile.last) if plan.tile is not None else (0, -1)
        steps = () if plan.scans else (*plan.steps[:first], *plan.steps[last + 1 :])
        return {step.name: step.op for step in steps if isinstance(step.op, ops.Einsum)}

    def count_over(axes: Iterable[ir.Index]) -> int:
        return forward.at_sizes(count_elements(axes))

    made = {to_product(op): name for name, op in list_products(forward).items()}
    known = {entry.name for entry in forward.system.inputs}
    taken = known | {tensor.name for tensor in forward.system.results}
    least = max((count_over(op.axes) for op in forward.results), default=0)
    again: dict[str, tuple[str, tuple[ir.Index, ...]]] = {}
    for name, op in list_products(backward).items():
        most = max(least, *(count_over(arg.axes) for arg in op.args))
        same = made.get(to_product(op), "")
        if (
            same
            and ops.find_reads(op) <= known
            and name not in taken
            and count_over(op.axes) <= most
        ):
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
        and backward.tile.keep_steps(kept, [*reads, *map(ops.find_reads, backward.results)]),
    )
    return (ahead, behind, tuple(again)) if again else (forward, backward, ())


def split_passes(
    system: ir.System, gradients: ir.System, kept: tuple[str, ...]
) -> tuple[ir.System, ir.System]:
    """The formula with the saved tensors as results, and the gradients with them as inputs."""
    made = {each.target.tensor.name: each.target.tensor for each in gradients.equations}
    needed = {tensor.name for tensor in gradients.results}
    equations: list[ir.Equation] = []
    made_here = [e for e in gradients.equations if e.target.tensor.name not in kept]
    while len(equations) < len(
        equations := [e for e in made_here if e.target.tensor.name in needed]
    ):  # to a fixed point: recurrences read equations after them
        needed |= {each.tensor.name for e in equations for each in find_accesses(e.value)}
    used = [name for name in kept if name in needed]
    inputs = (*gradients.inputs, *(made[name] for name in used))
    whole = replace(gradients, inputs=inputs, equations=tuple(equations))
    read = [e for e in inputs if not isinstance(e, ir.Tensor) or e.name in needed]
    outside = {entry.name for entry in (*system.inputs, *(made[name] for name in used))}
    # Incoming gradients may be None, so the arguments that determine the sizes come first.
    read.sort(key=lambda entry: entry.name not in outside)
    short = replace(whole, inputs=tuple(read))
    sure = replace(short, inputs=tuple(e for e in read if e.name in outside))
    has_real = any(getattr(entry, "kind", "") == "real" for entry in sure.inputs)
    backward = short if has_real and not find_open_sizes(sure) else whole
    own = {each.target.tensor.name: each.target.tensor for each in system.equations}
    results = [tensor.name for tensor in system.results]
    more = tuple(own[name] for name in used if name not in results)
    return replace(system, results=(*system.results, *more)), backward


def _count_tensor(tensor: ir.Tensor, sizes: Mapping[str, int]) -> int:
    return prod(evaluate_extent(extent, sizes) for extent in tensor.shape)


def _find_uses(
    ahead: ir.System, behind: ir.System, sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], ...]:
    """(the names of all gradients, the names for arguments no larger than a result, if fewer).

    A larger argument may be a table of constants, whose gradient is often not needed.
    """
    most = max((_count_tensor(tensor, sizes) for tensor in ahead.results), default=0)
    every = tuple(tensor.name for tensor in behind.results)
    fewer = tuple(tensor.name for tensor in behind.results if _count_tensor(tensor, sizes) <= most)
    return tuple(dict.fromkeys((every, fewer or every)))


def _find_kept(
    system: ir.System, gradients: ir.System, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    """The names of results and small tensors (no copies, no places) that `gradients` computes."""
    count = partial(_count_tensor, sizes=sizes)
    rows: dict[str, int | None] = {}  # the size limit of inputs and outputs of rows
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


def find_trained(plan: Plan) -> tuple[float, int]:
    """(the seconds of a plan with autograd's backward, the most elements alive at once)."""
    sizes = plan.complete(plan.sizes)
    memory, seconds = Storage(sizes), replace(plan, uses=()).find_time()
    named = {step.op: step.name for step in plan.steps}
    tensors = [e for e in plan.system.inputs if isinstance(e, ir.Tensor)]
    kept: dict[ops.Op | str, int] = {tensor.name: 0 for tensor in tensors}  # views of them: 0
    largest = 0
    for place, step in enumerate(plan.steps):
        around = [tile for tile in plan.tiles if tile.first <= place <= tile.last]
        turns = prod(ceil(memory.extent(t.index) / sizes[t.block]) for t in around)
        turns *= prod(memory.extent(s.index) for s in plan.scans if s.first <= place <= s.last)
        for op in ops.walk_ops(step.op):
            if not has_gradient(op):
                continue
            seconds += turns * time_gradients(op, memory)
            count = memory.count(find_true_axes(op)) * turns
            largest = max(largest, 0 if isinstance(op, ops.Source) else count)
            for saved in find_saved(op):
                key = saved.name if isinstance(saved, ops.Source) else named.get(saved, saved)
                width = WIDTH if ops.is_boolean(saved) else 1
                count = memory.count(find_true_axes(saved)) * turns // width
                kept.setdefault(key, count)
        memory.record_strides([(step.name, step.op)])
        root = find_root(step.op)
        if isinstance(root, ops.Source) and root.name in kept:
            kept[step.name] = 0  # a view
    cut = [op for tile in plan.tiles for _, op in tile.sliced if has_gradient(op)]
    for op in cut:  # the gradients of the blocks are joined
        seconds += 2 * time_op(ops.Apply("neg", (op,), op.axes), memory)
        largest = max(largest, memory.count(op.axes))
    given = sum(_count_tensor(tensor, sizes) for tensor in tensors if tensor.kind == "real")
    return seconds, max(plan.peak, sum(kept.values()) + given + largest)


def has_gradient(op: ops.Op) -> bool:
    """Whether autograd tracks the result if all real arguments require gradients."""
    if ops.is_boolean(op) or ops.is_integral(op):
        return False
    return isinstance(op, ops.Source) or any(map(has_gradient, op.args))


def find_saved(op: ops.Op) -> tuple[ops.Op, ...]:
    """The tensors that autograd saves for the backward of an operation."""
    args = op.args
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
            found = (*args, *((op.whole, *op.whole.args) if op.scratch else (op,)))
        case ops.Apply() | ops.Reduction() | ops.Recur():
            found = args
        case _:
            found = ()
    return tuple(each for each in map(find_root, found) if not isinstance(each, ops.Num))


CALLED = 2.5  # time of the backward of a call of torch over its forward: 2 to 2.5


def time_gradients(op: ops.Op, memory: Storage) -> float:
    """The time of autograd's backward of one operation."""
    axes, args, gradient = find_true_axes(op), op.args, ops.Source("gradient", op.axes)

    def time_products(axes: tuple[ir.Index, ...], times: float = 1) -> float:
        """The time of `times` elementwise products of contiguous tensors over these axes."""
        pair = (ops.Source("gradient", axes), ops.Source("other", axes))
        return times * time_op(ops.Apply("*", pair, axes), memory)

    active = [arg for arg in args if has_gradient(arg)]
    match op:
        case ops.Einsum((one, other)):
            products = (
                ops.Einsum((gradient, beside), arg.axes)
                for arg, beside in ((one, other), (other, one))
                if has_gradient(arg)
            )
            return sum(time_op(product, memory) for product in products)
        case ops.Apply(function):
            whole = ops.Source("gradient", axes)
            gaps = [tuple(i for i in axes if i not in find_true_axes(arg)) for arg in active]
            sums = (ops.Reduction("sum", whole, over) for over in gaps if over)
            each = {"+": 0, "-": 0, "*": 1, "neg": 1}.get(function, 2) * len(active)
            return time_products(axes, each) + sum(time_op(part, memory) for part in sums)
        case ops.Reduction(kind, arg):
            return time_products(find_true_axes(arg), 0.5 if kind in {"sum", "mean"} else 2)
        case ops.Along():
            return time_products(axes, 2)
        case ops.Cell() | ops.Recur():  # torch decomposes a call with scratch and saves its steps
            inner = find_inner(op.whole, args) if isinstance(op, ops.Cell) and op.scratch else ()
            within = sum(time_gradients(each, memory) for each in inner)
            return CALLED * time_op(op, memory) + within
        case ops.Fill() | ops.Choose():
            return time_products(axes, len(active))
        case ops.Select(arg) | ops.Slice(arg) | ops.Take(arg) | ops.Expand(arg):
            return time_products(find_true_axes(arg), 0.5)
    return 0.0
