"""Nodes are values: interned, immutable, and the same after copying and pickling."""

import copy
import gc
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest

from derive.ir import nodes
from derive.ir import nodes as ir


def make_system():
    """A formula with most kinds of nodes in it."""
    extent = ir.Size("S")
    i, j = ir.Index("i", extent), ir.Index("j", extent)
    x, y = ir.Tensor("x", (extent,), lower=nodes.ZERO), ir.Tensor("y", (extent,))
    body = ir.Mul(
        (
            ir.Access(x, (j,)),
            ir.Where(ir.Compare("<=", j, i), ir.ONE, nodes.ZERO),
            ir.Pow(i, ir.ONE),
        )
    )
    value = ir.Add(
        (ir.Reduce("sum", (j,), ir.TRUE, body), ir.Along("softmax", i, ir.TRUE, ir.Access(x, (i,))))
    )
    inputs = (x, ir.ScalarInput("eps", ir.ONE))
    equation = ir.Equation(ir.Access(y, (i,)), value)
    return ir.System("f", inputs, (ir.SizeInput("W", 2),), (equation,), (y,))


def test_equal_nodes_are_one_object():
    assert make_system() is make_system()
    assert ir.Index("i", ir.Size("S")) is ir.Index(name="i", extent=ir.Size("S"))
    assert ir.Infinity() is ir.Infinity(False) is ir.Infinity(negative=False)
    assert ir.Infinity(True) is ir.MINUS_INFINITY


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ir.Size("i"), nodes.Scalar("i")),
        (ir.Index("i", ir.Size("S")), ir.Index("i", ir.Size("D"))),
        (ir.Add((ir.ONE, ir.TRUE)), ir.Mul((ir.ONE, ir.TRUE))),
        (ir.Add((ir.Size("A"), ir.Size("B"))), ir.Add((ir.Size("B"), ir.Size("A")))),
        (ir.Tensor("x", ()), ir.Tensor("x", (), "bool")),
        (ir.Infinity(), ir.MINUS_INFINITY),
        (ir.Add((ir.Add((ir.ONE, ir.ONE)), ir.ONE)), ir.Add((ir.ONE, ir.ONE, ir.ONE))),
    ],
)
def test_what_differs_anywhere_is_another_object(one, other):
    assert one is not other
    assert one != other


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


def test_a_pickle_recreates_deleted_nodes():
    stored = pickle.dumps(
        ir.Tensor("only_here", (ir.Size("only_here_too"),), below=ir.Number(Fraction(3)))
    )
    gc.collect()
    back = pickle.loads(stored)
    assert back is ir.Tensor("only_here", (ir.Size("only_here_too"),), below=ir.Number(Fraction(3)))


def test_fields_cannot_be_set():
    index = ir.Index("i", ir.Size("S"))
    with pytest.raises(FrozenInstanceError):
        index.name = "j"
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        index.note = "no place for it"
    assert index.name == "i"


def test_unused_nodes_are_let_go():
    before = len(nodes._interned)
    made = [ir.Size(f"passing_{k}") for k in range(100)]
    assert len(nodes._interned) >= before + len(made)
    del made
    gc.collect()
    assert len(nodes._interned) <= before


def test_shared_subtrees_cost_nothing_to_compare():
    def double(times):
        here = ir.Size("S")
        for _ in range(times):
            here = ir.Add((here, here))
        return here

    assert double(500) is double(500)
    assert len({double(500), double(500), double(499)}) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: ir.Index("i"),
        lambda: ir.Index("i", ir.Size("S"), 3),
        lambda: ir.Index("i", ir.Size("S"), name="j"),
        lambda: ir.Index("i", ir.Size("S"), axis=0),
        ir.Number,
    ],
)
def test_wrong_fields_are_refused(make):
    with pytest.raises(TypeError, match="takes"):
        make()
