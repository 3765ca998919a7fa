"""Every function of the notation, one row each: its name, properties and definition.

    Function     elementwise: `silu(x) = x*sigmoid(x)`
    Reduction    over indices that it binds, `mean[j](x)`, or along one, `softmax[j](x)`

A row without a definition is a primitive, implemented by the prover and the exact fields. All other
functions are unfolded to primitives in proofs and evaluations, and called by name in generated
code. Definitions, values and derivatives are texts in the notation over other rows; `definitions`
parses them. Reductions that keep their index, such as softmax, are written by hand in
judge/loops/runtime.py, judge/evaluate.py, judge/fields/functions.py, prove/reader.py and
frontend/gradient.py; tests compare these with the definition.

A new function is a new row. Tests of every package run its examples.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from derive.ir import nodes as ir


@dataclass(frozen=True, slots=True)
class Torch:
    """A torch function: its path, the names of its positional parameters, fixed keywords."""

    path: str
    parameters: tuple[str, ...]
    keywords: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function."""

    name: str
    parameters: str = "x"  # a parameter with a default is a number; `*rest`: two or more elements
    definition: str = ""
    value: str = ""  # a text that is accurate in floats; the name itself: the function of `math`
    derivative: str = ""  # by the first parameter, if differentiating the definition loses digits
    torch: str = ""  # the call in generated code; none: the definition is printed
    spellings: str = ""  # names of torch functions, methods and operations
    backward: str = ""  # the torch operation of its gradient, with the function's arguments
    least: Mapping[str, float] = field(default_factory=dict)  # torch arguments ignored above
    sympy: str = ""  # the class in SymPy; none: a class of derive, under this name
    latex: str = ""  # the command, or a template over the arguments; none: \operatorname
    domain: str = ""  # the condition under which it is defined
    complex: str = ""  # the definition for complex arguments; none: real arguments only
    is_real: bool = False  # real values for complex arguments too
    range: tuple[float | None, float | None] = (None, None)
    parity: str = ""  # odd | even
    is_partial: bool = False  # undefined or overflowing at some finite arguments
    inside: str = "1"  # an argument with a finite value and a finite derivative
    is_smooth: bool = False  # an argument rounded past 0 changes the value little
    is_slow: bool = True  # costs about as much as an exponential
    is_kept: bool = True  # False: replaced by its definition when a text is parsed
    confused: str = ""  # functions that people mistake it for
    examples: tuple[str, ...] = ()  # torch code: `x[S]: x.exp()`

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the parameters that are elements of tensors."""
        return tuple(n for n, default in _split_parameters(self.parameters) if default is None)

    @property
    def defaults(self) -> dict[str, str]:
        """The parameters that are numbers, each with the text of its default."""
        return {n: default for n, default in _split_parameters(self.parameters) if default}

    @property
    def is_variadic(self) -> bool:
        """Whether it takes any number of elements."""
        return self.parameters.startswith("*")

    @property
    def counts(self) -> tuple[int, int]:
        """The least and the largest number of arguments."""
        if self.is_variadic:
            return 1, 64
        return len(self.tensors), len(self.tensors) + len(self.defaults)

    @property
    def is_never_negative(self) -> bool:
        """Whether the value is >= 0 for all arguments."""
        return self.range[0] is not None and self.range[0] >= 0

    @property
    def text(self) -> str:
        """The definition that is evaluated in floats; empty for a function of Python's `math`."""
        return "" if self.value == self.name else self.value or self.definition


