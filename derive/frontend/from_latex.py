r"""Translation of LaTeX equations, with the shapes of their tensors, into a formula.

    q_{ih} = \sum_d X_{id} W_{dh}                    every index written

    e_{ij} = \frac{x_i W^Q (x_j W^K)}{\sqrt{E}}      matrices and vectors, with declared shapes:
    x: [S, D]
    each W: [D, E]

    text -> equations and declarations   latex.text
         -> trees                        latex.tree, made of latex.nodes
         -> lines of the notation        latex.reading, for each interpretation of the trees
         -> Formula                      from_text

Prose outside `$..$`, `\[..\]` or an environment is skipped. A shape is a line like those above, one
of the notation (`int t[B] < V`, `scalar eps = 1e-5`), or `W \in \mathbb{R}^{D \times E}`; the shape
of `W_i`, with i an index of a left side, is that of each matrix. A tensor with all indices written
needs no shape: index i then has the extent I. All indices count from 0, or all from 1, as the sums
start; else a line says which. Omitted indices are found by their extents. If several
interpretations remain, they are all listed and the user has to choose. Ambiguous notation of papers
is refused too: `1/2 x`, `\log p / q`, `|A|` of a matrix.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, product
from typing import Unpack

from derive.errors import DeriveError, refuse
from derive.frontend.from_text import parse
from derive.frontend.latex import nodes as tex
from derive.frontend.latex.names import Choice, Names, Read, ask_base, complete_shapes, find_bases
from derive.frontend.latex.nodes import Call, Equation, Name, Tree, find_names, to_word
from derive.frontend.latex.reading import Reading
from derive.frontend.latex.text import NOTATION, read_shapes, split_text
from derive.frontend.latex.tree import FONTS, Reader
from derive.frontend.latex.values import MisfitError
from derive.notation.formula import About, Formula

MOST = 4096  # most interpretations that are tried
SHOWN = 4  # most interpretations that a message shows
MATRIX = 2  # most axes of a value without written indices


def from_latex(
    text: str, declarations: str = "", name: str = "formula", **about: Unpack[About]
) -> Formula:
    r"""Return the formula of equations in LaTeX; `declarations` adds lines that the text lacks.

    `from_latex(r"y_i = \sum_j A_{ij} x_j")` has A[I, J] and x[J]. DeriveError for unknown syntax,
    for missing shapes, and for equations with more than one interpretation. `title`, `source`,
    `typical` and `empty_row` are those of `Formula`.
    """
    return parse(to_notation(text, declarations), name, **about)


def to_notation(text: str, declarations: str = "") -> str:
    """Return LaTeX equations as a text in the notation; errors are those of `from_latex`."""
    if not isinstance(text, str):
        raise refuse("text-wanted", f"LaTeX is text, not {type(text).__name__}")
    lines, stated = split_text(text)
    for line in filter(str.strip, re.split(r"[;\n]", declarations)):
        is_function = "=" in line and not NOTATION.match(line)
        (lines if is_function else stated).append(line)
    shapes = read_shapes(stated)
    words = frozenset(
        word for word in (*shapes.tensors, *shapes.scalars, *shapes.sizes) if len(word) > 1
    )
    defined = [Reader(line, words).find_defined() for line in lines]
    functions = frozenset().union(*(found for found, _ in defined))
    words = words.union(*(found for _, found in defined))
    equations: list[Equation] = []
    ranges: dict[str, Tree] = {}
    for line in lines:
        reader = Reader(line, words, functions)
        equations += reader.read_equations()
        ranges |= reader.ranges
    if not equations:
        raise refuse(
            "formula-empty", "the text has no equation", help="write y_i = \\sum_j A_{ij} x_j"
        )
    refuse_fonts(equations)
    equations = inline_functions(equations)
    names = Names(complete_shapes(shapes, equations, ranges), equations)
    equations = sort_equations(equations, names)
    ways, errors = list[str](), list[DeriveError]()
    for base in find_bases(equations, ranges, names):
        try:
            ways.append(find_interpretation(equations, names, base))
        except DeriveError as error:
            errors.append(error)
    if not ways:
        raise errors[0]
    if errors or ways[0] != ways[-1]:
        rows = zip(*(way.split("\n") for way in ways), strict=False)
        facts = [f"{pair[0]}, or {pair[-1]}" for pair in rows if len({*pair}) > 1]
        raise ask_base("it is open whether indices count from 0 or from 1", *facts[:1])
    return ways[0]


def inline_functions(equations: Sequence[Equation]) -> list[Equation]:
    """Return the equations with calls of functions `f(x) = ..` inlined; DeriveError if recursive.

    A call with the definition's arguments becomes a tensor with their places, any other inlined.
    """
    functions = dict[str, tuple[Call, Tree]]()
    for _, left, right in equations:
        if isinstance(left, Call):
            if tex.find_function(left.function) or left.function in {*tex.NORMS, "inner"}:
                says = f"the left side is {left.function} of something"
                raise tex.refuse_at(says, left.token, "give the left side a name of its own")
            if not all(isinstance(each, Name) for each in left.arguments):
                says = f"{left.function} is defined with an argument that is no name"
                raise tex.refuse_at(says, left.token, "write names: f(x) = ..")
            if left.function in functions:
                says = f"{left.function} is defined twice"
                raise tex.refuse_at(says, left.token, "give one of them another name")
            functions[left.function] = (left, right)
    read, opened = set[str](), set[str]()

    def to_tensor(call: Call, right: Tree) -> Name:
        below = [place for name in find_names(right) for place in name.below]
        names = (each for each in call.arguments if isinstance(each, Name))
        places = (p for each in names for p in ((each,) if each in below else each.below))
        return Name(call.function, call.token, None, (*call.below, *dict.fromkeys(places)))

    def open_calls(tree: Tree, inside: tuple[str, ...] = ()) -> Tree:
        tree = tex.map_parts(tree, lambda part: open_calls(part, inside))
        if not isinstance(tree, Call) or tree.function not in functions:
            return tree
        left, right = functions[tree.function]
        if (tree.arguments, tree.below) == (left.arguments, left.below):
            read.add(tree.function)
            return to_tensor(left, right)
        parameters, arguments = (*left.arguments, *left.below), (*tree.arguments, *tree.below)
        if tree.function in inside:
            advice = f"call it as it is defined; in a recurrence write {tree.function}_{{tj}}"
            raise tex.refuse_at(f"{tree.function} is called by itself", tree.token, advice)
        if len(parameters) != len(arguments):
            says = f"{tree.function} takes {len(left.arguments)} arguments"
            raise tex.refuse_at(says, tree.token, "call it as it is defined")
        opened.add(tree.function)
        given = dict(zip(parameters, arguments, strict=True))
        bound = set[str]().union(*(tex.to_words(part.below) for part in tex.find_binders(right)))
        if captured := bound & tex.to_words(arguments):
            says = f"{min(captured)} is summed in {tree.function}, and stands in its argument"
            raise tex.refuse_at(says, tree.token, "take another index in one of them")
        return open_calls(substitute_parameters(right, given), (*inside, tree.function))

    done = [
        each._replace(right=open_calls(each.right, (getattr(each.left, "function", ""),)))
        for each in equations
    ]
    return [
        each._replace(left=to_tensor(left, each.right)) if isinstance(left, Call) else each
        for each in done
        if not isinstance(left := each.left, Call)
        or left.function in read
        or left.function not in opened
    ]


def refuse_fonts(equations: Sequence[Equation]) -> None:
    """Raise DeriveError for a letter in two fonts, which may be two names."""
    fonts: dict[tuple[str, int], str] = {}
    for name in find_names(equations):
        command = name.token.text.removeprefix("\\")
        font = command if command in FONTS else ""
        is_script = str(font in {"mathcal", "mathbb"})
        found = {(name.base, len(name.below)): font, (name.base, -1): is_script}
        if any(fonts.setdefault(key, value) != value for key, value in found.items()):
            says = f"it is open whether {name.base} in two fonts is one name"
            raise tex.refuse_at(says, name.token, "write one font, or two letters")


def substitute_parameters(tree: Tree, given: Mapping[Tree, Tree]) -> Tree:
    """Return the tree with arguments for parameters, which take the parameters' scripts."""
    if isinstance(tree, Name):
        argument = given.get(replace(tree, above=None))
        if argument is not None:
            return argument if tree.above is None else tex.Power(argument, tree.above)
        whole = None if tex.is_label(tree.label) else given.get(Name(tree.base, tree.token))
        if isinstance(whole, Name) and whole.above is None:
            base, places = tex.write_name(whole, has_places=True)
            return Name(base, tree.token, tree.above, (*places, *tree.below), tree.label)
        if whole is not None:
            says = f"the definition reads {tree.base} at an index, and its argument is no tensor"
            raise tex.refuse_at(says, tree.token, "give the argument a name in an equation before")
    return tex.map_parts(tree, lambda part: substitute_parameters(part, given))


