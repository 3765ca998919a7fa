"""Convert the modules of a folder to formulas and back.

    python -m tests.benchmarks.kernelbench FOLDER [REPORT.md] [PART OF A NAME ..]

Every file has the form of KernelBench: `Model`, `get_inputs`, `get_init_inputs` and numbers.
The numbers are reduced: large ones of the constructor by one factor, which keeps their ratios, and
those of inputs to distinct primes, which distinguish sizes. Each module is lifted; the text of its
formula is parsed and built; the function is compared with the module in float64, at the sizes of
the module and at others that its tensors allow. The module that is built from the formula loads the
state of the original and has to give equal values.
"""

import ast
import sys
import warnings
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from math import gcd
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

from derive.compiler import build
from derive.errors import DeriveError
from derive.frontend.from_code import from_torch
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.ir.nodes import Size, Tensor
from derive.ir.text import to_lines
from derive.judge.samples import choose_sizes, count_work, draw_inputs

LARGE = 16  # larger numbers are reduced
MOST_WORK = 1e9  # limit of the operations of a draw_values
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)
LETTERS = {"height": "H", "width": "W", "dim1": "H", "dim2": "W", "features": "C", "length": "L"}


class Bounds(TorchFunctionMode):
    """Records the upper bound of `randint` on its result."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "randint":
            made.below = args[1]
        return made


def shrink(text, *, distinct):
    """Return the syntax tree with small numbers, and the names of its sizes by value.

    Some modules need equal sizes of inputs: equal numbers stay equal unless `distinct`.
    """
    tree = ast.parse(text)
    assigned = [n for n in tree.body if isinstance(n, ast.Assign)]
    named = {n.targets[0].id: n for n in assigned if isinstance(n.targets[0], ast.Name)}
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    reads = {
        name: {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
        for name, function in functions.items()
    }
    values = {}
    for name, node in named.items():
        if not any(isinstance(part, ast.Name) for part in ast.walk(node.value)):
            values[name] = eval(compile(ast.Expression(node.value), "<number>", "eval"))
    made = {n for n in values if n in reads["get_init_inputs"] and type(values[n]) is int}
    large = [values[name] for name in made if values[name] > LARGE]
    unit, sizes, primes, known = gcd(*large) if large else 1, {}, iter(PRIMES), {}
    for name, value in values.items():
        if name in made and value > LARGE:
            new = LARGE * value // unit
            while new in sizes:
                new += LARGE
        elif name not in reads["get_init_inputs"] and type(value) in {int, tuple}:
            number = name if distinct else value if type(value) is int else value[0]
            known[number] = new = known.get(number) or next(primes)
        else:
            if name in reads["get_inputs"] and type(value) is int:
                sizes.setdefault(value, name)
            continue
        sizes.setdefault(new, name)
        named[name].value = (
            ast.Constant(new) if type(value) is int else ast.parse(f"({new},)").body[0].value
        )
    return ast.fix_missing_locations(tree), sizes


def declare(names, inputs, sizes):
    """Declare the arguments in the notation; other extents are new sizes."""
    letters, lines = {}, []

    def choose(key, wish):
        if key not in letters:
            free = (w for w in (wish, *"HWDLNMTSPQR") if w not in {*letters.values(), *names})
            letters[key] = next(free)
        return letters[key]

    for name, value in zip(names, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            lines.append(f"scalar {name}")
            continue
        extents = []
        for axis, length in enumerate(value.shape):
            size = sizes.get(length)
            wish = LETTERS.get(size, (size or "BCHW"[axis % 4])[0].upper())
            wish = "C" if size and "channels" in size else wish
            extents.append("1" if length == 1 else choose(size or (name, axis), wish))
        below = ""
        if hasattr(value, "below") and value.dtype == torch.int64:
            below = f" < {choose(sizes[value.below], 'V')}"
        kind = {torch.bool: "bool ", torch.int64: "int "}.get(value.dtype, "")
        lines.append(f"{kind}{name}[{', '.join(extents)}]{below}")
    return "; ".join(lines)


def find_own_sizes(system, model, names):
    """Sizes that the parameters and buffers of the module determine."""
    tensors, found = dict(model.named_parameters()) | dict(model.named_buffers()), {}
    shapes = {entry.name: entry.shape for entry in system.inputs if isinstance(entry, Tensor)}
    for dotted, name in names.items():
        for extent, length in zip(shapes.get(name, ()), tensors[dotted].shape, strict=True):
            if isinstance(extent, Size):
                found[extent.name] = int(length)
    return found


def call_module(model, names, values):
    """Call the module with these arguments, parameters and buffers."""
    own = {
        dotted: torch.as_tensor(values[name], dtype=torch.float64)
        if isinstance(values[name], float)
        else values[name]
        for dotted, name in names.items()
    }
    own |= {n: b.clone() for n, b in model.named_buffers() if n not in own}
    rest = {n: v for n, v in values.items() if n not in names.values()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.func.functional_call(model, own, (), rest)


def draw_values(system, model, names, fixed, seed):
    """Draw values at which the result of the module is finite; return values and result."""
    for times in (1, 2, 4, 8):
        sizes = choose_sizes(system, 1, seed=seed, fixed=fixed)[0]
        sizes = {n: k if n in fixed else times * k + times - 1 for n, k in sizes.items()}
        if any(n in fixed and sizes[n] != k for n, k in fixed.items()):
            return None
        if count_work(system, sizes) > MOST_WORK:
            return None
        for make in (
            lambda x: x,
            lambda x: x.abs() + 0.1 if torch.is_tensor(x) and x.is_floating_point() else x,
        ):
            values = {n: make(v) for n, v in draw_inputs(system, sizes, seed).items()}
            try:
                wanted = call_module(model, names, values)
            except (RuntimeError, ValueError, IndexError):
                break
            if wanted.double().isfinite().all():
                return values, wanted
    return None


def give_back(model, formula, given):
    """Describe how the rebuilt module differs from the original; empty if it does not."""
    made = build(formula, module=True).module(dtype=torch.float64)
    made.load_state_dict(model.state_dict())
    with torch.no_grad():
        try:
            wanted = deepcopy(model)(*given)  # the call_module may change running statistics
        except RuntimeError:
            return ""  # the original does not run at the reduced inputs
        if torch.allclose(made(*given).double(), wanted.double(), 1e-9, 1e-9):
            return ""
    return "the module that comes back gives other values"


def find_forward_arguments(tree):
    """The names of the arguments of the first `forward`, without self."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = (node for each in classes for node in each.body)
    forward = next(node for node in methods if getattr(node, "name", "") == "forward")
    return [argument.arg for argument in forward.args.args[1:]]