@dataclass(frozen=True, slots=True)
class Reduction:
    """A function of many entries: over indices that it binds, or along one that stays free."""

    name: str
    definition: str = ""  # a text over the entries x and the index j
    keeps: bool = False  # whether the index stays free
    is_matrix: bool = False  # a function of a matrix, over the indices of its rows and columns
    left_out: str = ""  # the neutral entry; none: the number of entries matters
    nothing: str = "nan"  # the value for a row without entries
    range: tuple[float | None, float | None] = (None, None)
    keeps_sign: bool = False  # >= 0 if all entries are >= 0, > 0 if all are > 0
    is_linear: bool = False  # in its entries
    normalizes: bool = False  # entries sum to 1; `empty rows are` sets the value without entries
    logarithm: str = ""  # the row that is its logarithm
    passes: str = ""  # operations it distributes over: + for max_j(a + b_j) = a + max_j(b_j)
    sympy: str = ""  # the class, if its name differs
    torch: str = ""  # the method, if its name differs
    keywords: str = ""  # keyword arguments of the method
    spellings: str = ""  # names of torch functions and methods equal to it
    latex: str = ""
    operations: int = 1  # arithmetic operations per entry
    is_slow: bool = False  # takes the exponential of each entry minus the largest
    is_kept: bool = True  # False: replaced by its definition when a text is parsed
    says: str = ""  # the meaning, for messages
    examples: tuple[str, ...] = ()

    @property
    def ignores_shift(self) -> bool:
        """Whether adding a number to all entries changes nothing, as in a softmax."""
        return self.keeps and self.is_slow

    @property
    def is_fold(self) -> bool:
        """Whether its value for no entries is the neutral entry, as 0 of a sum, -oo of a max."""
        return not self.keeps and self.left_out == self.nothing


def _split_parameters(parameters: str) -> tuple[tuple[str, str | None], ...]:
    """Pairs (parameter, text of its default or None) of `x, alpha=1`."""
    found = []
    for each in filter(None, map(str.strip, parameters.split(","))):
        name, sign, default = each.partition("=")
        found.append((name, default if sign else None))
    return tuple(found)


_NN = "torch.nn.functional"
_CURVED = "relu gelu silu sigmoid tanh softplus elu leaky_relu exp"
_ODD_ONES = f"abs sign floor erf sin cos log {_CURVED}"
_GATES = "relu gelu silu softplus elu leaky_relu"

# fmt: off
PRIMITIVES: tuple[Function, ...] = (
    Function("exp", derivative="exp(x)", complex="exp(x)", torch="torch.exp",
        spellings="exp", sympy="exp", latex=r"\exp", range=(0, None), is_partial=True,
        is_smooth=True, confused=_ODD_ONES, examples=("x[S]: x.exp()",)),
    Function("log", derivative="1/x", torch="torch.log", spellings="log", sympy="log",
        latex=r"\log", domain="x > 0", is_partial=True, confused=_ODD_ONES,
        examples=("x[S]: x.log()",)),
    Function("sin", value="sin", derivative="cos(x)", torch="torch.sin", spellings="sin",
        sympy="sin", latex=r"\sin", range=(-1, 1), parity="odd", is_smooth=True, confused=_ODD_ONES,
        examples=("x[S]: x.sin()",)),
    Function("cos", value="cos", derivative="-sin(x)", torch="torch.cos", spellings="cos",
        sympy="cos", latex=r"\cos", range=(-1, 1), parity="even", is_smooth=True,
        confused=_ODD_ONES, examples=("x[S]: x.cos()",)),
    Function("erf", value="erf", derivative="2/sqrt(pi)*exp(-x**2)", torch="torch.erf",
        spellings="erf special_erf", sympy="erf", range=(-1, 1), parity="odd", is_smooth=True,
        confused=_ODD_ONES, examples=("x[S]: x.erf()",)),
    Function("asin", value="asin", derivative="1/sqrt(1 - x**2)", torch="torch.asin",
        spellings="asin arcsin", sympy="asin", latex=r"\arcsin", domain="abs(x) <= 1", inside="1/2",
        range=(-1.5708, 1.5708), parity="odd", is_partial=True, confused="acos sin",
        examples=("x[S]: x.tanh().asin()",)),
    Function("atan", value="atan", derivative="1/(1 + x**2)", torch="torch.atan",
        spellings="atan arctan", sympy="atan", latex=r"\arctan", range=(-1.5708, 1.5708),
        parity="odd", is_smooth=True, confused="tanh tan", examples=("x[S]: x.atan()",)),
    Function("atan2", "y, x", value="atan2", derivative="x/(x**2 + y**2); -y/(x**2 + y**2)",
        torch="torch.atan2", spellings="atan2 arctan2", sympy="atan2", range=(-3.1416, 3.1416),
        examples=("x, y[S]: torch.atan2(x, y)",)),
    Function("abs", derivative="sign(x)", torch="torch.abs", spellings="abs absolute", sympy="Abs",
        latex=r"\left| {0} \right|", range=(0, None), parity="even", is_slow=False,
        complex="sqrt(x*conj(x))", is_real=True, confused=_ODD_ONES,
        examples=("x[S]: x.abs()",)),
    Function("sign", derivative="0", torch="torch.sign", spellings="sign sgn", sympy="sign",
        range=(-1, 1), parity="odd", is_slow=False, confused=_ODD_ONES,
        examples=("x[S]: x.sign()",)),
    Function("floor", derivative="0", torch="torch.floor", spellings="floor", sympy="floor",
        latex=r"\left\lfloor {0} \right\rfloor", is_slow=False,
        confused=_ODD_ONES, examples=("x[S]: (3 * x).floor()",)),
    Function("max", "*x", torch="torch.maximum", spellings="maximum", sympy="Max", latex=r"\max",
        is_slow=False, examples=("x[B, S]; y[S]: torch.maximum(x, y)",)),
    Function("min", "*x", torch="torch.minimum", spellings="minimum", sympy="Min", latex=r"\min",
        is_slow=False, examples=("x[B, S]; y[S]: torch.minimum(x, y)",)),
    Function("pi", "", range=(3.1415, 3.1416), sympy="pi", latex=r"\pi"),
    # complex numbers
    Function("I", "", sympy="I", latex=r"\imath"),
    Function("conj", derivative="1", complex="conj(x)", torch="torch.conj", sympy="conjugate",
        spellings="conj conj_physical", parity="odd", is_slow=False,
        examples=("complex x[S]: x.conj()",)),
    Function("re", derivative="1", complex="(x + conj(x))/2", is_real=True, torch="torch.real",
        sympy="re", spellings="real", latex=r"\operatorname{{Re}}\left({0}\right)", parity="odd",
        is_slow=False, confused="im", examples=("complex x[S]: x.real",)),
    Function("im", derivative="0", complex="-I*(x - conj(x))/2", is_real=True, torch="torch.imag",
        sympy="im", spellings="imag", latex=r"\operatorname{{Im}}\left({0}\right)", parity="odd",
        is_slow=False, confused="re", examples=("complex x[S]: x.imag",)),
    Function("arg", derivative="0", complex="arg(x)", is_real=True, torch="torch.angle",
        sympy="arg", spellings="angle", range=(-3.1416, 3.1416),
        examples=("complex x[S]: x.angle()",)),
    Function("floordiv", "a, b", sympy="floor",
        latex=r"\left\lfloor \frac{{{0}}}{{{1}}} \right\rfloor", is_partial=True, is_slow=False),
    Function("mod", "a, b", sympy="Mod", is_partial=True, is_slow=False),
)

