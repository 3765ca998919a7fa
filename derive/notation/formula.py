"""A formula: SymPy equations with a name, a source, and declarations."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, ClassVar, TypedDict

from derive.errors import DeriveError, refuse

# Python names that a generated function uses, and those that the file around it uses too. Helper
# functions of a file begin with an underscore.
_TYPES = "Tensor tuple float int bool str dict slice reversed abs range min RuntimeError"
FUNCTION_WORDS = ("torch", "ValueError", "list", "zip", "isinstance", "max")
FILE_WORDS = (*FUNCTION_WORDS, *_TYPES.split())


@dataclass(frozen=True, slots=True)
class Declarations:
    """Declarations of the text form: the arguments in order, and sizes that no shape determines."""

    arguments: tuple[Any, ...] = ()  # IndexedBase or Symbol, in order of declaration
    sizes: tuple[tuple[Any, int | None], ...] = ()  # (Symbol, default)
    indices: tuple[str, ...] = ()  # indices with an `index` line
    domains: tuple[Any, ...] = ()  # scalars with bounds, each as a tensor that has them


class About(TypedDict, total=False):
    """Keywords of a formula besides its equations."""

    title: str
    source: str
    typical: Mapping[str, int] | None
    empty_row: str


class Formula:
    """Equations in index notation, `Eq(z[b, i], Sum(A[b, i, j] * x[b, j], j))`, in order.

    name        the function's name; a module-level formula is named by its variable
    title       one line saying what it is
    source      where it comes from: the paper and the equation's number
    typical     sizes for which the plan is made, `dict(B=8, S=512)`
    outputs     names of the results in order; without them the last equation's
    scalars     number arguments: names, or a mapping of names to defaults (None for no default)
    empty_row   "nan" or "zeros": the softmax of a row in which a mask leaves no entry

    Raises DeriveError where an argument is not of this form. Mistakes in the equations are found
    when the formula is first used.
    """

    to_latex: ClassVar[Callable[["Formula"], str] | None] = None  # set by derive/__init__.py

    def __init__(  # noqa: PLR0913 - all but the equations are keywords
        self,
        *equations: Any,
        name: str | None = None,
        title: str = "",
        source: str = "",
        typical: Mapping[str, int] | None = None,
        outputs: Iterable[str] | None = None,
        scalars: Mapping[str, Any] | Iterable[str] | None = None,
        empty_row: str = "nan",
        declarations: Declarations | None = None,
    ) -> None:
        if empty_row not in {"nan", "zeros"}:
            raise refuse(
                "empty-row-unknown",
                f'empty_row is "nan" or "zeros", not {empty_row!r}',
                help='write empty_row="zeros" for a row of zeros where a mask leaves nothing',
            )
        _check_words(name=name, title=title, source=source)
        if name is not None:
            check_name(name)
        self.equations = _rename_dummies(equations)
        self.name = name
        self.title = title
        self.source = source
        self.typical = _check_typical(typical)
        self.outputs = _find_outputs(outputs)
        self.scalars = _defaults(scalars)
        self.empty_row = empty_row
        self.declarations = declarations

    def _repr_latex_(self) -> str | None:
        """The LaTeX that a notebook shows; None for a formula with mistakes."""
        try:
            printer = type(self).to_latex
            return printer(self) if printer else None
        except DeriveError:
            return None

    def __repr__(self) -> str:
        return f"Formula({self.name or 'unnamed'}, {len(self.equations)} equations)"


def _rename_dummies(equations: tuple[Any, ...]) -> tuple[Any, ...]:
    """The equations with each SymPy Dummy replaced by a symbol whose name nothing else has."""
    from sympy import Basic, Dummy, Symbol, preorder_traversal

    known = [equation for equation in equations if isinstance(equation, Basic)]
    parts = (part for equation in known for part in preorder_traversal(equation))
    dummies = list(dict.fromkeys(part for part in parts if isinstance(part, Dummy)))
    if not dummies:
        return equations
    taken = {str(symbol) for equation in known for symbol in equation.atoms(Symbol)}
    new = {}
    for dummy in dummies:
        stem = dummy.name.strip("_") or "k"
        name = next(
            n for n in (stem, *(f"{stem}{k}" for k in range(len(taken) + 2))) if n not in taken
        )
        taken.add(name)
        new[dummy] = Symbol(name, **dummy._assumptions.generator)
    return tuple(e.xreplace(new) if isinstance(e, Basic) else e for e in equations)


def check_name(name: str) -> None:
    """Raise DeriveError for a name that a generated function cannot have."""
    if not (isinstance(name, str) and name.isidentifier() and not iskeyword(name)):
        raise refuse(
            "formula-name",
            f"a formula is named like a Python function, not {name!r}",
            help="use letters, digits and _",
        )
    owner = find_owner(name, FILE_WORDS)
    if owner:
        says = f"a formula cannot be named {name}: {owner}"
        raise refuse("formula-name", says, help=f"call it {name.strip('_')}_")


def find_owner(name: str, words: Collection[str]) -> str:
    """The reason why a formula cannot use a name; empty for a free name."""
    if name in words:
        return "the generated file uses the name itself"
    is_helper = name.startswith("_") and name.strip("_")
    return "names that begin with _ are those of Python and the generated file" if is_helper else ""


def _find_outputs(outputs: Any) -> tuple[str, ...] | None:
    """The names of the results, given as names or tensors; None: the last equation's result."""
    if outputs is None:
        return None
    if isinstance(outputs, str):
        outputs = outputs.split()
    each = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    names = tuple(n if isinstance(n, str) else str(getattr(n, "label", "")) for n in each)
    if not names or not all(names) or len(set(names)) < len(names):
        raise refuse(
            "outputs-form",
            "outputs are the names of results, each once",
            help='write outputs=["z", "alpha"], or leave it out for the last equation',
        )
    return names


def _check_words(**words: object) -> None:
    for argument, word in words.items():
        if not isinstance(word, str | None):
            raise refuse(
                "formula-word", f"{argument} is text, not {word!r}", help="write it in quotes"
            )


def _check_typical(typical: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(typical, Mapping | None):
        raise refuse(
            "typical-form",
            f"typical maps the names of sizes to numbers, {typical!r} does not",
            help="write typical=dict(B=8, S=512)",
        )
    for size, number in (typical or {}).items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise refuse(
                "typical-form",
                f"a typical size is a whole number above 0, {size} is {number!r}",
                help="write typical=dict(B=8, S=512)",
            )
    return dict(typical or {})


def _defaults(scalars: Mapping[str, Any] | Iterable[str] | None) -> dict[str, Any]:
    if scalars is None:
        return {}
    if isinstance(scalars, str):
        scalars = scalars.split()
    if not hasattr(scalars, "__iter__"):
        raise refuse(
            "scalars-form",
            f"scalars are names, or names with defaults, not {scalars!r}",
            help='write scalars="eps tau", or scalars=dict(eps=1e-5)',
        )
    return dict(scalars) if isinstance(scalars, Mapping) else dict.fromkeys(map(str, scalars))


def check_formula(value: Any) -> Formula:
    """The formula itself; DeriveError for any other value."""
    if isinstance(value, Formula):
        return value
    raise refuse(
        "formula-kind",
        f"a formula is asked for, not {type(value).__name__}",
        help="read a text by derive.parse(text), and one of the library by "
        "derive.formulas.find_formula(name)"
        if isinstance(value, str)
        else "",
    )
