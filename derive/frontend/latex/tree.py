r"""LaTeX taken apart: the lines of a text, and the tree of each equation.

    line      = equation (("," | ";") equation)*
    equation  = (sum | name "(" sum ("," sum)* ")") "=" sum | name "=" number "," \ldots "," sum
    sum       = ["-"] product (("+" | "-") product)*
    product   = factor (["\cdot" | "\odot" | "/" | ..] factor)*
    factor    = atom ("^" group | "_" group)*
    atom      = number | name | "(" sum ")" | "[" relation "]" | \frac | \sqrt | cases | |sum|
              | function ["_" indices] argument | \sum "_" range ["^" limit] product
    relation  = sum (("<" | "\leq" | ..) sum)*, joined by \wedge and \vee

A sum sign takes all that follows it in its product. What a sub- or superscript means (a place, a
part of the name, a power) depends on what is declared, so it is kept as it is written.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from keyword import iskeyword

from derive.errors import DeriveError, Mark, refuse
from derive.frontend.latex.nodes import (
    DOTS,
    Big,
    Bracket,
    Call,
    Cases,
    Logic,
    Name,
    Number,
    Power,
    Product,
    Relation,
    Sum,
    Token,
    Tree,
    to_word,
    write_name,
)
from derive.ir.functions import FUNCTIONS, ROWS

_SPACES = r"\s|\\[ ,;:!]|~|\\text(?:rm)?\{\s*(?:if|for|when|otherwise|else|where|with)\s*\}"
_LAYOUT = r"quad|qquad|displaystyle|limits|nonumber|notag|bigl?|bigr|Bigl?|Bigr|left|right"
_TOKEN = re.compile(
    rf"(?P<space>(?:{_SPACES}|\\(?:{_LAYOUT})(?![A-Za-z])\.?)+)|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<command>\\(?:(?:begin|end)\{cases\}|\\|[A-Za-z]+|[|{}\[\]_%#$&]))"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>\S)"
)
_UNICODE = {"≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "∑": r"\sum", "√": r"\sqrt", "·": r"\cdot"}
_UNICODE |= {"∞": r"\infty", "−": "-", "×": r"\times", "⊤": r"\top", "∈": r"\in", "⊙": r"\odot"}
_FONTS = {"mathrm", "operatorname", "text", "mathbf", "boldsymbol", "mathit", "textbf", "mathsf"}
_FONTS |= {"mathcal", "mathbb", "bm", "rm", "textrm", "vec", "textit", "mathop"}
_ACCENTS = {"hat", "bar", "tilde", "widehat", "widetilde", "overline", "dot", "check"}
_RELATIONS = {"<": "<", ">": ">", "=": "==", "\\le": "<=", "\\leq": "<=", "\\ge": ">="}
_RELATIONS |= {"\\geq": ">=", "\\ne": "!=", "\\neq": "!=", "\\lt": "<", "\\gt": ">"}
_RELATIONS |= {"\\leqslant": "<=", "\\geqslant": ">="}
_LOGIC = {"\\wedge": "and", "\\land": "and", "\\vee": "or", "\\lor": "or"}
_TIMES = {"\\cdot": "cdot", "\\times": "times", "*": "star", "\\odot": "odot", "\\circ": "odot"}
_TIMES |= {"/": "/", "\\otimes": "otimes"}
_CLOSING = {"(": ")", "{": "}", "[": "]", "\\{": "\\}"}
_CLOSING |= {"\\lfloor": "\\rfloor", "\\lvert": "\\rvert"}
_MARKS = {"*": "star", "\\star": "star", "\\ast": "star", "\\dagger": "dagger"}  # above a name
_GLYPHS = {"infty": "oo", "varepsilon": "epsilon", "varphi": "phi"}
_GLYPHS |= {"vartheta": "theta", "varrho": "rho", "varsigma": "sigma"}
_SEPARATORS = {",", ";", "|", "\\|", "\\mid"}  # of the arguments of a function that is defined
_DEFINES = {"=", ":", "\\coloneqq", "\\equiv"}
_INVERSE = Sum((("-", Number("1")),))  # above a name
_MOD = {"\\bmod", "\\mod"}
# Signs that are no names, and what to write for them.
_UNREAD = dict.fromkeys(
    ("\\int", "\\iint", "\\oint", "\\lim"), "write the sum or the value that it stands for"
)
_UNREAD |= dict.fromkeys(("\\partial", "\\nabla"), "write the derivative out")
_UNREAD |= dict.fromkeys(("\\pm", "\\mp"), "write an equation for each sign")
_UNREAD |= dict.fromkeys(("\\sup", "\\limsup"), "write \\max_i")
_UNREAD |= dict.fromkeys(("\\inf", "\\liminf"), "write \\min_i")
_UNREAD |= {"\\binom": "declare it as a tensor or a scalar", "\\pmod": "write \\bmod"}
_UNREAD |= {"\\lceil": "write -\\lfloor -x \\rfloor"}
_UNREAD["\\in"] = "write the range of the index; of a set, its mask as a factor: \\sum_k A_{ik} x_k"
_UNREAD["\\in"] += ", with A_{ik} 1 where k is in the set of i and 0 elsewhere"
_ENTRY = "a tensor with its four indices, v_{ijab}, for a two-electron integral"
_BIG = {"\\sum": "sum", "\\prod": "prod"}
# Functions by the command or the word that people write, capitals and lines aside.
WORDS = {name.replace("_", ""): name for name in (*FUNCTIONS, *ROWS)}
WORDS |= {"ln": "log", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "swish": "silu"}
WORDS |= {"concat": "concat", "concatenate": "concat"}
WORDS |= {"average": "mean", "variance": "var", "tr": "trace", "trace": "trace", "sgn": "sign"}
_COMMANDS = [  # \log\det is one function
    (re.compile(r"\s*".join(map(re.escape, commands))), row.name)
    for row in ROWS.values()
    if len(commands := re.findall(r"\\[a-z]+", row.latex)) > 1
]
_OPERATORS = {each.latex for each in FUNCTIONS.values()} | {each.latex for each in ROWS.values()}
_END = "\\end{cases}"


def find_function(word: str) -> str | None:
    """The function of the notation that a word means."""
    return WORDS.get(word.replace("_", "").replace(" ", "").lower())


class Reader:
    """The tokens of one line, and how far they are read."""

    def __init__(
        self,
        line: str,
        words: frozenset[str] = frozenset(),
        functions: frozenset[str] = frozenset(),
    ) -> None:
        for sign, command in _UNICODE.items():
            line = line.replace(sign, f"{command} " if command[0] == "\\" else command)
        for words_of_one, name in _COMMANDS:
            line = words_of_one.sub(rf"\\{name}", line)
        self.line = line
        self.words = words  # names of several letters
        self.functions = functions  # names that an equation defines with arguments
        self.ranges: dict[str, Tree] = {}  # by an index that counts from 1, how far it goes
        self.tokens = list(self._split())
        self.place = 0
        self.is_list = False  # inside brackets, whose parts double lines separate
        self.bars = 0  # that are open: absolute values, norms, and lists whose parts they separate

    def _split(self) -> list[Token]:
        found: list[Token] = []
        for match in _TOKEN.finditer(self.line):
            kind, text = str(match.lastgroup), match.group()
            if kind == "word" and text not in self.words and find_function(text) is None:
                found += [
                    Token("word", sign, match.start() + k, match.start() + k + 1)
                    for k, sign in enumerate(text)
                ]
            elif kind != "space":
                found.append(Token(kind, text, match.start(), match.end()))
        while found and found[-1].text in {",", ".", ";"}:
            found.pop()
        depth, kept = 0, []
        for token in found:  # the & of an environment of equations says nothing
            depth += (token.text == "\\begin{cases}") - (token.text == _END)
            kept += [token] if depth or token.text != "&" else []
        return kept

    def refuse(self, says: str, token: Token | None = None, help: str = "") -> DeriveError:
        """The error that marks a token, else the end of the line."""
        end = len(self.line)
        mark = Mark(self.line, token.start, token.end) if token else Mark(self.line, end, end + 1)
        return refuse("latex-form", says, marks=[mark], help=help)

    def peek(self) -> str:
        """The next token's text; nothing at the end."""
        return self.tokens[self.place].text if self.place < len(self.tokens) else ""

    def take(self, wanted: str = "") -> Token:
        """The next token, which has to be the one that is wanted."""
        if self.place == len(self.tokens):
            raise self.refuse(f"{wanted or 'more'} is missing at the end of the equation")
        token = self.tokens[self.place]
        if wanted and token.text != wanted:
            raise self.refuse(f"{wanted} is missing before {token.text}", token)
        self.place += 1
        return token

    def read_equations(self) -> list[tuple[Tree, Tree]]:
        r"""Both sides of each equation; a range `i = 1, \ldots, n` is kept beside them."""
        found: list[tuple[Tree, Tree]] = []
        while not found or self.peek() in {",", ";", "."}:
            if found:
                self.take()
            left = self.read_left()
            while self.peek() in _DEFINES:
                self.take()
            right = self.read_sum()
            ahead = [token.text for token in self.tokens[self.place : self.place + 3]]
            is_range = ahead[:1] == [","] and ahead[1:] and ahead[1].lstrip("\\") in DOTS
            if isinstance(left, Name) and is_range:
                self.place += 2 + (ahead[2:] == [","])
                if right != Number("1"):
                    raise self.refuse("a range starts at 1", left.token, "write i = 1, \\ldots, n")
                self.ranges[left.base] = self.read_sum()
            else:
                found.append((left, right))
        if self.peek():
            token = self.take()
            advice = "write one equation a line" if token.text in _RELATIONS else ""
            raise self.refuse(f"{token.text} is not read here", token, advice)
        return found

    def read_left(self) -> Tree:
        """A tensor, or a function that is defined: a name with arguments in parentheses."""
        start = self.place
        tree = self.read_factor()
        if isinstance(tree, Name) and self.peek() == "(":
            return self._read_defined(tree)
        if isinstance(tree, (Name, Call)) and self.peek() in _DEFINES:
            return tree
        self.place = start
        return self.read_sum()

    def find_defined(self) -> tuple[set[str], set[str]]:
        """The functions that the line defines, and the tensors that are called like one."""
        found: tuple[set[str], set[str]] = set(), set()
        places = (k + 1 for k, token in enumerate(self.tokens) if token.text in {",", ";", "."})
        for self.place in (0, *places):
            with suppress(DeriveError):
                left = self.read_left()
                if isinstance(left, Call) and self.peek() in _DEFINES:
                    found[0].add(left.function)
                elif isinstance(left, Name) and len(left.base) > 1 and find_function(left.base):
                    found[1].add(left.base)
        self.place = 0
        return found

    def _read_defined(self, name: Name) -> Call:
        """The call of a function that the text defines; its places are those of the function."""
        self.take("(")
        self.bars += 1
        arguments = self._read_list(_SEPARATORS)
        self.bars -= 1
        self.take(")")
        word, places = write_name(name, has_places=True)
        return Call(word, name.token, arguments, places)

    def read_relation(self) -> Tree:
        """A condition, or a sum where no sign makes it one."""
        parts: list[Tree] = [self._read_comparison()]
        words: set[str] = set()
        while self.peek() in _LOGIC or self.peek() in {"and", "or"}:
            words.add(_LOGIC.get(self.peek(), self.peek()))
            if len(words) > 1:
                raise self.refuse("and stands beside or", self.take(), "put parentheses")
            self.take()
            parts.append(self._read_comparison())
        return Logic(words.pop(), tuple(parts)) if words else parts[0]

    def _read_comparison(self) -> Tree:
        if self.peek() in {"\\neg", "\\lnot"}:
            self.take()
            return Logic("not", (self._read_comparison(),))
        first, rest = self.read_sum(), []
        while self.peek() in _RELATIONS:
            rest.append((_RELATIONS[self.take().text], self.read_sum()))
        return Relation(first, tuple(rest)) if rest else first

    def read_sum(self) -> Tree:
        """Terms with signs between them."""
        terms: list[tuple[str, Tree]] = []
        sign = self.take().text if self.peek() in {"+", "-"} else "+"
        while True:
            terms.append((sign, self.read_product()))
            if self.peek() in _MOD:
                token = self.take()
                if len(terms) > 1 or sign == "-" or isinstance(terms[0][1], Product):
                    says = f"it is open what {token.text} divides"
                    raise self.refuse(says, token, "put parentheses around it")
                terms = [("+", Call("mod", token, (terms[0][1], self.read_product())))]
            if self.peek() not in {"+", "-"}:
                return terms[0][1] if len(terms) == 1 and terms[0][0] == "+" else Sum(tuple(terms))
            sign = self.take().text

    def read_product(self) -> Tree:
        """Factors side by side, or with a sign between them."""
        starts = [self.place]
        factors: list[tuple[str, Tree]] = [("", self.read_factor())]
        while True:
            sign = _TIMES.get(self.peek(), "")
            if sign:
                self.take()
            elif not self._starts_factor():
                return factors[0][1] if len(factors) == 1 else Product(tuple(factors))
            starts.append(self.place)
            factors.append((sign, self.read_factor()))
            if not sign:
                self._refuse_open(factors, starts)

    def _refuse_open(self, factors: list[tuple[str, Tree]], starts: list[int]) -> None:
        """Refuse `a/2 b`: b may multiply the quotient or its divisor; a sum ends a divisor."""
        (sign, divisor), (_, behind) = factors[-2:]
        is_closed = self.tokens[starts[-2]].text in {"(", "[", "{", "\\{"}
        if sign != "/" or is_closed or isinstance(divisor, Big) or isinstance(behind, Big):
            return
        ends = [*starts[1:], self.place]
        over, under, rest = (
            self.line[self.tokens[start].start : self.tokens[end - 1].end].rstrip("/ ")
            for start, end in list(zip(starts, ends, strict=True))[-3:]
        )
        says = f"it is open what / divides: {rest} may stand beside the quotient or in its divisor"
        advice = f"write \\frac{{{over}}}{{{under}}} {rest}, or {over} / ({under} {rest})"
        raise self.refuse(says, self.tokens[starts[-2] - 1], advice)

    def _starts_factor(self) -> bool:
        text = self.peek()
        if not text or text in _RELATIONS or text in _LOGIC or text in {"and", "or"}:
            return False
        if text == "|":
            return not self.bars
        if text.startswith("\\"):
            ends = {_END, "\\\\", "\\in", "\\rfloor", "\\rvert", "\\}", "\\mid", "\\rVert"}
            ends |= {"\\|", "\\Vert"} if self.bars or self.is_list else set()
            ends |= {"\\rangle", "\\to", "\\quad", "\\ldots", "\\dots", *_MOD, *_UNREAD}
            return text not in ends
        return text[0].isalnum() or text in {"(", "[", "{"}

    def read_factor(self) -> Tree:
        """An atom with what stands above and below it."""
        tree = self._read_atom()
        while self.peek() in {"^", "_", "'"} or self._is_called(tree):
            if isinstance(tree, Name) and self.peek() == "(":
                tree = self._read_defined(tree)
                continue
            if self.peek() == "'":
                prime = self.take()
                if not isinstance(tree, Name):
                    raise self.refuse("a prime belongs to a name", prime)
                tree = replace(tree, base=f"{tree.base}_prime")
                continue
            sign = self.take()
            if sign.text == "^" and isinstance(tree, Name) and (place := self._read_upper(tree)):
                number = place.text if isinstance(place, Number) else ""
                if number:
                    tree = replace(tree, base=f"{tree.base}_{number}")
                else:
                    below, word = (place, *tree.below), to_word(place)
                    tree = replace(tree, below=below, label="", upper=word)
                continue
            if sign.text == "^":
                exponent = self._read_group(self.read_sum)
                if isinstance(tree, Name) and tree.above is None:
                    tree = replace(tree, above=exponent)
                else:
                    tree = Power(tree, exponent)
            else:
                base = tree.base if isinstance(tree, Name) else ""
                if isinstance(tree, Name) and tree.below and tree.label:
                    base += tree.label if tree.label.isdigit() else f"_{tree.label}"  # `{W_Q}_{d}`
                elif not isinstance(tree, Name):
                    raise self.refuse("a subscript belongs to a name", sign, "put it at the name")
                below, label = self._read_places()
                if isinstance(tree, Name) and tree.above == _INVERSE and len(below) > 1:
                    says = "it is open whether this is an entry of the inverse or 1 by an entry"
                    advice = f"write ({base}_{{ij}})^{{-1}}, or B = {base}^{{-1}} and B_{{ij}}"
                    raise self.refuse(says, sign, advice)
                kept = tree.below if base == tree.base else ()
                tree = replace(tree, base=base, below=(*kept, *below), label=label)
        return tree

    def _read_upper(self, name: Name) -> Tree | None:
        """What stands above in parentheses, `x^{(b)}`: an index, or a number of the name."""
        start = self.place
        if name.base != "e" and self.peek() == "{":
            with suppress(DeriveError):
                self.take()
                self.take("(")
                place = self.read_sum()
                self.take(")")
                self.take("}")
                return place
        self.place = start
        return None

    def _is_called(self, tree: Tree) -> bool:
        """Is the tree a function that the text defines, with its arguments behind it?"""
        if not isinstance(tree, Name) or self.peek() != "(":
            return False
        return write_name(tree, has_places=True)[0] in self.functions

    def _read_group(self, read: Callable[[], Tree]) -> Tree:
        """What stands in braces, or one token without them."""
        if self.peek() == "{":
            self.take()
            tree = read()
            self.take("}")
            return tree
        token = self.tokens[self.place] if self.place < len(self.tokens) else None
        if token is not None and token.text in _MARKS:
            self.take()
            return Name(_MARKS[token.text], token)
        if token is not None and token.kind == "number" and token.text.isdigit():
            middle = token.start + 1  # `\\frac12`: one digit without braces
            rest = Token("number", token.text[1:], middle, token.end)
            token = Token("number", token.text[0], token.start, middle)
            self.tokens[self.place : self.place + 1] = [token, rest] if rest.text else [token]
        if token is not None and token.kind in {"number", "word"}:
            self.take()
            return Number(token.text) if token.kind == "number" else Name(token.text, token)
        return self._read_atom()

    def _read_places(self) -> tuple[tuple[Tree, ...], str]:
        """The places below a name, and their text as part of it. Letters side by side are many."""
        start = self.place
        if self.peek() != "{":
            place = self._read_group(self.read_sum)
            label = place.base if isinstance(place, Name) else ""
            label = place.text if isinstance(place, Number) else label
            return (place,), label
        self.take()
        places: list[Tree] = []
        sign = ""
        self.bars += 1
        while self.peek() != "}":
            first = self.place
            tree = self.read_relation()
            inside = tree.factors if isinstance(tree, Product) else (("", tree),)
            is_list = all(not sign and isinstance(each, Name) for sign, each in inside)
            found = [each for _, each in inside] if is_list else [tree]
            called = [token for token in self.tokens[first : self.place] if token.text == "("]
            if is_list and len(found) > 1 and called:  # `x_{\pi(i)}`
                advice = "write it with its index, x_{p_i}, and declare it: int p[N] < N"
                raise self.refuse("a function in a place is not read", called[0], advice)
            # After a colon `i = 0` is a condition, and no place to start at.
            places += [Logic("and", (tree,))] if sign not in {"", ","} else found
            sign = self.take().text if self.peek() in {",", ":", "\\mid", "|"} else ""
        self.bars -= 1
        self.take("}")
        if len(places) == 1 and isinstance(places[0], Name) and not places[0].below:
            return tuple(places), places[0].base
        texts = [token.text for token in self.tokens[start + 1 : self.place - 1]]
        words = [text for text in texts if text.isalnum()]
        return tuple(places), "".join(words) if len(words) == len(texts) else ""

    def _read_atom(self) -> Tree:
        token = self.take()
        match token.kind, token.text:
            case "number", text:
                return Number(text)
            case "word", text:
                word = find_function(text)
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
                    raise self.refuse(says, token, f"write \\langle x, y \\rangle, or {_ENTRY}")
                self.take()
                second = self.read_sum()
                self.take("\\rangle")
                return Call("inner", token, (first, second))
            case "command", command:
                return self._read_command(command, token)
        raise self.refuse(f"{token.text} is not read here", token)

    def _read_within(self, opened: Token) -> Tree:
        """What stands between parentheses, braces or brackets."""
        outside, self.bars, self.is_list = self.bars, 0, opened.text == "["
        parts = [self.read_relation()]
        while opened.text == "[" and self.peek() in {"\\|", "\\Vert", ";"}:
            self.take()
            parts.append(self.read_sum())
        self.bars, self.is_list = outside, False
        if self.peek() == "," and opened.text == "(":
            advice = "define the function whose arguments these are: d(x, y) = .."
            raise self.refuse("a list in parentheses is not read here", opened, advice)
        self.take(_CLOSING[opened.text])
        tree = parts[0]
        if len(parts) > 1:
            return Call("concat", opened, tuple(parts))
        if opened.text in {"\\lfloor", "\\lvert"}:
            return Call("floor" if opened.text == "\\lfloor" else "abs", opened, (tree,))
        is_truth = isinstance(tree, (Relation, Logic))
        is_truth = is_truth or (opened.text == "[" and isinstance(tree, Name))
        return Bracket(tree) if is_truth else tree

    def _read_bars(self, opened: Token) -> Tree:
        """An absolute value or a norm."""
        self.bars += 1
        body = self.read_sum()
        self.bars -= 1
        if opened.text == "|":
            if self.peek() != "|":
                raise self.refuse("| is missing", opened, f"write |x|, or {_ENTRY}")
            self.take()
            return Call("abs", opened, (body,))
        closing = self.take()
        if closing.text not in {"\\|", "\\Vert", "\\rVert"}:
            says = f"\\| is missing before {closing.text}"
            raise self.refuse(says, closing, f"write \\|x\\|, or {_ENTRY}")
        if self.peek() == "_":
            self.take()
            order = self._read_group(self.read_sum)
            word = order.text if isinstance(order, Number) else getattr(order, "base", "")
            if word not in {"1", "2", "F", "oo"}:
                raise self.refuse("of norms 1, 2, F and \\infty are read", closing, "write the sum")
            return Call(f"norm_{word}", opened, (body,))
        return Call("norm", opened, (body,))

    def _read_call(self, word: str, token: Token) -> Tree:
        """A function and its argument, which is in parentheses or one factor."""
        below, power = self._read_scripts()
        if self.peek() in {"(", "[", "{", "\\{"}:
            closing = _CLOSING[self.take().text]
            arguments = self._read_list({","})
            self.take(closing)
        else:
            is_bare = self.peek() not in {"|", "\\|", "\\Vert", "\\lVert", "\\lvert", "\\lfloor"}
            arguments = (self.read_factor(),)
            goes_on = self._starts_factor() and self.peek().lstrip("\\") not in WORDS
            if goes_on or (is_bare and self.peek() == "/"):
                says = f"it is open how far the argument of {word} goes"
                raise self.refuse(says, token, "put parentheses around the argument")
        if power == _INVERSE:
            if f"a{word}" in FUNCTIONS:  # \\sin^{-1} is asin
                return Call(f"a{word}", token, arguments, below)
            says = f"it is open whether this is the inverse of {word} or 1 by it"
            raise self.refuse(says, token, "write the inverse by its name, or a fraction")
        call = Call(word, token, arguments, below)
        return call if power is None else Power(call, power)

    def _is_one(self, start: int) -> bool:
        """Is what was read since then one factor?"""
        end, self.place = self.place, start
        self.read_factor()
        is_one, self.place = self.place == end, end
        return is_one

    def _is_alone(self) -> bool:
        """Has a function no argument behind what stands below and above it, as a name has none?"""
        start = self.place
        self._read_scripts()
        is_alone = not self._starts_factor()
        self.place = start
        return is_alone

    def _read_scripts(self) -> tuple[tuple[Tree, ...], Tree | None]:
        """What stands below and above a function or a sign."""
        below: tuple[Tree, ...] = ()
        above: Tree | None = None
        while self.peek() in {"_", "^"}:
            if self.take().text == "_":
                below, _ = self._read_places()
            else:
                above = self._read_group(self.read_sum)
        return below, above

    def _read_list(self, separators: set[str]) -> tuple[Tree, ...]:
        """Sums with separators between them."""
        found = [self.read_sum()]
        while self.peek() in separators:
            self.take()
            found.append(self.read_sum())
        return tuple(found)

    def _read_command(self, command: str, token: Token) -> Tree:
        word = command[1:]
        if command in {"\\frac", "\\dfrac", "\\tfrac"}:
            over, under = self._read_group(self.read_sum), self._read_group(self.read_sum)
            return Product((("", over), ("/", under)))
        if command == "\\sqrt":
            if self.peek() != "[":
                return Call("sqrt", token, (self._read_group(self.read_sum),))
            self.take()
            inverse = Product((("", Number("1")), ("/", self.read_sum())))
            self.take("]")
            return Power(self._read_group(self.read_sum), inverse)
        if command == "\\arg" and self.peek() in {"\\max", "\\min"}:
            return self._read_call(f"arg{self.take().text[1:]}", token)
        if command in _BIG:
            below, above = self._read_scripts()
            if not below:
                says = "the sign has no index below it"
                raise self.refuse(says, token, "write \\sum_{j}: summation is never implied")
            below, above = _find_limits(below, above)
            start, body = self.place, self.read_product()
            if command == "\\prod" and isinstance(body, Product) and self._is_one(start):
                body = Sum((("+", body),))  # in parentheses, which say how far it goes
            return Big(_BIG[command], token, below, above, body)
        if command == "\\begin{cases}":
            return self._read_cases(token)
        if word in _FONTS or word in _ACCENTS:
            return self._read_font(word, token)
        if command in _UNREAD:
            raise self.refuse(f"{command} is not read", token, _UNREAD[command])
        if word in _GLYPHS:
            return Name(_GLYPHS[word], token)
        function = find_function(word)
        is_name = word in self.words and command not in _OPERATORS
        if function is not None and word != "pi" and not is_name:
            return self._read_call(function, token)
        if word.isalpha():
            return Name(f"{word}_" if iskeyword(word) else word, token)
        raise self.refuse(f"{command} is not read", token)

    def _read_font(self, word: str, token: Token) -> Tree:
        """A name in braces: its letters are one word."""
        end = self.take().end if self.peek() == "*" else token.end
        braced = re.compile(r"\s*\{([^{}]*)\}").match(self.line, end)
        if braced is None:
            letter = self.take()
            name = letter.text.lstrip("\\")
        else:
            name = re.sub(r"\\_|[\s-]+", "_", re.sub(r"\\[,;:! ]", "", braced[1]).strip()).replace(
                "\\", ""
            )
            while self.place < len(self.tokens) and self.tokens[self.place].start < braced.end():
                self.place += 1
        if name == "E" and (word == "mathbb" or self.peek() == "["):
            advice = "write the mean as a sum, \\frac{1}{N} \\sum_{n=1}^{N}, or with its weights"
            raise self.refuse("an expectation says not over what it runs", token, advice)
        if word in {"mathbb", "mathbf"} and name == "1":  # a condition in brackets or below it
            if self.peek() == "_":
                self.take()
            opened = self.take()
            if opened.text not in _CLOSING:
                raise self.refuse("the condition of the indicator is missing", token)
            condition = self.read_relation()
            self.take(_CLOSING[opened.text])
            return Bracket(condition)
        if not re.fullmatch(r"\w+", name):
            raise self.refuse(f"{name or word} is no name", token)
        name = f"{name}_{word}" if word in _ACCENTS else name
        function = find_function(name)
        is_name = name in self.words and word != "operatorname"
        if function is not None and not is_name and not self._is_alone():
            return self._read_call(function, token)
        named = Name(name, token)
        if len(name) > 1 and self.peek() == "(" and name not in self.words:
            return self._read_defined(named)
        return named

    def _read_cases(self, token: Token) -> Tree:
        """The rows of cases, each `value & condition`; the last one may have no condition."""
        rows: list[tuple[Tree, Tree | None]] = []
        while self.peek() != _END:
            value, condition = self.read_sum(), None
            if self.peek() in {",", "&"}:
                while self.peek() in {",", "&"}:
                    self.take()
                if self.peek() not in {"\\\\", _END}:
                    condition = self.read_relation()
            rows.append((value, condition))
            if self.peek() != _END:
                self.take("\\\\")
        self.take(_END)
        if not rows or any(condition is None for _, condition in rows[:-1]):
            raise self.refuse("a row of cases has no condition", token)
        return Cases(tuple(rows))


def _find_limits(
    below: tuple[Tree, ...], above: Tree | None
) -> tuple[tuple[Tree, ...], Tree | None]:
    r"""The starts, conditions and limit of `\sum_{i, j = 1}^N` and `\sum_{1 \le i < j \le N}`."""
    match below[-1]:
        case Relation(Name(), (("==", least),)) if above is not None:
            starts = [Relation(i, (("==", least),)) if isinstance(i, Name) else i for i in below]
            return tuple(starts), above
        case Relation(Number(least), rest) if above is None and len(below) == 1 < len(rest):
            inside = [side for _, side in rest[:-1]]
            signs = [sign for sign, _ in rest]
            if not {*signs} <= {"<", "<="} or not all(isinstance(each, Name) for each in inside):
                return below, above
            first = Number(str(int(least) + (signs[0] == "<")))
            last = rest[-1][1]
            above = Sum((("+", last), ("-", Number("1")))) if signs[-1] == "<" else last
            between = Relation(inside[0], rest[1:-1])
            starts = [Relation(each, (("==", first),)) for each in inside]
            return (*starts, *([between] if between.rest else [])), above
    return below, above