COMPOSITES: tuple[Function, ...] = (
    # trigonometry, hyperbolas, logarithms
    Function("tan", definition="sin(x)/cos(x)", value="tan", derivative="1 + tan(x)**2",
        torch="torch.tan", spellings="tan", sympy="tan", latex=r"\tan", parity="odd",
        is_partial=True, confused="tanh atan sin", examples=("x[S]: x.tan()",)),
    Function("acos", definition="pi/2 - asin(x)", value="acos", derivative="-1/sqrt(1 - x**2)",
        torch="torch.acos", spellings="acos arccos", sympy="acos", latex=r"\arccos",
        domain="abs(x) <= 1", inside="1/2", range=(0, 3.1416), is_partial=True, confused="asin cos",
        examples=("x[S]: x.tanh().acos()",)),
    Function("sinh", definition="(exp(x) - exp(-x))/2", value="sinh", derivative="cosh(x)",
        torch="torch.sinh", spellings="sinh", sympy="sinh", latex=r"\sinh", parity="odd",
        is_partial=True, is_smooth=True, confused="cosh sin asinh tanh",
        examples=("x[S]: x.sinh()",)),
    Function("cosh", definition="(exp(x) + exp(-x))/2", value="cosh", derivative="sinh(x)",
        torch="torch.cosh", spellings="cosh", sympy="cosh", latex=r"\cosh", range=(1, None),
        parity="even", is_partial=True, is_smooth=True, confused="sinh cos acosh",
        examples=("x[S]: x.cosh()",)),
    Function("tanh", definition="1 - 2/(1 + exp(2*x))", value="tanh", derivative="1 - tanh(x)**2",
        torch="torch.tanh", spellings="tanh", sympy="tanh", latex=r"\tanh", range=(-1, 1),
        parity="odd", is_smooth=True, confused=_ODD_ONES, examples=("x[S]: x.tanh()",)),
    Function("asinh", definition="sign(x)*log(abs(x) + sqrt(x**2 + 1))", value="asinh",
        derivative="1/sqrt(x**2 + 1)", torch="torch.asinh", spellings="asinh arcsinh",
        sympy="asinh", parity="odd", is_smooth=True, confused="sinh acosh atanh",
        examples=("x[S]: x.asinh()",)),
    Function("acosh", definition="log(x + sqrt(x - 1)*sqrt(x + 1))", value="acosh",
        derivative="1/(sqrt(x - 1)*sqrt(x + 1))", torch="torch.acosh", spellings="acosh arccosh",
        sympy="acosh", domain="x >= 1", inside="2", range=(0, None), is_partial=True,
        confused="cosh asinh", examples=("x[S]: (1 + x.abs()).acosh()",)),
    Function("atanh", definition="log((1 + x)/(1 - x))/2", value="(log1p(x) - log1p(-x))/2",
        derivative="1/(1 - x**2)", torch="torch.atanh", spellings="atanh arctanh", sympy="atanh",
        domain="abs(x) < 1", inside="1/2", parity="odd", is_partial=True, confused="tanh asinh",
        examples=("x[S]: (x.tanh() / 2).atanh()",)),
    Function("expm1", definition="exp(x) - 1", value="expm1", derivative="exp(x)",
        torch="torch.expm1", spellings="expm1 special_expm1", range=(-1, None), is_partial=True,
        is_smooth=True, confused="exp log1p", examples=("x[S]: x.expm1()",)),
    Function("log1p", definition="log(1 + x)", value="log1p", derivative="1/(1 + x)",
        torch="torch.log1p", spellings="log1p special_log1p", domain="x > -1", is_partial=True,
        confused="log expm1", examples=("x[S]: x.log1p()",)),
    Function("erfc", definition="1 - erf(x)", value="erfc", derivative="-2/sqrt(pi)*exp(-x**2)",
        torch="torch.erfc", spellings="erfc special_erfc", sympy="erfc", range=(0, 2),
        is_smooth=True, confused="erf", examples=("x[S]: x.erfc()",)),
    Function("logaddexp", "a, b", definition="log(exp(a) + exp(b))",
        value="where(a == b, a + log(2), max(a, b) + log1p(exp(-abs(a - b))))",
        derivative="sigmoid(a - b); sigmoid(b - a)",
        torch="torch.logaddexp", spellings="logaddexp", is_smooth=True, confused="max",
        examples=("x[S]; y[S]: torch.logaddexp(x, y)",)),
    Function("hypot", "a, b", definition="sqrt(a**2 + b**2)", value="hypot", torch="torch.hypot",
        spellings="hypot", range=(0, None), examples=("x, y[S]: x.hypot(y)",)),
    Function("deg2rad", definition="pi*x/180", torch="torch.deg2rad", spellings="deg2rad",
        parity="odd", is_smooth=True, is_slow=False, examples=("x[S]: x.deg2rad()",)),
    # bounds and steps
    Function("clip", "x, low, high", definition="min(max(x, low), high)", is_slow=False),
    Function("trunc", definition="sign(x)*floor(abs(x))", derivative="0", torch="torch.trunc",
        spellings="trunc fix", parity="odd", is_slow=False, confused="floor",
        examples=("x[S]: (3 * x).trunc()",)),
    # gates and activations
    Function("sigmoid", definition="1/(1 + exp(-x))", derivative="sigmoid(x)*sigmoid(-x)",
        torch="torch.sigmoid", spellings="sigmoid special_expit", range=(0, 1), is_smooth=True,
        confused=_ODD_ONES, examples=("x[S]: x.sigmoid()",)),
    Function("relu", definition="max(x, 0)", derivative="where(x > 0, 1, 0)", torch="torch.relu",
        spellings="relu", range=(0, None), is_slow=False, confused=_ODD_ONES,
        examples=("x[S]: (x - 1).relu()",)),
    Function("relu6", definition="min(max(x, 0), 6)",
        derivative="where(abs(x - 3) < 3, 1, 0)", torch=f"{_NN}.relu6", spellings="relu6",
        range=(0, 6), is_slow=False, confused="relu hardtanh",
        examples=(f"x[S]: {_NN}.relu6(5 * x)",)),
    Function("leaky_relu", "x, negative_slope=0.01", definition="where(x > 0, x, negative_slope*x)",
        derivative="where(x > 0, 1, negative_slope)", torch=f"{_NN}.leaky_relu",
        spellings="leaky_relu", is_slow=False, confused=_ODD_ONES,
        examples=(f"x[S]: {_NN}.leaky_relu(x - 1, 0.2)", f"x[S]: {_NN}.leaky_relu(x - 1)")),
    Function("elu", "x, alpha=1, scale=1, input_scale=1",
        definition="scale*where(x > 0, x, alpha*expm1(input_scale*x))",
        derivative="scale*where(x > 0, 1, alpha*input_scale*exp(input_scale*x))",
        torch=f"{_NN}.elu(x, alpha)", spellings="elu", is_smooth=True, confused=_ODD_ONES,
        examples=(f"x[S]: {_NN}.elu(x - 1)", f"x[S]: {_NN}.elu(x - 1, alpha=0.5)")),
    Function("celu", "x, alpha=1", definition="elu(x, alpha, 1, 1/alpha)", torch=f"{_NN}.celu",
        spellings="celu", is_smooth=True, confused="elu selu relu",
        examples=(f"x[S]: {_NN}.celu(x - 1, 2.0)",)),
    Function("selu", definition="elu(x, 1.6732632423543772, 1.0507009873554805)",
        torch=f"{_NN}.selu", spellings="selu", is_smooth=True, confused="elu celu relu gelu",
        examples=(f"x[S]: {_NN}.selu(x - 1)",)),
    Function("gelu", definition="x*(1 + erf(x/sqrt(2)))/2", value="x*erfc(-x/sqrt(2))/2",
        derivative="erfc(-x/sqrt(2))/2 + x*exp(-x**2/2)/sqrt(2*pi)",
        torch=f"{_NN}.gelu", spellings="gelu", is_smooth=True,
        confused=f"{_ODD_ONES} gelu_tanh", examples=(f"x[S]: {_NN}.gelu(x)",)),
    Function("gelu_tanh", definition="x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))/2",
        value="x*sigmoid(2*sqrt(2/pi)*(x + 0.044715*x**3))",
        torch=f"{_NN}.gelu(x, approximate='tanh')", spellings="gelu", is_smooth=True,
        confused="gelu", examples=(f"x[S]: {_NN}.gelu(x, approximate='tanh')",)),
    Function("silu", definition="x*sigmoid(x)", torch=f"{_NN}.silu", spellings="silu swish",
        is_smooth=True, confused=_ODD_ONES, examples=(f"x[S]: {_NN}.silu(x)",)),
    Function("softplus", "x, beta=1", definition="log(1 + exp(beta*x))/beta",
        value="(max(beta*x, 0) + log1p(exp(-abs(beta*x))))/beta", derivative="sigmoid(beta*x)",
        torch=f"{_NN}.softplus(x, beta, threshold=40)", spellings="softplus",
        backward="softplus_backward",
        least={"threshold": 20}, range=(0, None), is_smooth=True, confused=_ODD_ONES,
        examples=(f"x[S]: {_NN}.softplus(x)", f"x[S]: {_NN}.softplus(x, 2.0)")),
    Function("mish", definition="x*tanh(softplus(x))", torch=f"{_NN}.mish", spellings="mish",
        is_smooth=True, confused=_GATES, examples=(f"x[S]: {_NN}.mish(x)",)),
    Function("logsigmoid", definition="-softplus(-x)", derivative="sigmoid(-x)",
        torch=f"{_NN}.logsigmoid", spellings="logsigmoid log_sigmoid",
        backward="log_sigmoid_backward", range=(None, 0),
        is_smooth=True, confused="sigmoid softplus", examples=(f"x[S]: {_NN}.logsigmoid(x)",)),
    Function("softsign", definition="x/(1 + abs(x))", derivative="1/(1 + abs(x))**2",
        torch=f"{_NN}.softsign", spellings="softsign", range=(-1, 1), parity="odd", is_slow=False,
        confused="tanh sign", examples=(f"x[S]: {_NN}.softsign(x)",)),
    Function("tanhshrink", definition="x - tanh(x)", derivative="tanh(x)**2",
        torch=f"{_NN}.tanhshrink", spellings="tanhshrink", parity="odd", is_smooth=True,
        confused="tanh softshrink hardshrink", examples=(f"x[S]: {_NN}.tanhshrink(x)",)),
    Function("softshrink", "x, lambd=0.5", definition="x - min(max(x, -lambd), lambd)",
        derivative="where(abs(x) > lambd, 1, 0)",
        torch=f"{_NN}.softshrink", spellings="softshrink", backward="softshrink_backward",
        is_slow=False,
        confused="hardshrink tanhshrink", examples=(f"x[S]: {_NN}.softshrink(x)",)),
    Function("hardshrink", "x, lambd=0.5", definition="where(abs(x) <= lambd, 0, x)",
        derivative="where(abs(x) <= lambd, 0, 1)",
        torch=f"{_NN}.hardshrink", spellings="hardshrink", backward="hardshrink_backward",
        is_slow=False,
        confused="softshrink tanhshrink", examples=(f"x[S]: {_NN}.hardshrink(x)",)),
    Function("threshold", "x, threshold, value", definition="where(x <= threshold, value, x)",
        spellings="threshold", is_slow=False, is_kept=False,
        examples=(f"x[S]: {_NN}.threshold(x, 1.0, 0.5)",)),
    Function("hardtanh", "x, min_val=-1, max_val=1", definition="min(max(x, min_val), max_val)",
        derivative="where(x > min_val, where(x < max_val, 1, 0), 0)",
        torch=f"{_NN}.hardtanh", spellings="hardtanh", is_slow=False,
        confused="tanh relu6 hardsigmoid",
        examples=(f"x[S]: {_NN}.hardtanh(x)", f"x[S]: {_NN}.hardtanh(x, 0.5, 0.9)")),
    Function("hardsigmoid", definition="min(max(x + 3, 0), 6)/6",
        derivative="where(abs(x) < 3, 1/6, 0)", torch=f"{_NN}.hardsigmoid",
        spellings="hardsigmoid", range=(0, 1), is_slow=False, confused="sigmoid hardtanh",
        examples=(f"x[S]: {_NN}.hardsigmoid(x)",)),
    Function("hardswish", definition="x*hardsigmoid(x)", torch=f"{_NN}.hardswish",
        spellings="hardswish", is_slow=False, confused="silu relu hardsigmoid",
        examples=(f"x[S]: {_NN}.hardswish(x)",
            f"x[S]: y = x + 1; {_NN}.hardswish(y, inplace=True); y")),
    # other ways to write parts of complex numbers, powers, quotients and logarithms
    Function("real", definition="re(x)", is_kept=False),
    Function("imag", definition="im(x)", is_kept=False),
    Function("angle", definition="arg(x)", is_kept=False),
    Function("sqrt", definition="x**(1/2)", torch="torch.sqrt", spellings="sqrt", sympy="sqrt",
        is_kept=False, examples=("x[S]: x.sqrt()",)),
    Function("rsqrt", definition="1/sqrt(x)", torch="torch.rsqrt", spellings="rsqrt",
        is_kept=False, examples=("x[S]: x.rsqrt()",)),
    Function("reciprocal", definition="1/x", spellings="reciprocal", is_kept=False,
        examples=("x[S]: x.reciprocal()",)),
    Function("square", definition="x**2", spellings="square", is_kept=False,
        examples=("x[S]: x.square()",)),
    Function("exp2", definition="2**x", spellings="exp2 special_exp2", is_kept=False,
        examples=("x[S]: x.exp2()",)),
    Function("log2", definition="log(x)/log(2)", spellings="log2", is_kept=False,
        examples=("x[S]: x.abs().log2()",)),
    Function("log10", definition="log(x)/log(10)", spellings="log10", is_kept=False,
        examples=("x[S]: x.abs().log10()",)),
    Function("ceil", definition="-floor(-x)", spellings="ceil", is_kept=False,
        examples=("x[S]: (3 * x).ceil()",)),
    Function("frac", definition="x - trunc(x)", spellings="frac", is_kept=False,
        examples=("x[S]: (3 * x).frac()",)),
)

