"""What a person gets wrong, with the whole message; and beside each mistake what is right."""

from pathlib import Path

import pytest
import sympy
from sympy import Eq, Idx, IndexedBase, Integral, Piecewise, Sum, Symbol, sqrt

from derive import DeriveError, Formula, mean, parse, softmax
from derive.analysis.names import check_system
from derive.frontend.from_sympy import from_sympy
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.notation.words import indices, sizes, tensors

N, M, H, D, V = sizes("N M H D V")
i, j, k = indices("i j k", N)
m = indices("m", M)
x, y = tensors("x y", N)
A = tensors("A", N, N)
w = tensors("w", M)
bools = tensors("bools", N, dtype="bool")
z, q, L = tensors("z q L")
n, s = Symbol("n", integer=True), Symbol("s", integer=True)

MISTAKES = [
    tuple(block.removesuffix("\n").split("\n----\n"))
    for block in Path(__file__)
    .with_name("analyser_mistakes.txt")
    .read_text("utf8")
    .partition("\n")[2]
    .split("====\n")
    if block.strip()
]


def refuse(formula: Formula) -> str:
    """The message that the formula gets."""
    with pytest.raises(DeriveError) as caught:
        check_system(from_sympy(formula))
    return str(caught.value)


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[t for t, _ in MISTAKES])
def test_a_text_is_refused_with_this_message(text, message):
    assert refuse(parse(text)) == message


def test_the_table_is_long_enough():
    assert len(MISTAKES) + len(SYMPY) + len(EARLY) >= 45
    assert len({text for text, _ in MISTAKES}) == len(MISTAKES)