def sort_equations(equations: Sequence[Equation], names: Names) -> list[Equation]:
    """Return the equations, definitions before their reads as far as possible."""
    left: list[tuple[Equation, str, set[str]]] = []
    for each in equations:
        own = names.resolve(each.left, is_target=True) if isinstance(each.left, Name) else Read("")
        left.append((each, own.name, names.find_reads(each.right) - {own.name}))
    found: list[Equation] = []
    while left:
        waiting = {own for _, own, _ in left}
        ready = (k for k, (*_, reads) in enumerate(left) if not reads & waiting)
        found.append(left.pop(next(ready, 0))[0])
    return found


def find_results(written: Sequence[str]) -> list[str]:
    """Return ["return y, z"] of the tensors that no other equation reads; [] if only the last."""
    sides = [re.findall(r"[^\W\d]\w*", side) for line in written for side in line.split(" = ", 1)]
    own = [words[0] for words in sides[::2]]
    read = {
        word for name, words in zip(own, sides[1::2], strict=True) for word in {*words} - {name}
    }
    results = [name for name in dict.fromkeys(own) if name not in read] or own[-1:]
    return [] if results == own[-1:] else [f"return {', '.join(results)}"]


def find_interpretation(equations: Sequence[Equation], names: Names, base: int) -> str:
    """Return the text of the only interpretation, for indices from `base`, or raise DeriveError."""
    # interpretations by the places of written indices, each with its number of added indices
    found: dict[tuple[object, ...], dict[str, int]] = {}
    misfit: tuple[int, MisfitError] | None = None  # of the interpretation that got furthest
    for is_strict in (True, False):
        for choice in find_choices(equations, names, is_strict=is_strict):
            reading, written = Reading(names, choice, base), []
            try:
                for _, left, right in equations:
                    written.append(reading.write_equation(left, right))
                for name, indices in reading.undeclared.items():
                    if not all(indices):  # its extents are unknown
                        says = f"the shape of {name} is not declared"
                        raise MisfitError(says, help=f"add a line: {name}: [..]")
            except MisfitError as error:
                far = (len(written), error.of_extents)
                if misfit is None or far > (misfit[0], misfit[1].of_extents):
                    misfit = (len(written), error)
            else:
                returned = names.shapes.returned or find_results(written)
                way = "\n".join([*write_declarations(reading, written), *written, *returned])
                ways = found.setdefault(tuple(choice.places.items()), {})
                ways[way] = min(len(reading.batch), ways.get(way, len(reading.batch)))
        if found:
            break
    open_ways = [way for ways in found.values() for way in ways if ways[way] == min(ways.values())]
    if len({*open_ways}) == 1:
        return open_ways[0]
    if open_ways:
        rows = [way.splitlines() for way in dict.fromkeys(open_ways)]
        common = {*rows[0]}.intersection(*rows)
        readings = ["; ".join(r for r in each if " = " in r and r not in common) for each in rows]
        raise refuse(
            "latex-ambiguous",
            f"the equations can be read in {len({*open_ways})} ways",
            facts=[f"{k}. {each}" for k, each in enumerate(readings[:SHOWN], 1)],
            help="write more indices, X_{bi}, or a line: vectors are columns; index i < N",
        )
    if misfit is None:
        advice = "write all indices of each tensor, or check the shapes"
        raise tex.refuse_at("the indices that are written fit no extents", None, advice)
    number, fault = misfit
    line = equations[min(number, len(equations) - 1)].line
    mistake = fault.diagnostic
    raise fault if mistake.marks else tex.refuse_at(mistake.says, line, mistake.help) from fault