REDUCTIONS: tuple[Reduction, ...] = (
    Reduction("sum", left_out="0", nothing="0", keeps_sign=True, is_linear=True, spellings="sum",
        latex=r"\sum", examples=("x[B, S]: x.sum(1)", "x[B, S]: x.sum()")),
    Reduction("prod", left_out="1", nothing="1", keeps_sign=True, spellings="prod", latex=r"\prod",
        examples=("x[B, S]: x.prod(1)",)),
    Reduction("max", left_out="-oo", nothing="-oo", keeps_sign=True, sympy="amax", torch="amax",
        passes="+ min max *", spellings="amax", latex=r"\max", examples=("x[B, S]: x.amax(1)",)),
    Reduction("min", left_out="oo", nothing="oo", keeps_sign=True, sympy="amin", torch="amin",
        passes="+ max min *", spellings="amin", latex=r"\min",
        examples=("x[B, S]: x.amin(1, keepdim=True)",)),
    Reduction("mean", definition="sum[j](x)/sum[j](1)", keeps_sign=True, is_linear=True,
        spellings="mean", says="the sum over j, over the number of entries",
        examples=("x[B, S]: x.mean(-1, keepdim=True)",)),
    Reduction("var", definition="mean[j]((x - mean[j](x))**2)", range=(0, None),
        keywords="correction=0", operations=3,
        says="the mean square deviation from the mean (divides by the number of entries)"),
    Reduction("sample_var", definition="sum[j]((x - mean[j](x))**2)/(sum[j](1) - 1)", torch="var",
        range=(0, None), keywords="correction=1", operations=3,
        says="the variance that divides by one less than the number of entries"),
    Reduction("logsumexp", definition="log(sum[j](exp(x)))", left_out="-oo", nothing="-oo",
        operations=4, is_slow=True, passes="+", spellings="logsumexp",
        examples=("x[B, S]: x.logsumexp(1)",)),
    Reduction("argmax", left_out="-oo", says="the place of the first of the largest entries"),
    Reduction("softmax", "exp(x)/sum[j](exp(x))", keeps=True, left_out="-oo", is_slow=True,
        operations=5, range=(0, 1), normalizes=True, logarithm="log_softmax",
        spellings="softmax _safe_softmax", examples=(
            "x[B, S]: x.softmax(-1)",
            "x[B, S]; bool m[B, S]: torch._safe_softmax(x.masked_fill(~m, -torch.inf), -1)")),
    Reduction("log_softmax", "x - logsumexp[j](x)", keeps=True, left_out="-oo", is_slow=True,
        operations=5, spellings="log_softmax", examples=("x[B, S]: x.log_softmax(-1)",)),
    Reduction("cumsum", keeps=True, left_out="0", nothing="0", keeps_sign=True, is_linear=True,
        spellings="cumsum",
        examples=("x[B, S]: x.cumsum(1)", "x[B, S]; bool m[B, S]: x * m.cumsum(1)")),
    # of a square matrix; the first index counts the rows, the second the columns
    Reduction("det", is_matrix=True, torch="linalg.det", nothing="1", latex=r"\det",
        logarithm="logdet", spellings="linalg_det det",
        says="the determinant of the matrix in rows i and columns j",
        examples=("x[B, S, S]: torch.linalg.det(x)", "x[S, S]: x.det()")),
    Reduction("logdet", "log(det[j](x))", is_matrix=True, torch="logdet", nothing="0",
        spellings="logdet", latex=r"\log\det", says="the logarithm of the determinant",
        examples=("x[S, S]; y[S, S]: torch.logdet(x @ x.T + y @ y.T)",)),
    Reduction("inverse", keeps=True, is_matrix=True, torch="linalg.inv",
        spellings="linalg_inv inverse",
        says="the entry in row i and column j of the inverse of the matrix in rows i and columns j",
        examples=("x[B, S, S]: torch.linalg.inv(x)", "x[S, S]: x.inverse()")),
    Reduction("cholesky", keeps=True, is_matrix=True, torch="linalg.cholesky",
        spellings="linalg_cholesky cholesky",
        says="the entry in row i and column j of the lower triangle L with L L^T = x",
        examples=("x, y[S, S]: torch.linalg.cholesky(x @ x.T + y @ y.T)",)),
    # other ways to write them
    Reduction("amax", "max[j](x)", is_kept=False),
    Reduction("amin", "min[j](x)", is_kept=False),
    Reduction("norm", "sqrt(sum[j](x**2))", is_kept=False),
    Reduction("std", "sqrt(var[j](x))", is_kept=False),
    Reduction("argmin", "argmax[j](-x)", is_kept=False),
    Reduction("softmin", "softmax[j](-x)", keeps=True, is_kept=False,
        examples=(f"x[B, S]: {_NN}.softmin(x, -1)",)),
)
# fmt: on

