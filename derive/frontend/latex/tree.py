r"""The syntax trees of the equations in a line of LaTeX.

    line      = equation (("," | ";") equation)*
    equation  = (sum | name "(" sum ("," sum)* ")") "=" sum | name "=" number "," \ldots "," sum
    sum       = ["-"] product (("+" | "-") product)*
    product   = factor (["\cdot" | "\odot" | "/" | ..] factor)*
    factor    = atom ("^" group | "_" group)*
    atom      = number | name | "(" sum ")" | "[" relation "]" | \frac | \sqrt | cases | |sum|
              | function ["_" indices] argument | \sum "_" range ["^" limit] product
    relation  = sum (("<" | "\leq" | ..) sum)*, joined by \wedge and \vee

A sum sign applies to all that follows it in its product. The meaning of a sub- or superscript (a
place, a label, a power) depends on the declarations, so the tree keeps it uninterpreted.
"""

import re
from contextlib import suppress
from dataclasses import replace
from keyword import iskeyword

from derive.errors import DeriveError
from derive.frontend.latex import nodes as tex
from derive.frontend.latex.nodes import Call, Name, Number, Product, Token, Tree, refuse_at
from derive.frontend.latex.tokens import END, LOGIC, RELATIONS, STOPS, TIMES, Tokens
from derive.ir.functions import FUNCTIONS, ROWS

FONTS = {"mathrm", "operatorname", "text", "mathbf", "boldsymbol", "mathit", "textbf", "mathsf"}
FONTS |= {"mathcal", "mathbb", "bm", "rm", "textrm", "vec", "textit", "mathop"}
_ACCENTS = {"hat", "bar", "tilde", "widehat", "widetilde", "overline", "dot", "check"}
_CLOSING = {"(": ")", "{": "}", "[": "]", "\\{": "\\}"}
_CLOSING |= {"\\lfloor": "\\rfloor", "\\lvert": "\\rvert"}
_MARKS = {"*": "star", "\\star": "star", "\\ast": "star", "\\dagger": "dagger"}  # in superscripts
_GLYPHS = {"infty": "oo", "varepsilon": "epsilon", "varphi": "phi"}
_GLYPHS |= {"vartheta": "theta", "varrho": "rho", "varsigma": "sigma"}
_SEPARATORS = {",", ";", "|", "\\|", "\\mid"}  # separators of the arguments of a user's function
_DEFINES = {"=", ":", "\\coloneqq", "\\equiv"}
_INVERSE = tex.Sum((("-", Number("1")),))  # in superscripts
_MOD = {"\\bmod", "\\mod"}
_ENTRY = "a tensor with its four indices, v_{ijab}, for a two-electron integral"
_BIG = {"\\sum", "\\prod"}
_OPERATORS = {each.latex for each in FUNCTIONS.values()} | {each.latex for each in ROWS.values()}
# Commands that print a letter; other commands are names only if the text declares them.
_LETTERS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma"
_LETTERS += " tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi"
_LETTERS += " Omega ell hbar imath jmath top intercal"