def find_choices(
    equations: Sequence[Equation], names: Names, *, is_strict: bool
) -> Iterator[Choice]:
    """Yield each choice of axes for the written indices of tensors, and for those left out."""
    accesses: dict[str, list[tuple[str, ...]]] = {}
    for read in map(names.resolve, find_names(equations)):
        if read.name not in names.defined and names.shapes.find_shape(read.name) is not None:
            accesses.setdefault(read.name, []).append(tuple(map(to_word, read.places)))
    partial: dict[str, int] = {}
    extents = dict(names.shapes.indices)
    for name, found in accesses.items():
        shape = names.shapes.find_shape(name) or ()
        for places in found:
            if len(places) != len(shape):
                partial[name] = len(places)
                continue
            extents |= {i: e for i, e in zip(places, shape, strict=True) if i[:1].isalpha()}

    choices = [Choice({}, {}, extents, is_strict=is_strict)]
    for name, count in partial.items():
        shape = names.shapes.find_shape(name) or ()
        written = [places for places in accesses[name] if len(places) == count]
        further: list[Choice] = []
        for choice, stand in product(choices, combinations(range(len(shape)), count)):
            known = dict(choice.extents)
            pairs = [(i, shape[k]) for own in written for i, k in zip(own, stand, strict=True) if i]
            if all(known.setdefault(index, extent) == extent for index, extent in pairs):
                stands = {**choice.places, name: stand}
                further.append(replace(choice, places=stands, extents=known))
        choices = further
    for choice in choices:
        yield from find_axes(names, choice)


