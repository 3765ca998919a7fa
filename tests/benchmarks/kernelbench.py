"""Modules of a folder as formulas, and out of these again.

    python -m tests.benchmarks.kernelbench FOLDER [REPORT.md] [PART OF A NAME ..]

Every file holds a module `Model`, `get_inputs` and `get_init_inputs` over numbers of the file, as
those of KernelBench do. The numbers are made small: large ones of the constructor by one factor, so
that ratios stay, those of inputs alone to distinct primes, which tell the extents that are one
size. Each module is lifted, its formula's text read back and built, and the function that this
gives is compared with the module in float64: at the module's own sizes, and at others where its
tensors can have them. The module that its formula gives back takes its state and is it.
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

LARGE = 16  # numbers above are made smaller
MOST_WORK = 1e9  # of a draw
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)
LETTERS = {"height": "H", "width": "W", "dim1": "H", "dim2": "W", "features": "C", "length": "L"}


class Bounds(TorchFunctionMode):
    """Remembers below what the integers of `randint` are."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "randint":
            made.below = args[1]
        return made


def shrink(text, *, distinct):
    """The file with small numbers, and the names of its sizes by their values.

    A module may run only where two sizes of its inputs are one number: they are so unless distinct.
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
    """The arguments in the notation; a size for each extent that is no number of the file's."""
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
    """The sizes that the module's own tensors have."""
    tensors, found = dict(model.named_parameters()) | dict(model.named_buffers()), {}
    shapes = {entry.name: entry.shape for entry in system.inputs if isinstance(entry, Tensor)}
    for dotted, name in names.items():
        for extent, length in zip(shapes.get(name, ()), tensors[dotted].shape, strict=True):
            if isinstance(extent, Size):
                found[extent.name] = int(length)
    return found


def call(model, names, values):
    """What the module gives at these values of its arguments and its tensors."""
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


def draw(system, model, names, fixed, seed):
    """Sizes and values at which the module gives something finite, with what it gives."""
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
                wanted = call(model, names, values)
            except (RuntimeError, ValueError, IndexError):
                break
            if wanted.double().isfinite().all():
                return values, wanted
    return None


def give_back(model, formula, given):
    """How the module that a formula gives back differs from the one that it is from, in words."""
    made = build(formula, module=True).module(dtype=torch.float64)
    made.load_state_dict(model.state_dict())
    with torch.no_grad():
        try:
            wanted = deepcopy(model)(*given)  # a statistic may change
        except RuntimeError:
            return ""  # no value to compare: the program does not run at its shrunken inputs
        if torch.allclose(made(*given).double(), wanted.double(), 1e-9, 1e-9):
            return ""
    return "the module that comes back gives other values"


def judge(path):
    """How one program fares: a word, what was refused or where it is wrong, and the formula."""
    for distinct in (True, False):
        tree, sizes = shrink(path.read_text(), distinct=distinct)
        names = {}
        exec(compile(tree, str(path), "exec"), names)
        model = names["Model"](*names["get_init_inputs"]()).double()
        with Bounds():
            inputs = names["get_inputs"]()
        given = [x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
        with suppress(RuntimeError):  # a program that needs two sizes equal: then they are
            model(*given)
            break
    forward = next(
        n
        for c in tree.body
        if isinstance(c, ast.ClassDef)
        for n in c.body
        if getattr(n, "name", "") == "forward"
    )
    text = declared = declare([a.arg for a in forward.args.args[1:]], inputs, sizes)
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
        found = draw(system, model, own, held, seed)
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
        return "refused at run", "no draw runs", text
    return "right", f"at {judged} draws", text


def main(folder, report="", *parts):
    """Judge every file of the folder, print a table and write the formulas that are not right."""
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