def judge(path):
    """Return the outcome of one file, its explanation, and the text of the formula."""
    for distinct in (True, False):
        tree, sizes = shrink(path.read_text(), distinct=distinct)
        names = {}
        exec(compile(tree, str(path), "exec"), names)
        model = names["Model"](*names["get_init_inputs"]()).double()
        with Bounds():
            inputs = names["get_inputs"]()
        given = [x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
        with suppress(RuntimeError):  # two sizes may have to be equal, as in the next round
            model(*given)
            break
    text = declared = declare(find_forward_arguments(tree), inputs, sizes)
    stage = "lift"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            formula = from_torch(model, declared, name="formula")
        own, lifted = formula.parameters, formula
        text = "\n".join(to_lines(to_system(formula)))
        stage = "read"
        formula = parse(text, "formula", empty_row=formula.empty_row)
        system = to_system(formula)
        if "\n".join(to_lines(system)) != text:
            return "wrong", "the text that is read back is another", text
        stage = "build"
        built = build(formula)
        stage = "give back"
        if said := give_back(model, lifted, given):
            return "wrong", said, text
    except DeriveError as error:
        return f"refused at {stage}", f"{error.diagnostic.code}: {error.diagnostic.says}", text
    except Exception as error:
        return f"fails at {stage}", f"{type(error).__name__}: {error}", text
    judged = 0
    fixed = find_own_sizes(system, model, own)
    for seed, held in enumerate((fixed, fixed, {}, {})):
        found = draw_values(system, model, own, held, seed)
        if found is None:
            continue
        values, wanted = found
        with torch.no_grad():
            got = built.function(**values)
        judged += 1
        if got.shape != wanted.shape or not torch.allclose(
            got.double(), wanted.double(), 1e-9, 1e-9
        ):
            shapes = {n: tuple(v.shape) for n, v in values.items() if torch.is_tensor(v)}
            return "wrong", f"at {shapes}", text
    if not judged:
        return "refused at run", "no draw_values runs", text
    return "right", f"at {judged} draws", text


def main(folder, report="", *parts):
    """Judge every file of a folder, print a table and write a report of the failures."""
    counts, lines = Counter(), []
    files = sorted(Path(folder).glob("*.py"), key=lambda p: (int(p.stem.split("_")[0]), p.name))
    for path in files:
        if parts and not any(part in path.stem for part in parts):
            continue
        word, says, text = judge(path)
        counts[word] += 1
        print(f"{path.stem[:58]:58s} {word:18s} {says[:140]}", flush=True)
        if word != "right":
            lines += [f"## {path.stem}: {word}", "", says, "", "```", text, "```", ""]
            if report:
                Path(report).write_text("\n".join(lines))
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))


if __name__ == "__main__":
    main(*sys.argv[1:])