def find_axes(names: Names, choice: Choice) -> Iterator[Choice]:
    """Yield the choice with each number of axes that remain as those of vectors or matrices."""
    options: list[list[tuple[str, list[str], list[str]]]] = []
    for name, places in choice.places.items():
        shape = names.shapes.find_shape(name) or ()
        left = [extent for k, extent in enumerate(shape) if k not in places]
        counts = range(min(MATRIX, len(left)), 0, -1) if left else [0]
        split = [(name, left[: len(left) - count], left[len(left) - count :]) for count in counts]
        options.append([each for each in split if len({*each[1]}) == len(each[1])])
    for picked in islice(product(*options), MOST):
        outside = {extent for _, indices, _ in picked for extent in indices}
        if not outside & {extent for _, _, axes in picked for extent in axes}:
            stated = names.shapes.has_rows
            for has_rows in (True, False) if stated is None else (stated,):
                own = {name: len(axes) for name, _, axes in picked}
                yield replace(choice, axes=own, has_rows=has_rows)


def write_declarations(reading: Reading, written: Sequence[str]) -> list[str]:
    """Return the lines of the notation that declare the names of an interpretation."""
    names, lines = reading.names, list(reading.names.shapes.lines)
    for index, extent in names.shapes.indices.items():  # ranges that no tensor's shape implies
        sides = " ".join(line.partition(" = ")[2] for line in written)
        is_read = re.search(rf"[\[,]{index}[,\]]", sides) is not None
        is_implied = is_read and extent == reading.extents.get(index, extent)
        if not is_implied and index not in names.shapes.stated:
            lines.append(f"index {index} < {extent}")
    stated = " ".join(lines)
    groups: dict[tuple[str, ...], list[str]] = {}
    order = [*names.shapes.tensors, *names.shapes.families]
    stems = {name: name if name in order else name.partition("_")[0] for name in reading.used}
    for name in sorted(stems, key=lambda name: order.index(stems[name])):
        if not re.search(rf"\b{name}\b[^\[\]]*\[", stated):
            groups.setdefault(names.shapes.find_shape(name) or (), []).append(name)
    extents = dict(reading.extents)
    plain = list(dict.fromkeys(i for indices in reading.undeclared.values() for i in indices))
    for index in plain:  # indices at one place of a tensor have one extent
        alike = {index}
        while also := {i for pair in reading.alike if {*pair} & alike for i in pair} - alike:
            alike |= also
        known = next((extents[each] for each in sorted(alike) if each in extents), None)
        upper = index[0].upper() + index[1:]
        is_free = upper not in {*reading.used, *reading.undeclared, *names.defined}
        extents.setdefault(index, known or (upper if is_free else f"N_{index}"))
    for name, indices in reading.undeclared.items():
        shape = tuple(extents[index] for index in indices)
        for extent in shape:
            if re.search(r"[^\W\d].* - \d+$", extent):
                says = f"it is open whether {name} goes no further than {extent}"
                raise refuse("latex-form", says, help=f"add a line with its shape, {name}: [..]")
        groups.setdefault(shape, []).append(name)
    lines += [f"{', '.join(group)}[{', '.join(shape)}]" for shape, group in groups.items()]
    given = {*plain, *names.shapes.indices, *reading.choice.extents}
    return lines + [f"index {i} < {e}" for i, e in reading.limits.items() if i not in given]