SYMPY = {
    "nothing": (
        Formula(),
        """
formula-empty: the formula has no equation
  help: write at least one, y[i] = sum[j](A[i,j] * x[j])""",
    ),
    "decided by SymPy": (
        Formula(Eq(z[i], x[i]), Eq(x[i], x[i])),
        """
equation-decided: equation 2 is True: SymPy has compared its sides already
  help: give the result a name of its own, or write Eq(left, right, evaluate=False)""",
    ),
    "no equation": (
        Formula(x[i] + 1),
        """
equation-wanted: equation 1 is no equation: x[i] + 1
  help: write Eq(y[i], ...)""",
    ),
    "left side": (
        Formula(Eq(2 * z[i], x[i])),
        """
left-side: the left side of equation 1 is no element of a tensor: 2*z[i]
  help: write the result alone on the left, Eq(y[i], ...)""",
    ),
    "two ranges of one index": (
        Formula(Eq(z[i], x[i] * Sum(w[Idx("i", M)], Idx("i", M)))),
        """
index-bound-again: index i is bound again where it already has a meaning
    z[i] = x[i] * sum[i](w[i])
                      ^
  help: take a fresh name here, j""",
    ),
    "two ranges in two equations": (
        Formula(Eq(z[i], x[i]), Eq(q[Idx("i", M)], w[Idx("i", M)])),
        """
index-extents: index i has two extents, N and M
    q[i] = w[i]
      ^
  i has extent N, from place 0 of x
  i has extent M, from place 0 of w
  help: give one of them a name of its own""",
    ),
    "a range that starts at 1": (
        Formula(Eq(z[i], x[i] + Sum(x[Idx("r", (1, N))], Idx("r", (1, N))))),
        """
index-start: index r starts at 1; places count from 0
  help: write Idx("r", extent)""",
    ),
    "a range that is no whole number": (
        Formula(Eq(z[Idx("r", N / 2)], w[Idx("r", N / 2)])),
        """
extent-form: the extent 0.5*N of index r is no whole number
  help: divide with //: floor(a/b) in SymPy""",
    ),
    "an index without extent": (
        Formula(Eq(z[n], x[n + 1])),
        """
extent-unknown: nothing tells the extent of index n
  help: give it an extent, n = Idx("n", S)""",
    ),
    "limits beyond the places": (
        Formula(Eq(z[i], x[i] + Sum(x[n], (n, 1, s)) + Sum(x[s], (s, 0, N - 1)))),
        """
index-dangles: index s stands on the right but is neither summed nor on the left
    z[i] = x[i] + sum[n, 1 <= n <= s](x[n]) + sum[s](x[s])
                                   ^
  s has extent N, from place 0 of x
  help: write sum[s](...) to add it up, or z[i,s] = ... to keep it""",
    ),
    "limits from 1 to N": (
        Formula(Eq(z[i], x[i] + Sum(x[n], (n, 1, N)))),
        """
limits-outside: the limits of n, 1 to N, may leave its range
  n runs from 0 to N - 1
  help: places count from 0; limits that depend on an index go into a condition, \
Sum(Piecewise((x, n <= ...), (0, True)), n)""",
    ),
    "summed twice": (
        Formula(Eq(L, Sum(x[i] * Sum(x[i], i), i))),
        """
index-bound-again: index i is bound again where it already has a meaning
    L = sum[i](x[i] * sum[i](x[i]))
                          ^
  help: take a fresh name here, j""",
    ),
    "summed over what is on the left": (
        Formula(Eq(z[i], Sum(x[i], i))),
        """
index-bound-again: index i is bound again where it already has a meaning
    z[i] = sum[i](x[i])
               ^
  help: take a fresh name here, j""",
    ),
    "mean over what is not there": (
        Formula(Eq(z[i], mean(x[i], j))),
        """
index-absent: mean runs over j, which does not occur in what it is taken of
    z[i] = mean[j](x[i])
                ^
  x[i] holds i
  help: name an index of it, or leave mean[j] out""",
    ),
    "softmax without index": (
        Formula(Eq(z[i], softmax(x[i]))),
        """
index-wanted: softmax names no index: softmax(x[i])
  help: write softmax(expression, j)""",
    ),
    "softmax over two": (
        Formula(Eq(z[i, j], softmax(A[i, j], i, j))),
        """
not-yet: softmax runs along one index, not 2: softmax(A[i, j], i, j)
  help: name one index; exp(e) / Sum(exp(e), i, j) is the softmax over both""",
    ),
    "unknown name": (
        Formula(Eq(z[i], x[i] * Symbol("etta")), scalars=["eta"]),
        """
unknown-name: etta is not declared
    z[i] = etta * x[i]
           ^^^^
  known are x, N, eta, z, i
  help: did you mean eta?""",
    ),
    "unknown function": (
        Formula(Eq(z[i], x[i] + sympy.Heaviside(y[i]))),
        """
unknown-function: there is no function Heaviside
    z[i] = x[i] + Heaviside(y[i], 0.5)
                  ^^^^^^^^^^^^^^^^^^^^
  help: write the bracket [x > 0]: Piecewise((1, x > 0), (0, True))""",
    ),
    "misspelt function": (
        Formula(Eq(z[i], sympy.Function("sigmoyd")(x[i]))),
        """
unknown-function: there is no function sigmoyd
    z[i] = sigmoyd(x[i])
           ^^^^^^^^^^^^^
  help: did you mean sigmoid?""",
    ),
    "truth value as a number": (
        Formula(Eq(z[i], x[i] * bools[i])),
        """
condition-as-number: a truth value stands where a number is needed
    z[i] = x[i] * bools[i]
                  ^^^^^^^^
  bools is a tensor of truth values
  help: write [bools[i]] for 1 or 0""",
    ),
    "open Piecewise": (
        Formula(Eq(z[i], Piecewise((x[i], x[i] > 0)))),
        """
piecewise-open: Piecewise says nothing where none of its conditions holds: \
Piecewise((x[i], x[i] > 0))
  help: close it with (value, True)""",
    ),
    "no place in the notation": (
        Formula(Eq(z[i], x[i] + Integral(n, n))),
        """
expression-unknown: Integral has no meaning in the notation: Integral(n, n)
  help: write it with sums, products, conditions and elementwise functions""",
    ),
    "complex": (
        Formula(Eq(z[i], x[i] * sqrt(-1))),
        """
expression-unknown: ImaginaryUnit has no meaning in the notation: I
  help: write it with sums, products, conditions and elementwise functions""",
    ),
    "divided by zero": (
        Formula(Eq(z[i], x[i] * (sympy.Integer(1) / sympy.Integer(0)))),
        """
number-unusable: SymPy has worked out a part of the formula to zoo
  help: look for a division by zero""",
    ),
    "not defined": (
        Formula(Eq(z[i], q[i])),
        """
tensor-undefined: tensor q has no shape and no equation defines it
  help: give it a shape, tensors("q", ...), or an equation""",
    ),
    "shape unknown": (
        Formula(Eq(z[i], x[i] * IndexedBase("u")[i + 1])),
        """
shape-unknown: nothing tells the shape of u
  help: write IndexedBase("u", shape=(...)), or index it with Idx("i", S)""",
    ),
    "two shapes": (
        Formula(Eq(z[i], x[i] + IndexedBase("x", shape=(N, N))[i, i])),
        """
name-clash: x names two tensors
  one of shape [N]
  one of shape [N, N]
  help: give one of them another name""",
    ),
    "tensor and size": (
        Formula(Eq(z[i], x[i] * tensors("N", M)[0])),
        """
name-clash: N is a tensor and a size
  help: give one of them another name""",
    ),
    "a name that Python keeps": (
        Formula(Eq(tensors("lambda"), Sum(x[i], i))),
        """
name-form: lambda cannot be a name in Python, and the generated code needs one
  lambda is a tensor
  help: call it lambda_""",
    ),
    "used before defined": (
        Formula(Eq(z[i], q[i] + 1), Eq(q[i], x[i])),
        """
used-before-defined: q is used before it is defined
    z[i] = q[i] + 1
           ^^^^
    q[i] = x[i]
    ^^^^
  help: move the equation of q up""",
    ),
    "defined twice": (
        Formula(Eq(z[i], x[i]), Eq(z[j], y[j])),
        """
defined-twice: z is defined twice
    z[i] = x[i]
    ^^^^
    z[j] = y[j]
    ^^^^
  help: give the second one a name of its own, z2""",
    ),
    "filled in parts": (
        Formula(Eq(z[2 * i], x[i]), Eq(z[2 * i + 1], y[i])),
        """
not-yet: several equations that fill one tensor cannot be used yet
    z[2*i] = x[i]
    ^^^^^^
    z[2*i + 1] = y[i]
    ^^^^^^^^^^
  help: write it in one equation, for now: where(condition, a, b)""",
    ),
    "fixed on the left": (
        Formula(Eq(z[i, 0], x[i])),
        """
not-yet: a fixed place on the left side cannot be used yet: it fills only a part of z
    z[i,0] = x[i]
        ^
  help: write an index there""",
    ),
    "recurrence": (
        Formula(Eq(z[i], x[i] + z[i - 1])),
        """
not-yet: a recurrence cannot be used yet: z is defined by itself
    z[i] = z[i - 1] + x[i]
           ^^^^^^^^
  help: write it without, for now""",
    ),
    "unknown output": (
        Formula(Eq(z[i], x[i]), outputs=["zz"]),
        """
output-unknown: no equation defines the output zz
  defined are z
  help: did you mean z?""",
    ),
    "default": (
        Formula(Eq(z[i], x[i] * Symbol("c")), scalars={"c": float("nan")}),
        """
default-form: the default of c is no number: nan
  help: write a finite number, 1e-5""",
    ),
    "half a place": (
        Formula(Eq(z[i], x[i / 2] + x[i])),
        """
position-not-integer: i/2 is no whole number, as a place must be
    z[i] = x[i/2] + x[i]
             ^^^
  help: divide with //, i // 2, which is floor(i/2) in SymPy""",
    ),
}


