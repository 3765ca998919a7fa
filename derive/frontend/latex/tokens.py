"""Into which tokens a line of LaTeX is split, and which signs and commands separate its parts."""

import re

from derive.frontend.latex import nodes as tex
from derive.frontend.latex.nodes import Token, refuse_at
from derive.ir.functions import ROWS

_SPACES = r"\s|\\[ ,;:!>]|~"
# Commands without meaning: they print nothing, or the next sign in another size.
_LAYOUT = r"(?:display|text|script)style|(?:no)?limits|nonumber|notag|[bB]igg?[lrm]?|left|right"
# Gaps and words separate the parts of a row of cases, and an equation from its conditions.
_WORDS = r"if|for(?: all)?|when|otherwise|else|where|with"
_GAP = rf"\\qq?uad|\\forall|\\text(?:rm)?\{{[,\s]*(?:{_WORDS})[,\s]*\}}"
_TOKEN = re.compile(
    rf"(?P<space>(?:{_SPACES}|\\(?:{_LAYOUT})(?![A-Za-z])\.?)+)|(?P<number>\d+(?:\.\d+)?)"
    rf"|(?P<gap>(?:{_GAP})(?![A-Za-z]))"
    r"|(?P<command>\\(?:(?:begin|end)\{cases\}|\\|[A-Za-z]+|[|{}\[\]_%#$&]))"
    r"|(?P<word>[A-Za-z]+)|(?P<sign>\S)"
)
# Signs and words, and the commands that replace them.
_REWRITTEN = {"≤": "\\leq ", "≥": "\\geq ", "≠": "\\neq ", "∑": "\\sum ", "√": "\\sqrt "}
_REWRITTEN |= {"·": "\\cdot ", "∞": "\\infty ", "−": "-", "×": "\\times ", "⊤": "\\top "}
_REWRITTEN |= {"∈": "\\in ", "⊙": "\\odot "}
_REWRITTEN |= {r"\\text\{\s*and\s*\}": "\\wedge ", r"\\text\{\s*or\s*\}": "\\vee "}
_REWRITTEN |= {  # \log\det is one function
    r"\s*".join(map(re.escape, commands)): f"\\{row.name}"
    for row in ROWS.values()
    if len(commands := re.findall(r"\\[a-z]+", row.latex)) > 1
}
RELATIONS = {"<": "<", ">": ">", "=": "==", "\\le": "<=", "\\leq": "<=", "\\ge": ">="}
RELATIONS |= {"\\geq": ">=", "\\ne": "!=", "\\neq": "!=", "\\lt": "<", "\\gt": ">"}
RELATIONS |= {"\\leqslant": "<=", "\\geqslant": ">="}
LOGIC = {"\\wedge": "and", "\\land": "and", "\\vee": "or", "\\lor": "or"}
TIMES = {"\\cdot": "cdot", "\\times": "times", "*": "star", "\\odot": "odot", "\\circ": "odot"}
TIMES |= {"/": "/", "\\otimes": "otimes"}
STOPS = {",", ";", "."}
END = "\\end{cases}"
_SIGNS = {"+", "-", ",", ";", ".", "&", "\\\\", "\\begin{cases}", *RELATIONS, *TIMES, *LOGIC}


class Tokens:
    """The tokens of a line, and the position of the next one."""

    def __init__(self, line: str, words: frozenset[str]) -> None:
        for pattern, command in _REWRITTEN.items():
            line = re.sub(pattern, command.replace("\\", r"\\"), line)
        self.line = line
        self.words = words  # names of several letters
        self.tokens = self._split_tokens()
        self.place = 0

    def _split_tokens(self) -> list[Token]:
        found: list[Token] = []
        for match in _TOKEN.finditer(self.line):
            kind, text = str(match.lastgroup), match.group()
            if kind == "word" and text not in self.words and tex.find_function(text) is None:
                found += [
                    Token("word", sign, match.start() + k, match.start() + k + 1, self.line)
                    for k, sign in enumerate(text)
                ]
            elif kind != "space":
                found.append(Token(kind, text, match.start(), match.end(), self.line))
        while found and (found[-1].text in STOPS or found[-1].text.endswith("quad")):
            found.pop()
        depth, kept = 0, list[Token]()
        for token, behind in zip(found, [*found[1:], Token("", "+", 0, 0, "")], strict=False):
            # drop the & of environments outside of cases, and spaces beside operators
            beside = {"&", behind.text, kept[-1].text if kept else "+"}
            is_space = token.text.endswith("quad") and beside & _SIGNS - {"&"}
            depth += (token.text == "\\begin{cases}") - (token.text == END)
            kept += [token] if not is_space and (depth or token.text != "&") else []
        return kept

    def peek(self) -> str:
        """Return the next token's text, or "" at the end."""
        return self.tokens[self.place].text if self.place < len(self.tokens) else ""

    def take_token(self, wanted: str = "") -> Token:
        """Return the next token and advance; DeriveError at the end, or if it is not `wanted`."""
        if self.place == len(self.tokens):
            end = Token("", "", len(self.line), len(self.line) + 1, self.line)
            raise refuse_at(f"{wanted or 'more'} is missing at the end of the equation", end)
        token = self.tokens[self.place]
        if wanted and token.text != wanted:
            raise refuse_at(f"{wanted} is missing before {token.text}", token)
        self.place += 1
        return token

    def is_gap(self) -> bool:
        """Whether the next token separates equations: punctuation, a gap, or a word like `for`."""
        return any(t.text in STOPS or t.kind == "gap" for t in self.tokens[self.place :][:1])
