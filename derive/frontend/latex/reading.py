"""LaTeX equations in the notation, for one choice of the omitted indices.

A tensor with fewer indices than extents is a scalar, a vector or a matrix for each value of the
other indices. Its last extents are those of the vector or matrix. Each extent before them has one
index, the same wherever that extent occurs. Sums and products are those of latex.products.

Laws:
- The written indices of a tensor have the same positions at every occurrence.
- A function is elementwise. A row operation (softmax, mean) without an index runs over the last
  axis of the vector or matrix; without an axis it runs over the last written index.
- All indices count from one number, 0 or 1, `base`. In the notation they count from 0, and places
  are less by that number.
- Powers, quotients and functions of a vector are elementwise; their products need an operator.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count

from derive.frontend.latex import nodes as tex
from derive.frontend.latex.names import TRANSPOSED, Choice, Names, Read
from derive.frontend.latex.nodes import Name, Number, Relation, Token, Tree, to_word
from derive.frontend.latex.products import VECTORS, Products
from derive.frontend.latex.values import (
    ATOM,
    EVERY,
    FACTOR,
    POWER,
    TERM,
    Axes,
    Layout,
    MisfitError,
    Value,
    add_number,
    ask_rows,
    find_words,
    refuse_entry,
    refuse_further,
    refuse_undefined,
    to_polynomial,
    transpose,
    write_linear,
)
from derive.ir.functions import FUNCTIONS, ROWS


class Reading:
    """The translation of the equations for one choice; MisfitError if the choice does not fit."""

    def __init__(self, names: Names, choice: Choice, base: int) -> None:
        self.names, self.choice, self.base = names, choice, base
        self.extents = dict(choice.extents)
        self.limits: dict[str, str] = {}  # extents that only the limits of sums give
        self.layouts: dict[str, Layout] = {}
        self.undeclared: dict[str, tuple[str, ...]] = {}  # indices of undeclared tensors
        self.alike: list[tuple[str, str]] = []  # pairs of indices with equal extents
        self.used: dict[str, None] = {}  # declared tensors that are read
        self.own, self.reads_own = ("", list[str]()), False  # the defined tensor and its places
        self.batch: dict[str, str] = {}  # indices of omitted extents
        self.axes = Axes()
        self.products = Products(self.axes, self.extents, self.batch, choice.is_strict)
        self.taken = {*names.sizes, *names.defined, *names.shapes.tensors, *names.shapes.scalars}
        self.taken |= {word for word in names.words if len(word) == 1}
        self.order = [*chain(*names.shapes.tensors.values(), *names.shapes.families.values())]

    def name_index(self, extent: str) -> str:
        """Return a new index name: the first letter of its extent, or the next free letter."""
        signs = (sign for sign in extent if sign.isascii() and sign.isalpha())
        start = ord(next(signs, "i").lower())
        letters = [chr(97 + (start - 97 + k) % 26) for k in range(26)]
        name = next(a for a in chain(letters, (f"i{k}" for k in count())) if a not in self.taken)
        self.taken.add(name)
        self.extents[name] = extent
        return name

    def write_equation(self, left: Tree, right: Tree) -> str:
        """Return the line of an equation in the notation."""
        read = self.names.resolve(left, is_target=True) if isinstance(left, Name) else None
        if read is None or read.power is not None or read.is_transposed:
            raise MisfitError("the left side is no tensor", help="write y_{i} = ..")
        places = [*map(self.write_place, read.places)]
        words = tex.to_words(read.places) - self.names.sizes
        scope = frozenset(filter(str.isidentifier, words))
        self.own, self.reads_own = (read.name, places), False
        is_open = self.names.shapes.find_shape(read.name) is None
        self.products.open_left = read.name if is_open else None
        try:
            value = self.read_part(right, scope)
        except MisfitError:
            if self.reads_own:
                raise refuse_undefined(read.name) from None
            raise
        if self.reads_own and value.axes:
            raise refuse_undefined(read.name)
        alone = scope - {*find_words([value.text]), *self.names.shapes.indices}
        # a size may occur on the left alone, `C_{m P + p}`
        if "[" in value.text and any(map(str.islower, alone)):
            advice = f"write it on the right, or a line of its extent: index {max(alone)} < .."
            says = f"index {max(alone)} stands on the left alone"
            raise MisfitError(says, help=advice, of_extents=True)
        every, written = self.place_batch(places, value.free)
        extents = [self.extents.get(place, "") for place in every]
        extents += [axis.extent for axis in value.axes]
        known = self.layouts.get(read.name, Layout((), (), 0)).extents
        stated = self.names.shapes.find_shape(read.name) or known or None
        if stated is not None and not value.axes:  # one number for all elements
            if "[" in value.text and len(stated) > len(every):
                raise MisfitError(f"a number is given to {read.name}, of a shape", help=VECTORS)
            value = replace(value, axes=tuple(map(self.axes.mark, stated[len(every) :])))
            extents += stated[len(every) :]
        pairs = zip(extents[::-1], (stated or ())[::-1], strict=False)
        for one, other in pairs if value.axes else ():
            if one and other and to_polynomial(one) != to_polynomial(other):
                raise MisfitError(f"an extent {one} meets an extent {other}", of_extents=True)
        self.layouts[read.name] = Layout(tuple(extents), written, len(value.axes))
        every += [f"<{axis.mark}>" for axis in value.axes]
        target = f"{read.name}[{','.join(every)}]" if every else read.name
        return self.axes.name_indices(f"{target} = {value.text}", self.name_index)

    def place_batch(
        self, places: Sequence[str], free: Sequence[str]
    ) -> tuple[list[str], tuple[int, ...]]:
        """Return (places, with an index for each omitted extent; positions of the written ones)."""
        every = list(places)
        inside = [i for i in self.batch.values() if i in free and i not in places]
        for index in sorted(inside, key=lambda i: self.order.index(self.extents[i])):
            before = self.order[: self.order.index(self.extents[index])]
            ahead = [k for k, place in enumerate(every) if self.extents.get(place) in before]
            every.insert(ahead[-1] + 1 if ahead else 0, index)
        return every, tuple(k for k, place in enumerate(every) if place not in inside)

    def find_layout(self, name: str, written: int) -> Layout:
        """Return the Layout of a tensor that is read with this number of written indices."""
        if name in self.layouts:
            return self.layouts[name]
        extents = self.names.shapes.find_shape(name)
        if extents is None and (self.own[0], len(self.own[1])) == (name, written):
            self.reads_own = True
            return Layout(("",) * written, tuple(range(written)), 0)
        if extents is None:
            raise refuse_undefined(name)
        if name not in self.names.defined:  # a recurrence reads what it defines
            self.used[name] = None
            if written != len(extents):
                return Layout(extents, self.choice.places[name], self.choice.axes[name])
        return Layout(extents, tuple(range(written)), max(len(extents) - written, 0))

    def read_tensor(self, read: Read, name: Name) -> Value:
        """Return the access of a tensor, with its written and its omitted indices."""
        places = [self.write_place(place) for place in read.places]
        if not self.names.is_known(read.name):
            return self.read_undeclared(read.name, places, name.token)
        if read.name in self.names.sizes:
            raise MisfitError(f"{read.name} is a size, no tensor", name.token, "rename one of them")
        layout = self.find_layout(read.name, len(places))
        if len(layout.written) != len(places):
            says = f"{len(places)} indices here, and {len(layout.written)} elsewhere"
            raise MisfitError(f"{read.name} has {says}", name.token)
        if self.reads_own and read.name == self.own[0]:
            pairs = zip(self.own[1], places, strict=True)
            self.alike += [pair for pair in pairs if all(map(str.isidentifier, pair))]
        inside = [""] * len(layout.extents)
        for k, place in zip(layout.written, places, strict=True):
            inside[k] = place
        left = [k for k, place in enumerate(inside) if not place]
        kept = left[: len(left) - layout.axes]
        for k in kept:
            extent = layout.extents[k]
            self.batch[extent] = inside[k] = self.batch.get(extent) or self.name_index(extent)
        axes = tuple(self.axes.mark(layout.extents[k]) for k in left[len(kept) :])
        for k, axis in zip(left[len(kept) :], axes, strict=True):
            inside[k] = f"<{axis.mark}>"
        text = f"{read.name}[{','.join(inside)}]" if inside else read.name
        return Value(text, ATOM, axes, find_words(inside), self.choice.has_rows)

    def read_undeclared(self, name: str, places: Sequence[str], token: Token) -> Value:
        """Return an access of an undeclared tensor, whose indices are all written."""
        plain = [place if place.isidentifier() else "" for place in places]
        known = self.undeclared.get(name, tuple(plain))
        if len(known) != len(places):
            raise MisfitError(f"{name} has {len(known)} indices elsewhere", token)
        self.undeclared[name] = tuple(a or b for a, b in zip(known, plain, strict=True))
        for one, other in zip(known, plain, strict=True):  # indices at one place have one extent
            if one and other and one != other:
                self.alike.append((one, other))
        return Value(f"{name}[{','.join(places)}]", free=find_words(places))

    def read_part(self, tree: Tree, scope: frozenset[str]) -> Value:
        """Return the value of a part; `scope`: the indices that are bound or on the left."""
        match tree:
            case Number(text):
                return Value(text)
            case Name():
                return self.read_name(tree, scope)
            case tex.Sum(terms):
                linear = self.names.find_linear(tree, self.base) or {}
                free = tuple(word for word in linear if word in scope)
                if free and not linear.get(""):  # `i - j` of indices that count alike
                    return Value(write_linear(linear), TERM, free=free)
                return self.products.add_all(
                    [(sign, self.read_part(term, scope)) for sign, term in terms]
                )
            case tex.Product(factors):
                values = [(s, self.read_part(each, scope)) for s, each in factors]
                for k, (sign, place) in enumerate(factors):
                    if sign == "(":
                        refuse_entry(factors[k - 1][1], values[k - 1][1], place, scope)
                return self.products.multiply_all(
                    [(sign.strip("("), value) for sign, value in values]
                )
            case tex.Power(base, exponent) if to_word(exponent) in TRANSPOSED:
                return transpose(self.read_part(base, scope))
            case tex.Power(base, exponent):
                return self.read_power(self.read_part(base, scope), exponent, scope)
            case tex.Call("where", _, arguments):
                return self.read_choice(arguments, scope)
            case tex.Call():
                return self.read_call(tree, scope)
            case tex.Bracket(Name() as name) if (
                self.names.resolve(name).name not in self.names.truths
            ):
                return self.read_part(name, scope)  # brackets that are parentheses
            case tex.Bracket(condition):
                text, free = self.read_condition(condition, scope)
                return Value(f"[{text}]", ATOM, (), free)
        raise MisfitError("a comparison stands where a value is expected")

    def read_name(self, name: Name, scope: frozenset[str]) -> Value:
        """Return the value of a name: a number, index, size or tensor, with power or transpose."""
        read = self.names.resolve(name)
        is_bare, is_number = not read.places, read.name in self.names.numbers
        is_free = not self.names.is_known(read.name) or read.name in self.names.indexed
        if is_bare and read.name in scope and not is_number:  # an index as a number
            shifted = (f"{read.name} + 1", TERM) if self.base else (read.name, ATOM)
            value = Value(*shifted, (), (read.name,))
        elif is_bare and (is_number or (is_free and read.name in _CONSTANTS)):
            value = Value(_CONSTANTS.get(read.name, read.name))
        elif read.name == "delta" and len(read.places) > 1 and not self.names.is_known("delta"):
            places = [*map(self.write_place, read.places)]
            return Value(f"[{' == '.join(places)}]", free=find_words(places))
        elif read.name == "e" and is_bare and read.power is not None and is_free:
            power = self.read_part(read.power, scope)
            return replace(power, text=f"exp({power.text})", holds=ATOM)
        elif read.name in self.names.squares:
            says = f"{read.name} is defined by its square"
            raise MisfitError(says, name.token, f"write \\sqrt{{{read.name}^2}}")
        elif is_bare and not self.names.is_known(read.name):
            word = read.name
            usual = f"{tex.USUAL[word]}, or " if word in tex.USUAL else ""
            advice = f"{usual}declare it, {word}: [N, M], scalar {word} or size {word}"
            advice += f"; a function: {word}(x) = .."
            raise MisfitError(f"{word} is not declared", name.token, advice)
        else:
            value = self.read_tensor(read, name)
        if read.is_transposed:
            return transpose(value, name.token)
        if (word := to_word(read.power)) and word in scope and "[" in value.text:
            says = f"it is open whether {word} is an index or a power"
            advice = "write it below for an index, and parentheses for a power: (x_i)^k"
            raise MisfitError(says, name.token, advice)
        return value if read.power is None else self.read_power(value, read.power, scope)

    def read_power(self, base: Value, exponent: Tree, scope: frozenset[str]) -> Value:
        """Return the power of a number or of a vector's elements, or the inverse of a matrix."""
        match exponent:
            case tex.Sum((("-", Name(word)),)) if word in TRANSPOSED and len(base.axes) > 1:
                return transpose(self.read_axes("inverse", base))
            case tex.Product(factors) if all(not s and to_word(f) in scope for s, f in factors):
                letters = " ".join(to_word(each) for _, each in factors)
                says = f"it is open whether {letters} are indices or a power"
                advice = "write them below for indices, and \\cdot between them for a power"
                raise MisfitError(says, help=advice)
        value = self.read_part(exponent, scope)
        if len(base.axes) > 1 and value.text == "-1":
            return self.read_axes("inverse", base)
        if len(base.axes) > 1 or value.axes:  # a power of a vector is elementwise
            says = "a power of a matrix is not read"
            raise MisfitError(says, help="write its indices, or \\odot for elements")
        text = f"{base.within(ATOM)}**{value.within(ATOM)}"
        free = (*base.free, *value.free)
        return Value(text, POWER, base.axes, free, base.is_row, bool(base.axes))

    def read_call(self, call: tex.Call, scope: frozenset[str]) -> Value:
        """Return the value of an elementwise function, or of a reduction over indices or axes."""
        word, below = call.function, call.below
        is_norm = word.startswith("norm") and not below  # a norm of a matrix runs over both axes
        if word not in ROWS or is_norm or (len(call.arguments) > 1 and word in FUNCTIONS):
            values = [self.read_part(each, scope) for each in call.arguments]
            found = self.read_function(call, values)
            if below and (word != "log" or len(below) > 1):
                raise MisfitError(f"what stands below {word} is not read", call.token)
            if not below:
                return found
            base = self.read_part(below[0], scope)
            free = tuple(dict.fromkeys((*found.free, *base.free)))
            return replace(found, text=f"{found.text} / log({base.text})", holds=FACTOR, free=free)
        if len(call.arguments) != 1:
            raise MisfitError(f"{word} takes one argument", call.token)
        body, keeps = call.arguments[0], ROWS[word].keeps
        firsts = (each.first if isinstance(each, Relation) else each for each in below)
        outside = scope - {*map(to_word, firsts)} if keeps else scope
        bound, inside = self.read_range(below, call.above, outside, call.token, is_listed=keeps)
        last = body.factors[-1][1] if isinstance(body, tex.Product) else None
        if call.token.text == "\\prod" and last and not {*bound} & tex.to_words(last):
            says = "it is open how far the product goes"
            raise MisfitError(says, call.token, "put its body into parentheses, or all of it")
        value = self.read_part(body, scope | {*bound})
        if not below and value.axes:
            return self.read_axes(word, value, call.token)
        if not below:
            written = [i for i in value.free if i not in self.batch.values()]
            if not written:
                says = f"it is open over which index {word} runs"
                raise MisfitError(says, call.token, f"write {word}_j(..)")
            bound = (inside := written[-1],)
        free = value.free if keeps else tuple(i for i in value.free if i not in bound)
        return Value(write_row(word, inside, value.text), ATOM, value.axes, free, value.is_row)

    def read_axes(self, word: str, value: Value, token: Token | None = None) -> Value:
        """Return the reduction `word` over the last axis, or over both axes of a matrix."""
        row = ROWS[word]
        if row.is_matrix and len(value.axes) != len(("row", "column")):
            raise MisfitError(f"{word} is of a matrix", token)
        over = value.axes if row.is_matrix or not row.keeps else value.axes[-1:]
        if not row.is_matrix and len(over) > 1 and token is not None:
            raise ask_rows(token, f"its indices, as in {token.text}_{{ij}} x_{{ij}}")
        if row.is_matrix and over[0].extent != over[1].extent:
            raise MisfitError(f"{word} is of a matrix with as many rows as columns", token)
        inside = ", ".join(f"<{axis.mark}>" for axis in over)
        axes = value.axes if row.keeps else value.axes[: -len(over)]
        is_row = value.is_row if len(value.axes) == 1 or len(axes) != 1 else False
        return Value(write_row(word, inside, value.text), ATOM, axes, value.free, is_row)

    def read_function(self, call: tex.Call, values: Sequence[Value]) -> Value:
        """Return an elementwise function, a norm, an inner product or a trace of values."""
        word, first = call.function, max(values, key=lambda value: len(value.axes))
        free = tuple(dict.fromkeys(i for value in values for i in value.free))
        marks = ", ".join(f"<{axis.mark}>" for axis in first.axes)
        body = " * ".join(value.within(FACTOR) for value in values)
        is_matrix = len(first.axes) > 1
        if word == "inner" and not any(value.axes for value in values):
            return Value(body, FACTOR, (), free)
        if word.startswith("norm") and is_matrix and word not in {"norm", "norm_F"}:
            says = "of the norms of a matrix the Frobenius norm is read"
            raise tex.refuse_at(says, call.token, "write \\|A\\|_F, or the sum")
        if word == "norm" and is_matrix:
            raise ask_rows(call.token, "\\|A\\|_F for the matrix, \\|x_i\\| for row i")
        if first.axes and call.token.text in {"|", "\\lvert"}:
            says, sign = ("its determinant", "\\det A") if is_matrix else ("its norm", "\\|x\\|")
            says = f"it is open whether bars mean {says} or the absolute values of the elements"
            raise MisfitError(says, call.token, f"write {sign}, or \\mathrm{{abs}}(..)")
        if first.axes and word in tex.NORMS:
            return Value(tex.NORMS[word].format(marks, first.text), ATOM, (), free)
        if word == "trace" and is_matrix:
            self.axes.unify_axes(first.axes[:1], first.axes[1:])
            return Value(f"sum[<{first.axes[0].mark}>]({first.text})", ATOM, (), free)
        if word not in FUNCTIONS and word != "inner":
            says, advice = f"there is no function {word} here", "define it in an equation before"
            if word == "trace" or word.startswith("norm"):
                says = f"the {word} needs a vector or a matrix, and no axis is left here"
                advice = "declare the shapes, or write the sum"
            raise MisfitError(says, call.token, advice)
        for value in values:
            if len(value.axes) not in {0, len(first.axes)}:
                raise MisfitError(f"{word} of a vector and a matrix", call.token)
            self.axes.unify_axes(first.axes, value.axes)
        if word == "inner":
            if not all(value.axes for value in values):
                raise MisfitError("the inner product of a vector and a number", call.token)
            return Value(f"sum[{marks}]({body})", ATOM, (), free)
        if word == "mod":
            return Value(" % ".join(value.within(ATOM) for value in values), TERM, (), free)
        quotient = re.fullmatch(r"([^/]+) / (\w+|\([^()/]*\))", first.text)
        if word == "floor" and first.holds == FACTOR and quotient:
            return Value(" // ".join(quotient.groups()), TERM, first.axes, free)
        text = f"{word}({', '.join(value.text for value in values)})"
        return Value(text, ATOM, first.axes, free, first.is_row, bool(first.axes))

    def read_range(
        self,
        below: Sequence[Tree],
        above: Tree | None,
        scope: frozenset[str],
        token: Token,
        *,
        is_listed: bool = False,
    ) -> tuple[tuple[str, ...], str]:
        """Return (bound indices, text of the bracket); `is_listed`: only bare indices are bound."""
        bound: dict[str, None] = {}
        conditions: list[str] = []
        relation: Relation | None = None
        for each in below:
            found = [*map(to_word, [each] if isinstance(each, Name) else tex.find_names(each))]
            known = {*scope, *self.names.numbers, "", *_CONSTANTS}
            new = [word for word in found if word not in known]
            if names := [*filter(tex.is_label, new)] if not isinstance(each, Name) else []:
                says = f"{names[0]} is not declared"
                raise MisfitError(says, token, f"add a line: size {names[0]}")
            is_condition = is_listed and bound and not isinstance(each, Name)
            bound |= dict.fromkeys(() if is_condition else new)
            if isinstance(each, Name) and new:
                continue
            if isinstance(each, Name) and not each.below and relation is None:
                raise MisfitError(f"{each.base} is bound again, or is no index", token)
            whole = each
            if isinstance(each, Name) and relation is not None:  # the second of `k \neq i, j`
                whole = replace(relation, rest=((relation.rest[-1][0], each),))
            relation = whole if isinstance(whole, Relation) else None
            match whole:
                case Relation(Name() as name, (("==", start),)):
                    if start == Number(str(self.base)):
                        continue
                    if above is None and not isinstance(start, Number):
                        says = "it is open whether this is a condition, or a start without an end"
                        raise MisfitError(says, name.token, "write the end, or \\sum_{i : i = j}")
                    if isinstance(start, Number) and int(start.text) < self.base:
                        advice = "let its sum start there, and shift its places"
                        raise MisfitError(f"{name.base} starts below 1", name.token, advice)
                    if isinstance(start, tex.Sum) and start.terms[0][0] == "-":
                        advice = "let it start at 0: \\sum_{k=0}^{2K} w_k x_{t+k-K}"
                        raise MisfitError("a sum starts below zero", name.token, advice)
                    whole = Relation(name, ((">=", start),))
                case Relation(first, rest):
                    sides = zip((first, *(end for _, end in rest)), rest, strict=False)
                    for index, end in ((to_word(one), end) for one, end in sides):
                        if end[0] == "<=" and index in bound:
                            limit = self.read_part(end[1], scope | {*bound}).text
                            refuse_further(index, limit, self.extents.get(index), 1 - self.base)
            conditions.append(self.read_condition(whole, scope | {*bound})[0])
        if above is not None:
            starts = (each for each in below if isinstance(each, Relation))
            if {to_word(e.first) for e in starts if e.rest[0][0] == "=="} != {*bound}:
                says = "a limit above the sign belongs to indices below it, each with its start"
                raise MisfitError(says, token, "write \\sum_{i=1}^{N}, for each index a sign")
            for index in bound:
                conditions += self.read_limit(index, above, scope | {*bound} - {index})
        return tuple(bound), ", ".join([*bound, *filter(None, [" and ".join(conditions)])])

    def read_limit(self, index: str, above: Tree, scope: frozenset[str]) -> list[str]:
        """Return the condition of an upper limit; [] if the limit is the extent of the index."""
        if isinstance(above, Name) and above.base == "oo":
            raise MisfitError("a sum without an end is not read", above.token, "say where it ends")
        shift = 1 - self.base
        limit = self.read_part(above, scope)
        if not limit.free:
            extent = add_number(limit.text, shift)
            known = self.extents.setdefault(index, extent)
            if known == extent:
                self.limits[index] = extent
                return []
            if (to_polynomial(extent) - to_polynomial(known)).constant is None:
                says = f"{index} runs to {limit.text} here, and over an extent {known} elsewhere"
                raise MisfitError(says, help="take another letter in one of them")
            refuse_further(index, limit.text, known, shift)
        relation = Relation(Name(index, _NOWHERE), (("<=", above),))
        return [self.read_condition(relation, scope | {index})[0]]

    def read_condition(self, tree: Tree, scope: frozenset[str]) -> tuple[str, tuple[str, ...]]:
        """Return the text of a condition, and its free indices."""
        match tree:
            case Relation(first, rest):
                parts = [first, *(side for _, side in rest)]
                sums = [self.names.find_linear(part, self.base) for part in parts]
                values = [self.read_part(part, scope) for part in parts]
                if any(value.axes for value in values):
                    raise MisfitError("vectors or matrices are compared")
                texts = [value.within(TERM) for value in values]
                is_shifted = self.base and any(value.free for value in values)
                if is_shifted and all(each is not None for each in sums):
                    least = min(each.get("", 0) for each in sums if each is not None)
                    texts = [write_linear(each, least) for each in sums if each is not None]
                signs = [sign for sign, _ in rest]
                text = "".join(f"{t} {s} " for t, s in zip(texts, signs, strict=False)) + texts[-1]
                return text, tuple(i for value in values for i in value.free)
            case tex.Bracket(inner):
                return self.read_condition(inner, scope)
            case tex.Logic("not", (part,)):
                text, free = self.read_condition(part, scope)
                return f"not ({text})", free
            case tex.Logic(word, parts):
                found = [self.read_condition(part, scope) for part in parts]
                text = f" {word} ".join(f"({text})" for text, _ in found)
                return text, tuple(i for _, free in found for i in free)
            case _:
                value = self.read_part(tree, scope)
                return value.text, value.free

    def read_choice(self, parts: Sequence[Tree], scope: frozenset[str]) -> Value:
        """Return the value `where(condition, then, other)` of these three parts."""
        condition, *branches = parts
        found = [self.read_part(each, scope) for each in branches]
        if any(value.axes for value in found):
            raise MisfitError("a vector or a matrix stands in cases", help="write the indices")
        test, inside = self.read_condition(condition, scope)
        free = (*(i for value in found for i in value.free), *inside)
        text = f"where({test}, {', '.join(value.text for value in found)})"
        return Value(text, free=tuple(dict.fromkeys(free)))

    def write_place(self, tree: Tree) -> str:
        """Return the text of a place, counted from 0."""
        linear = self.names.find_linear(tree, self.base)
        if linear is not None:
            return write_linear(linear, self.base)
        value = self.read_part(tree, EVERY)
        # an entry of an integer tensor has its declared range
        if self.base and {*find_words([_ENTRY.sub("", value.text)])} & {*value.free}:
            says = "a place is no sum of indices that count from 1"
            raise MisfitError(says, help="let the sums start at 0")
        return value.text


def write_row(word: str, inside: str, body: str) -> str:
    """Return `word[inside](body)`; for `sample_var`, a `var` with correction=1."""
    if word == "sample_var":
        word, body = "var", f"{body}, correction=1"
    return f"{word}[{inside}]({body})"


_ENTRY = re.compile(r"\w+(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])")  # with at most one entry in its places
_CONSTANTS = {"oo": "oo", "pi": "pi", "imath": "I"}
_NOWHERE = Token("word", "", 0, 0, "")