@pytest.mark.parametrize("name", SYMPY)
def test_sympy_objects_are_refused_with_this_message(name):
    formula, message = SYMPY[name]
    assert refuse(formula) == message.removeprefix("\n")


# Refused while the text is read; the messages are told elsewhere, the codes must agree with ours.
EARLY = {
    "x[N]\nz[i] = sum[i](x[i])": "index-bound-again",
    "x[N]\nz[i] = y[i]\ny[i] = x[i]": "used-before-defined",
    "x[N]\nz[i] = x[i]\nz[j] = x[j]": "defined-twice",
    "x[N]\nz[i] = x[i] * N[i]": "not-a-tensor",
    "x[N]\nz[i] = foo(x[i])": "unknown-function",
    "x[N]\nz[i] = x[i] * c": "unknown-name",
    "x[N, N]\nz[i] = x[i]": "wrong-rank",
    "x[N]; m[N]\nz[i] = where(m[i], x[i], 0)": "mask-not-boolean",
    "x[N]; bool m[N]\nz[i] = x[i] * m[i]": "condition-as-number",
    "x[N]\nz[i] = x[i]\nreturn y": "return-unknown",
}


@pytest.mark.parametrize("text", EARLY)
def test_the_text_refuses_with_the_same_codes(text):
    with pytest.raises(DeriveError) as caught:
        check_system(from_sympy(parse(text)))
    assert caught.value.diagnostic.code == EARLY[text]


BESIDE = Path(__file__).with_name("analyser_right.txt").read_text("utf8")
RIGHT = BESIDE.partition("\n")[2].strip().split("\n---\n")


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_beside_a_mistake_is_accepted_and_has_a_value(text):
    formula = parse(text)
    system = from_sympy(formula)
    check_system(system)
    for drawn in choose_sizes(system, count=2):  # the loops refuse any read outside a tensor
        evaluate_loops(formula, draw_inputs(system, drawn, seed=0))


@pytest.mark.parametrize(
    "place", ["max(i - 1, 1)", "max(i + 1, 0)", "min(i - 1, N - 1)", "min(i, N)"]
)
def test_of_a_largest_or_smallest_place_one_part_keeps_each_end(place):
    text = f"x[N]\nindex i < N + 1\ny[i] = x[{place}]"
    with pytest.raises(DeriveError, match="may read outside x"):
        check_system(from_sympy(parse(text)))
