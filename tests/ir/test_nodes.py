"""Nodes are values: interned, immutable, and the same after copying and pickling."""

import copy
import gc
import pickle
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction

import pytest

from derive.ir import nodes
from derive.ir.nodes import (
    MINUS_INFINITY,
    ONE,
    TRUE,
    Access,
    Add,
    Along,
    Compare,
    Equation,
    Index,
    Infinity,
    Mul,
    Number,
    Pow,
    Reduce,
    ScalarInput,
    Size,
    SizeInput,
    System,
    Tensor,
    Where,
)


def make_system():
    """A formula with most kinds of nodes in it."""
    extent = Size("S")
    i, j = Index("i", extent), Index("j", extent)
    x, y = Tensor("x", (extent,), lower=nodes.ZERO), Tensor("y", (extent,))
    body = Mul((Access(x, (j,)), Where(Compare("<=", j, i), ONE, nodes.ZERO), Pow(i, ONE)))
    value = Add((Reduce("sum", (j,), TRUE, body), Along("softmax", i, TRUE, Access(x, (i,)))))
    inputs = (x, ScalarInput("eps", ONE))
    equation = Equation(Access(y, (i,)), value)
    return System("f", inputs, (SizeInput("W", 2),), (equation,), (y,))


def test_equal_nodes_are_one_object():
    assert make_system() is make_system()
    assert Index("i", Size("S")) is Index(name="i", extent=Size("S"))
    assert Infinity() is Infinity(False) is Infinity(negative=False)
    assert Infinity(True) is MINUS_INFINITY


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Size("i"), nodes.Scalar("i")),
        (Index("i", Size("S")), Index("i", Size("D"))),
        (Add((ONE, TRUE)), Mul((ONE, TRUE))),
        (Add((Size("A"), Size("B"))), Add((Size("B"), Size("A")))),
        (Tensor("x", ()), Tensor("x", (), "bool")),
        (Infinity(), MINUS_INFINITY),
        (Add((Add((ONE, ONE)), ONE)), Add((ONE, ONE, ONE))),
    ],
)
def test_what_differs_anywhere_is_another_object(one, other):
    assert one is not other
    assert one != other


def test_nothing_is_simplified_when_a_node_is_built():
    assert Add((ONE,)).terms == (ONE,)
    assert Mul((ONE, nodes.ZERO)).factors == (ONE, nodes.ZERO)
    assert Mul(()).factors == ()


@pytest.mark.parametrize(
    "remake",
    [
        copy.copy,
        copy.deepcopy,
        lambda value: pickle.loads(pickle.dumps(value)),
        lambda value: pickle.loads(pickle.dumps(value, protocol=0)),
    ],
)
def test_copies_are_the_same_object(remake):
    system = make_system()
    assert remake(system) is system
    assert remake(system.equations[0].value) is system.equations[0].value


def test_a_pickle_makes_what_is_gone_anew():
    stored = pickle.dumps(Tensor("only_here", (Size("only_here_too"),), below=Number(Fraction(3))))
    gc.collect()
    back = pickle.loads(stored)
    assert back is Tensor("only_here", (Size("only_here_too"),), below=Number(Fraction(3)))


def test_fields_cannot_be_set():
    index = Index("i", Size("S"))
    with pytest.raises(FrozenInstanceError):
        index.name = "j"
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        index.note = "no place for it"
    assert index.name == "i"


def test_building_again_leaves_the_first_as_it_was():
    one = Number(Fraction(1))
    assert Number(1) is one
    assert type(one.value) is Fraction
    assert type(Number(10**40).value) is Fraction


def test_unused_nodes_are_let_go():
    before = len(nodes._interned)
    made = [Size(f"passing_{k}") for k in range(100)]
    assert len(nodes._interned) >= before + len(made)
    del made
    gc.collect()
    assert len(nodes._interned) <= before


def test_shared_subtrees_cost_nothing_to_compare():
    def double(times):
        here = Size("S")
        for _ in range(times):
            here = Add((here, here))
        return here

    assert double(500) is double(500)
    assert len({double(500), double(500), double(499)}) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Index("i"),
        lambda: Index("i", Size("S"), 3),
        lambda: Index("i", Size("S"), name="j"),
        lambda: Index("i", Size("S"), axis=0),
        Number,
    ],
)
def test_wrong_fields_are_refused(make):
    with pytest.raises(TypeError, match="takes"):
        make()


def test_every_node_matches_by_its_fields():
    classes = [value for value in vars(nodes).values() if hasattr(value, "__dataclass_fields__")]
    assert len(classes) > 20
    for kind in classes:
        assert kind.__match_args__ == tuple(field.name for field in fields(kind))
        assert kind.__doc__
    match make_system().equations[0]:
        case Equation(Access(Tensor(name), (Index(index),)), Add((Reduce(kind), Along()))):
            assert (name, index, kind) == ("y", "i", "sum")
        case _:
            pytest.fail("the pattern must fit")