FUNCTIONS: dict[str, Function] = {row.name: row for row in (*PRIMITIVES, *COMPOSITES)}
# The functions that a text calls by name; floordiv and mod are the signs // and %.
NAMED = tuple(name for name in FUNCTIONS if name not in {"floordiv", "mod"})
# Functions with positive values that underflow to 0 in floats, as exp(-1000) does.
VANISHING = tuple(
    row.name for row in FUNCTIONS.values() if row.range[0] == 0 and row.is_slow and row.is_smooth
)
ROWS: dict[str, Reduction] = {row.name: row for row in REDUCTIONS}
FOLDS = tuple(row.name for row in REDUCTIONS if row.is_fold)
# Folds over an index that the body lacks become a multiple (sum) or a power (prod) of the body.
COUNTING = tuple(kind for kind in FOLDS if kind not in FUNCTIONS)
# Each logarithmic row with the row whose logarithm it is.
EXPONENTIALS = {row.logarithm: row.name for row in REDUCTIONS if row.logarithm}
# The names that `derive` exports beside SymPy's own.
PUBLIC: tuple[str, ...] = tuple(
    dict.fromkeys(
        [
            *(row.name for row in FUNCTIONS.values() if not row.sympy),
            *(row.sympy or row.name for row in REDUCTIONS if row.name not in {"sum", "prod"}),
        ]
    )
)