class Reader(Tokens):
    """A recursive-descent parser over the tokens of one line; DeriveError for other syntax."""

    def __init__(
        self,
        line: str,
        words: frozenset[str] = frozenset(),
        functions: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(line, words)
        self.functions = functions  # names that an equation defines with arguments
        self.ranges: dict[str, Tree] = {}  # the last values of indices that count from 1
        self.indices = {*"".join(map("".join, re.findall(r"_(?:\{([a-z,]+)|(\w))", self.line)))}
        # whether the parser is left of an equals sign; whether it is in a bracketed list
        self.is_left = self.is_list = False
        self.bars = 0  # nesting depth of bars: absolute values, norms, and lists that bars separate

    def read_equations(self) -> list[tex.Equation]:
        r"""Return the equations of the line; a range `i = 1, \ldots, n` goes to `ranges`."""
        found: list[tex.Equation] = []
        while not (found or self.ranges) or self.is_gap():
            while (found or self.ranges) and self.is_gap():
                self.take_token()
            start, left = self.place, self.read_left()
            if found and self.peek() not in _DEFINES:
                advice = "write \\tag{2} for a number, cases for a condition, [i > 0] as a factor"
                raise refuse_at("this is no equation", self.tokens[start], advice)
            while self.peek() in _DEFINES:
                self.take_token()
            right = self.read_sum()
            ahead = [token.text for token in self.tokens[self.place : self.place + 3]]
            is_range = ahead[:1] == [","] and ahead[1:] and ahead[1].lstrip("\\") in tex.DOTS
            if isinstance(left, Name) and is_range:
                self.place += 2 + (ahead[2:] == [","])
                if right != Number("1"):
                    raise refuse_at("a range starts at 1", left.token, "write i = 1, \\ldots, n")
                self.ranges[left.base] = self.read_sum()
            else:
                found.append(tex.Equation(self.line, left, right))
        if self.peek():
            token = self.take_token()
            advice = "write one equation a line" if token.text in RELATIONS else ""
            raise refuse_at(f"{token.text} is not read here", token, advice)
        return found

    def read_left(self) -> Tree:
        """Return the left side: a tensor, or a defined function with its arguments."""
        start, self.is_left = self.place, True
        tree = self.read_factor()
        self.is_left = False
        if isinstance(tree, Name) and self.peek() == "(":
            return self._read_defined(tree)
        if isinstance(tree, (Name, Call)) and self.peek() in _DEFINES:
            return tree
        self.place = start
        return self.read_sum()

    def find_defined(self) -> tuple[set[str], set[str]]:
        """Return (functions that the line defines, tensors on the left of several letters)."""
        found: tuple[set[str], set[str]] = set(), set()
        places = (k + 1 for k, token in enumerate(self.tokens) if token.text in STOPS)
        for self.place in (0, *places):
            with suppress(DeriveError):
                left = self.read_left()
                if isinstance(left, Call) and self.peek() in _DEFINES:
                    found[0].add(left.function)
                elif isinstance(left, Name) and len(left.base) > 1:
                    found[1].add(left.base)
        self.place = 0
        return found

    def _read_defined(self, name: Name) -> Call:
        """Return the call of a function that the text defines."""
        self.take_token("(")
        self.bars += 1
        arguments = self._read_list(_SEPARATORS)
        self.bars -= 1
        self.take_token(")")
        word, places = tex.write_name(name, has_places=True)
        return Call(word, name.token, arguments, places)

    def read_relation(self) -> Tree:
        """Return a condition, or a sum if no relation follows."""
        parts: list[Tree] = [self._read_comparison()]
        words: set[str] = set()
        while self.peek() in LOGIC:
            words.add(LOGIC[self.peek()])
            if len(words) > 1:
                raise refuse_at("and stands beside or", self.take_token(), "put parentheses")
            self.take_token()
            parts.append(self._read_comparison())
        return tex.Logic(words.pop(), tuple(parts)) if words else parts[0]

    def _read_comparison(self) -> Tree:
        if self.peek() in {"\\neg", "\\lnot"}:
            self.take_token()
            return tex.Logic("not", (self._read_comparison(),))
        first, rest = self.read_sum(), []
        while self.peek() in RELATIONS:
            rest.append((RELATIONS[self.take_token().text], self.read_sum()))
        return tex.Relation(first, tuple(rest)) if rest else first

    def read_sum(self) -> Tree:
        """Return a sum of products."""
        terms: list[tuple[str, Tree]] = []
        sign = self.take_token().text if self.peek() in {"+", "-"} else "+"
        while True:
            terms.append((sign, self.read_product()))
            if self.peek() in _MOD:
                token = self.take_token()
                if len(terms) > 1 or sign == "-" or isinstance(terms[0][1], Product):
                    says = f"it is open what {token.text} divides"
                    raise refuse_at(says, token, "put parentheses around it")
                terms = [("+", Call("mod", token, (terms[0][1], self.read_product())))]
            if self.peek() not in {"+", "-"}:
                return terms[0][1] if len(terms) == 1 and sign == "+" else tex.Sum(tuple(terms))
            sign = self.take_token().text

    def read_product(self) -> Tree:
        """Return a product of factors, adjacent or with operators between them."""
        starts = [self.place]
        factors: list[tuple[str, Tree]] = [("", self.read_factor())]
        while True:
            sign = TIMES.get(self.peek(), "")
            if sign:
                self.take_token()
            elif not self._starts_factor():
                return factors[0][1] if len(factors) == 1 else Product(tuple(factors))
            starts.append(self.place)
            is_open = not sign and self.peek() == "(" and isinstance(factors[-1][1], Name)
            factors.append((sign or "(" * is_open, self.read_factor()))
            if not sign:
                self._refuse_open(factors, starts)

    def _refuse_open(self, factors: list[tuple[str, Tree]], starts: list[int]) -> None:
        """Raise DeriveError for `a/2 b`: b may multiply the quotient or its divisor."""
        (sign, divisor), (_, behind) = factors[-2:]
        is_closed = self.tokens[starts[-2]].text in {"(", "[", "{", "\\{"}
        is_sign = any(isinstance(e, Call) and e.token.text in _BIG for e in (divisor, behind))
        if sign != "/" or is_closed or is_sign:
            return
        ends = [*starts[1:], self.place]
        over, under, rest = (
            self.line[self.tokens[start].start : self.tokens[end - 1].end].rstrip("/ ")
            for start, end in list(zip(starts, ends, strict=True))[-3:]
        )
        says = f"it is open what / divides: {rest} may stand beside the quotient or in its divisor"
        advice = f"write \\frac{{{over}}}{{{under}}} {rest}, or {over} / ({under} {rest})"
        raise refuse_at(says, self.tokens[starts[-2] - 1], advice)

    def _starts_factor(self) -> bool:
        text = self.peek()
        if not text or text in RELATIONS or text in LOGIC or self.is_gap():
            return False
        if text == "|":
            return not self.bars
        if text.startswith("\\"):
            ends = {END, "\\\\", "\\in", "\\rfloor", "\\rvert", "\\}", "\\mid", "\\rVert"}
            ends |= {"\\|", "\\Vert"} if self.bars or self.is_list else set()
            ends |= {"\\rangle", "\\to", "\\ldots", "\\dots", *_MOD, *tex.UNREAD}
            return text not in ends
        return text[0].isalnum() or text in {"(", "[", "{"}

    def read_factor(self) -> Tree:
        """Return an atom with its super- and subscripts."""
        is_grouped = self.peek() in {"(", "{"}  # a power of `(x_i)` is no index of x
        tree = self._read_atom()
        while self.peek() in {"^", "_", "'", "(", "["}:
            if self.peek() in {"(", "["}:
                if (found := self._find_entry(tree)) is None:
                    break
                tree = found
                continue
            sign = self.take_token()
            if sign.text == "^" and isinstance(tree, Name) and (place := self._read_upper(tree)):
                if isinstance(place, Number):
                    tree = replace(tree, base=f"{tree.base}_{place.text}")
                else:
                    below, word = (place, *tree.below), tex.to_word(place)
                    tree = replace(tree, below=below, label="", upper=word)
                continue
            if sign.text == "^":
                exponent = self._read_group()
                is_name = not is_grouped or tex.is_label(tex.to_word(exponent))
                if isinstance(tree, Name) and tree.above is None and is_name:
                    tree = replace(tree, above=exponent)
                else:
                    tree = tex.Power(tree, exponent)
            elif not isinstance(tree, Name):
                mark = "prime" if sign.text == "'" else "subscript"
                raise refuse_at(f"a {mark} belongs to a name", sign, "put it at the name")
            elif sign.text == "'":
                tree = replace(tree, base=f"{tree.base}_prime")
                continue
            else:
                base = tree.base
                if tree.below and tree.label:
                    base += tree.label if tree.label.isdigit() else f"_{tree.label}"  # `{W_Q}_{d}`
                below, label = self._read_places()
                kept = tree.below if base == tree.base else ()
                tree = replace(tree, base=base, below=(*kept, *below), label=label)
            if isinstance(tree, Name) and tree.above == _INVERSE and len(tree.below) > 1:
                says = "it is open whether this is an entry of the inverse or 1 by an entry"
                advice = f"write ({tree.base}_{{ij}})^{{-1}}, or B = {tree.base}^{{-1}}"
                if tex.write_name(replace(tree, above=None))[0] not in self.words:
                    raise refuse_at(says, sign, f"{advice} and B_{{ij}}")
        return tree

    def _read_upper(self, name: Name) -> Tree | None:
        """Return a superscript in parentheses, b of `x^{(b)}`; None for others, and after e."""
        start = self.place
        if name.base != "e" and self.peek() == "{":
            with suppress(DeriveError):
                self.take_token()
                self.take_token("(")
                place = self.read_sum()
                self.take_token(")")
                self.take_token("}")
                return place
        self.place = start
        return None

    def _find_entry(self, tree: Tree) -> Name | Call | None:
        """Return what `f(x)`, `x[i]` or `x(i, j)` is: a call or a name with places; or None."""
        start, opened = self.place, self.peek()
        if not isinstance(tree, Name):
            return None
        if opened == "(" and tex.write_name(tree, has_places=True)[0] in self.functions:
            return self._read_defined(tree)
        if tree.above or (self.is_left and opened == "("):
            return None
        with suppress(DeriveError):
            self.take_token()
            places = self._read_list({","})
            self.take_token(_CLOSING[opened])
            parts = [*tex.walk_parts(places)]
            are_sums = all(isinstance(each, (Name, Number, tex.Sum, Product)) for each in parts)
            is_nested = any(t.text == "[" for t in self.tokens[start + 1 : self.place])  # `x[p[i]]`
            is_plain = is_nested or not any(e.below for e in parts if isinstance(e, Name))
            if are_sums and is_plain and (opened == "[" or len(places) > 1):
                return replace(tree, below=(*tree.below, *places), label="")
        self.place = start
        return None

    def _read_group(self) -> Tree:
        """Return a sum in braces, or one token without them."""
        token = self.take_token()
        if token.text == "{":
            tree = self.read_sum()
            self.take_token("}")
            return tree
        if self.line[token.start - 1] in "_^":
            more = re.sub(r"(?!^)[\W_].*", "", self.line[token.start :])
            if len(more) > 1 and (more.isdigit() or {*more} <= self.indices):
                says = "without braces one sign alone stands below or above"
                raise refuse_at(says, token, f"put it in braces: {{{more}}}")
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            middle = token.start + 1  # `\\frac12`: one digit without braces
            first = replace(token, text=token.text[0], end=middle)
            rest = replace(token, text=token.text[1:], start=middle)
            self.tokens[self.place - 1 : self.place] = [first, rest]
            return Number(first.text)
        if token.text in _MARKS or token.kind == "word":
            return Name(_MARKS.get(token.text, token.text), token)
        self.place -= 1
        return self._read_atom()

    def _read_places(self) -> tuple[tuple[Tree, ...], str]:
        """Return (places in a subscript, its text if it may be a label, else "")."""
        start = self.place
        if self.peek() != "{":
            place = self._read_group()
            return (place,), tex.to_word(place)
        self.take_token()
        places: list[Tree] = []
        sign = ""
        self.bars += 1
        while self.peek() != "}":
            first = self.place
            tree = self.read_relation()
            inside = tree.factors if isinstance(tree, Product) else (("", tree),)
            is_list = all(sign in {"", "("} and isinstance(each, Name) for sign, each in inside)
            found = [each for _, each in inside] if is_list else [tree]
            called = [token for token in self.tokens[first : self.place] if token.text == "("]
            if is_list and len(found) > 1 and called:  # `x_{\pi(i)}`
                advice = "write it with its index, x_{p_i}, and declare it: int p[N] < N"
                raise refuse_at("a function in a place is not read", called[0], advice)
            # after a colon `i = 0` is a condition, not a start
            places += [tex.Logic("and", (tree,))] if sign not in {"", ","} else found
            sign = self.take_token().text if self.peek() in {",", ":", "\\mid", "|"} else ""
        self.bars -= 1
        self.take_token("}")
        if len(places) == 1 and isinstance(places[0], Name) and not places[0].below:
            return tuple(places), places[0].base
        texts = [token.text for token in self.tokens[start + 1 : self.place - 1]]
        words = [text for text in texts if text.isalnum()]
        return tuple(places), "".join(words) if len(words) == len(texts) else ""

    def _read_atom(self) -> Tree:
        token = self.take_token()
        match token.kind, token.text:
            case "number", text:
                return Number(text)
            case "word", text:
                word = tex.find_function(text)
                is_name = word is None or text in self.words or self._is_alone()
                return Name(text, token) if is_name else self._read_call(str(word), token)
            case _, "(" | "{" | "\\{" | "[" | "\\lfloor" | "\\lvert":
                return self._read_within(token)
            case _, "|" | "\\|" | "\\Vert" | "\\lVert":
                return self._read_bars(token)
            case _, "\\langle":
                first = self.read_sum()
                if self.peek() != ",":
                    says = "of angle brackets the inner product of two parts is read"
                    raise refuse_at(says, token, f"write \\langle x, y \\rangle, or {_ENTRY}")
                self.take_token()
                second = self.read_sum()
                self.take_token("\\rangle")
                return Call("inner", token, (first, second))
            case "command", command:
                return self._read_command(command, token)
        raise refuse_at(f"{token.text} is not read here", token)

    def _read_within(self, opened: Token) -> Tree:
        """Return the content of parentheses, braces or brackets; a Bracket for a condition."""
        outside, self.bars, self.is_list = self.bars, 0, opened.text == "["
        part = self.read_relation()
        if opened.text == "[" and self.peek() in {"\\|", "\\Vert", ";", ","}:
            advice = "write the sum of the products of its parts"
            raise refuse_at("a concatenation is not read", opened, advice)
        self.bars, self.is_list = outside, False
        if self.peek() == "," and opened.text == "(":
            advice = "define the function whose arguments these are: d(x, y) = .."
            raise refuse_at("a list in parentheses is not read here", opened, advice)
        self.take_token(_CLOSING[opened.text])
        if opened.text in {"\\lfloor", "\\lvert"}:
            return Call("floor" if opened.text == "\\lfloor" else "abs", opened, (part,))
        is_name = opened.text == "[" and isinstance(part, Name)
        is_condition = is_name or isinstance(part, (tex.Relation, tex.Logic))
        return tex.Bracket(part) if is_condition else part

    def _read_bars(self, opened: Token) -> Tree:
        """Return an absolute value or a norm."""
        self.bars += 1
        body = self.read_sum()
        self.bars -= 1
        if opened.text == "|":
            if self.peek() != "|":
                raise refuse_at("| is missing", opened, f"write |x|, or {_ENTRY}")
            self.take_token()
            return Call("abs", opened, (body,))
        closing = self.take_token()
        if closing.text not in {"\\|", "\\Vert", "\\rVert"}:
            says = f"\\| is missing before {closing.text}"
            raise refuse_at(says, closing, f"write \\|x\\|, or {_ENTRY}")
        below, power = self._read_scripts()
        order = next(iter(below), None)
        word = order.text if isinstance(order, Number) else getattr(order, "base", "")
        if below and word not in {"1", "2", "F", "oo"}:
            raise refuse_at("of norms 1, 2, F and \\infty are read", closing, "write the sum")
        norm = Call(f"norm_{word}" if word else "norm", opened, (body,))
        return norm if power is None else tex.Power(norm, power)

    def _read_call(self, word: str, token: Token) -> Tree:
        """Return a function with its arguments in parentheses, or with one factor."""
        below, power = self._read_scripts()
        is_range, above = below and word in ROWS, None
        if is_range and power and not any(isinstance(each, tex.Relation) for each in below):
            says = "it is open whether this ends a range or is a power"
            raise refuse_at(says, token, f"write \\{word}_{{j=1}}^{{N}}, or (\\{word}_j (..))^2")
        if is_range:
            (below, above), power = (_spread_start(below, power), power), None
        if self.peek() in {"(", "[", "{", "\\{"}:
            closing = _CLOSING[self.take_token().text]
            arguments = self._read_list({","})
            self.take_token(closing)
        else:
            is_bare = self.peek() not in {"|", "\\|", "\\Vert", "\\lVert", "\\lvert", "\\lfloor"}
            arguments = (self.read_factor(),)
            goes_on = self._starts_factor() and self.peek().lstrip("\\") not in tex.WORDS
            if goes_on or (is_bare and self.peek() == "/"):
                says = f"it is open how far the argument of {word} goes"
                raise refuse_at(says, token, "put parentheses around the argument")
        if power == _INVERSE:
            if f"a{word}" in FUNCTIONS:  # \\sin^{-1} is asin
                return Call(f"a{word}", token, arguments, below)
            says = f"it is open whether this is the inverse of {word} or 1 by it"
            raise refuse_at(says, token, "write the inverse by its name, or a fraction")
        call = Call(word, token, arguments, below, above)
        return call if power is None else tex.Power(call, power)

    def _is_one(self, start: int) -> bool:
        """Whether the tokens from `start` to the current one are one factor."""
        end, self.place = self.place, start
        self.read_factor()
        is_one, self.place = self.place == end, end
        return is_one

    def _is_alone(self) -> bool:
        """Whether no argument follows a function's word, which then is the name of a tensor."""
        start = self.place
        self._read_scripts()
        is_alone = not self._starts_factor()
        self.place = start
        return is_alone

    def _read_scripts(self) -> tuple[tuple[Tree, ...], Tree | None]:
        """Return (places below, superscript or None) of a function or a sum sign."""
        below: tuple[Tree, ...] = ()
        above: Tree | None = None
        while self.peek() in {"_", "^"}:
            if self.take_token().text == "_":
                below, _ = self._read_places()
            else:
                above = self._read_group()
        return below, above

    def _read_list(self, separators: set[str]) -> tuple[Tree, ...]:
        """Return sums with separators between them."""
        found = [self.read_sum()]
        while self.peek() in separators:
            self.take_token()
            found.append(self.read_sum())
        return tuple(found)

    def _read_command(self, command: str, token: Token) -> Tree:
        word = command[1:]
        if command in {"\\frac", "\\dfrac", "\\tfrac"}:
            sides = [(self.tokens[self.place :], self._read_group()) for _ in range(2)]
            if all([t.text for t in ahead[1:2]] == ["d"] for ahead, _ in sides):
                raise refuse_at("it is open whether this is a derivative", token, "write it out")
            return Product((("", sides[0][1]), ("/", sides[1][1])))
        if command == "\\sqrt":
            if self.peek() != "[":
                return Call("sqrt", token, (self._read_group(),))
            self.take_token()
            inverse = Product((("", Number("1")), ("/", self.read_sum())))
            self.take_token("]")
            return tex.Power(self._read_group(), inverse)
        if command == "\\arg" and self.peek() in {"\\max", "\\min"}:
            return self._read_call(f"arg{self.take_token().text[1:]}", token)
        if command in _BIG:
            below, above = self._read_scripts()
            if not below:
                says = "the sign has no index below it"
                raise refuse_at(says, token, "write \\sum_{j}: summation is never implied")
            below = _spread_start(below, above)
            start, body = self.place, self.read_product()
            if command == "\\prod" and isinstance(body, Product) and self._is_one(start):
                body = tex.Sum((("+", body),))  # one term keeps the extent of the body clear
            return Call(command[1:], token, (body,), below, above)
        if command == "\\begin{cases}":
            return self._read_cases(token)
        if word in FONTS or word in _ACCENTS:
            return self._read_font(word, token)
        if command in tex.UNREAD:
            raise refuse_at(f"{command} is not read", token, tex.UNREAD[command])
        if word in _GLYPHS:
            return Name(_GLYPHS[word], token)
        function = tex.find_function(word)
        is_name = word in self.words and command not in _OPERATORS
        if function is not None and word != "pi" and not is_name:
            return self._read_call(function, token)
        if word in {*_LETTERS.split(), *self.words}:
            is_part = self.line[: token.start].rstrip(" {").endswith("_")
            return Name(f"{word}_" if iskeyword(word) and not is_part else word, token)
        advice = f"write it in letters; if it is a name, say its shape: {command}: [N], or scalar"
        raise refuse_at(f"{command} is not read", token, advice)

    def _read_font(self, word: str, token: Token) -> Tree:
        r"""Return a name in a font or with an accent, `\mathrm{out}`, or an indicator's bracket."""
        end = self.take_token().end if self.peek() == "*" else token.end
        braced = re.compile(r"\s*\{([^{}]*)\}").match(self.line, end)
        is_upright = word in {"mathrm", "operatorname", "text", "textrm", "mathop", "rm"}
        if self.peek() == "{" and (not braced or ("_" in braced[1] and not is_upright)):
            inside = self._read_group()  # `\hat{\mathbf{x}}`, `\hat{x_i}`
            if not isinstance(inside, Name):
                raise refuse_at(f"\\{word} is of a name", token)
            return replace(inside, base=f"{inside.base}_{word}") if word in _ACCENTS else inside
        if braced is None:
            name = self.take_token().text.lstrip("\\")
        else:
            name = re.sub(r"\\[,;:! ]", "", braced[1]).strip()
            name = re.sub(r"\\_|[\s-]+", "_", name).replace("\\", "")
            while self.place < len(self.tokens) and self.tokens[self.place].start < braced.end():
                self.place += 1
        if name == "E" and (word == "mathbb" or self.peek() == "["):
            advice = "write the mean as a sum, \\frac{1}{N} \\sum_{n=1}^{N}, or with its weights"
            raise refuse_at("an expectation says not over what it runs", token, advice)
        # an indicator; its condition is in brackets or in the subscript
        if word in {"mathbb", "mathbf"} and name == "1":
            if self.peek() == "_":
                self.take_token()
            if self.peek() not in _CLOSING:
                raise refuse_at("the condition of the indicator is missing", token)
            return tex.Bracket(self._read_within(self.take_token()))
        if not re.fullmatch(r"\w+", name):
            raise refuse_at(f"{name or word} is no name", token)
        name = f"{name}_{word}" if word in _ACCENTS else name
        function = tex.find_function(name)
        is_name = name in self.words and word != "operatorname"
        if function is not None and not is_name and not self._is_alone():
            return self._read_call(function, token)
        is_part = self.peek() == "_" or self.line[: token.start].rstrip(" {").endswith("_")
        named = Name(f"{name}_" if iskeyword(name) and not is_part else name, token)
        if len(name) > 1 and self.peek() == "(" and name not in self.words:
            return self._read_defined(named)
        return named

    def _read_cases(self, token: Token) -> Tree:
        """Return the rows `value & condition` of cases as nested choices; the last is the rest."""
        rows: list[tuple[Tree, Tree | None]] = []
        while self.peek() != END:
            value, condition = self.read_sum(), None
            while self.peek() not in {"\\\\", END}:
                if self.peek() == "&" or self.is_gap():
                    self.take_token()
                else:
                    condition = self.read_relation()
            rows.append((value, condition))
            if self.peek() != END:
                self.take_token("\\\\")
        self.take_token(END)
        if not rows or any(condition is None for _, condition in rows[:-1]):
            raise refuse_at("a row of cases has no condition", token)
        made, last = rows.pop()
        if last is not None:
            says, advice = "the last row of cases has a condition", "write \\text{otherwise}"
            raise refuse_at(says, self.line, advice)
        for value, condition in reversed(rows):
            made = Call("where", token, (condition or value, value, made))
        return made


def _spread_start(below: tuple[Tree, ...], above: Tree | None) -> tuple[Tree, ...]:
    r"""Return the ranges below a sign, `i = 1, j = 1` for `\sum_{i, j = 1}^N`."""
    match below[-1]:
        case tex.Relation(Name(), (("==", least),)) if above is not None:
            each = (tex.Relation(i, (("==", least),)) if isinstance(i, Name) else i for i in below)
            return tuple(each)
    return below