@cache
def find_call(name: str) -> Torch | None:
    """The torch function that generated code calls; None where it contains the definition."""
    row = FUNCTIONS[name]
    if not row.torch:
        return None
    tree = ast.parse(row.torch, mode="eval").body
    if not isinstance(tree, ast.Call):
        return Torch(row.torch, (*row.tensors, *row.defaults), {})
    taken = tuple(part.id for part in tree.args if isinstance(part, ast.Name))
    keywords = {part.arg or "": ast.literal_eval(part.value) for part in tree.keywords}
    return Torch(ast.unparse(tree.func), taken, keywords)


def find_confused(name: str) -> tuple[str, ...]:
    """The names of the functions that people confuse with this one, in either direction."""
    own = FUNCTIONS[name].confused.split()
    others = (row.name for row in FUNCTIONS.values() if name in row.confused.split())
    return tuple(other for other in dict.fromkeys((*own, *others)) if other != name)


def find_by_torch_name(name: str, keywords: Mapping[str, Any]) -> Function | None:
    """The row of a torch function: gelu(approximate='tanh') is gelu_tanh; None if unknown."""
    rows = [row for row in FUNCTIONS.values() if name in row.spellings.split()]
    for row in rows:
        call = find_call(row.name)
        words = {k: v for k, v in call.keywords.items() if isinstance(v, str)} if call else {}
        if words and all(keywords.get(key) == word for key, word in words.items()):
            return row
    return rows[0] if rows else None


@lru_cache(maxsize=1 << 14)
def is_complex(expr: ir.Expr) -> bool:
    """Whether the value may have an imaginary part, judged by its tensors and functions."""
    match expr:
        case ir.Access(tensor, _):
            return tensor.kind == "complex"
        case ir.Compare() | ir.And() | ir.Or() | ir.Not() | ir.Index():
            return False
        case ir.Call(function, _) if function in FUNCTIONS:
            if function == "I" or FUNCTIONS[function].is_real:
                return function == "I"
    return any(map(is_complex, expr.children))


@lru_cache(maxsize=1 << 14)
def holds_complex(expr: ir.Expr) -> bool:
    """Whether any subexpression is complex, so that a square in it may be negative."""
    return is_complex(expr) or any(map(holds_complex, expr.children))


def kind_of(expr: ir.Expr) -> str:
    """The kind, complex or real, of a tensor for the values of an expression."""
    return "complex" if is_complex(expr) else "real"
