"""The recurrent modules of torch as text of the notation: what they compute is in no Python code.

    h[b,t,e] = tanh(sum[d](weight_ih_l0[e,d] * input[b,t,d]) + .. h[b,t - 1,k] ..)

A module takes its input and, if they are declared too, the values that it begins with; it returns
the values at all places and the last ones of each layer, a cell the new ones. Source: the equations
in the documentation of torch.nn.
"""

from __future__ import annotations

from typing import Any

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.text import to_declaration, to_text
from derive.ir.walk import find_sizes

GATES = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "h"}  # in the order of their rows in the weights


def is_recurrent(module: Any) -> bool:
    """Is it one of torch's own recurrent modules or cells?"""
    from torch import nn

    kinds = (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
    return type(module) in kinds


def write_recurrent(module: Any, declared: ir.System) -> str:
    """The formula of such a module; its parameters are arguments under their names."""
    return _Writer(module, declared).write()


class _Writer:
    """One module: the names that its formula takes, and its lines."""

    def __init__(self, module: Any, declared: ir.System) -> None:
        self.module = module
        self.kind = type(module).__name__.removesuffix("Cell")
        self.is_cell = type(module).__name__.endswith("Cell")
        inputs = [entry for entry in declared.inputs if isinstance(entry, ir.Tensor)]
        self.input, self.begin = inputs[0], inputs[1:]
        taken = {*find_sizes(declared), *(e.name for e in inputs)}
        names = ("H", "Hidden", *(f"H{k}" for k in range(2, len(taken) + 3)))
        self.size = next(name for name in names if name not in taken)
        if self.begin:  # the last place of a value
            self.size = to_text(self.begin[0].shape[-1])
        self.taken = taken | {name for name, _ in module.named_parameters()} | {self.size}
        states = 2 if self.kind == "LSTM" else 1
        rank = len(self.input.shape)
        if getattr(module, "proj_size", 0):
            self.refuse("projects its values", "leave proj_size out, and multiply behind it")
        if getattr(module, "dropout", 0) and module.training and module.num_layers > 1:
            self.refuse("leaves out values at random", "lift it behind .eval()")
        if rank not in ((1, 2) if self.is_cell else (2, 3)) or len(self.begin) not in (0, states):
            takes = "input[B, D]" if self.is_cell else "input[B, T, D]"
            more = {1: "h[..]", 2: "h[..]; c[..]"}[states]
            self.refuse(f"takes {takes}, and {more} that it begins with or none", "declare these")
        self.lines: list[str] = []
        batch = [self.index("b")] if rank == (2 if self.is_cell else 3) else []
        self.batch = batch
        self.t = "" if self.is_cell else self.index("t")
        self.e, self.k = self.index("e"), self.index("k")
        self.first = not batch or getattr(module, "batch_first", False)
        extent = self.input.shape[(1 if batch and self.first else 0)] if self.t else None
        self.length = to_text(extent) if extent is not None else ""

    def refuse(self, does: str, help: str) -> None:
        says = f"{type(self.module).__name__} {does}"
        raise refuse("lift-module", says, help=help)

    def index(self, wish: str) -> str:
        """The wish, or one like it that is free."""
        tried = (wish, *(f"{wish}{k}" for k in range(2, len(self.taken) + 3)))
        found = next(name for name in tried if name not in self.taken)
        self.taken.add(found)
        return found

    def at(self, t: str, *more: str) -> str:
        """The places of a value: its batch and its turn in the order of the input."""
        turn = [t] if t else []
        return ",".join([*(self.batch + turn if self.first else turn + self.batch), *more])

    def write(self) -> str:
        module = self.module
        declared = [to_declaration(entry) for entry in (self.input, *self.begin)]
        gates = len(GATES[self.kind])
        rows = f"{gates}*{self.size}" if gates > 1 else self.size
        layers = 1 if self.is_cell else module.num_layers
        ways = ("", "_reverse") if getattr(module, "bidirectional", False) else ("",)
        depth = to_text(self.input.shape[-1])
        for layer in range(layers):
            widths = depth if not layer else f"{len(ways)}*{self.size}" if ways[1:] else self.size
            for way in ways:
                end = "" if self.is_cell else f"_l{layer}{way}"
                shapes = {"weight_ih": f"{rows}, {widths}", "weight_hh": f"{rows}, {self.size}"}
                if module.bias:
                    shapes |= {"bias_ih": rows, "bias_hh": rows}
                declared += [f"{name}{end}[{shape}]" for name, shape in shapes.items()]
        below, last = self.input.name, []
        for layer in range(layers):
            read = self.index(f"d{layer}" if layer else "d")
            made = [self.write_layer(below, read, f"_l{layer}{way}", way) for way in ways]
            last += made
            below = made[0][0]
            if ways[1:]:
                below = self.index(f"both_l{layer}")
                for number, (each, *_) in enumerate(made):
                    place = f"{self.size} + {self.e}" if number else self.e
                    self.lines.append(
                        f"{below}[{self.at(self.t, place)}] = {each}[{self.at(self.t, self.e)}]"
                    )
        results = [below]
        if self.is_cell:
            results = list(last[0])
        else:
            for state, name in enumerate(("h_n", "c_n")[: len(last[0])]):
                results.append(self.index(name))
                for number, names in enumerate(last):
                    turn = "0" if number % len(ways) else f"{self.length} - 1"
                    left = ",".join([str(number), *self.batch, self.e])
                    value = f"{names[state]}[{self.at(turn, self.e)}]"
                    self.lines.append(f"{results[-1]}[{left}] = {value}")
        declared.append(f"index {self.e}, {self.k} < {self.size}")
        return "\n".join(["; ".join(declared), *self.lines, f"return {', '.join(results)}"])

    def write_layer(self, below: str, read: str, end: str, way: str) -> tuple[str, ...]:
        """One layer in one way; the names of its values."""
        t, e, k, size = self.t, self.e, self.k, self.size
        end = "" if self.is_cell else end
        states = ("h", "c") if self.kind == "LSTM" else ("h",)
        mark = "_new" if self.is_cell else ""
        names = tuple(self.index(f"{state}{end}{mark}") for state in states)
        number = 0
        if not self.is_cell:
            layer = int(end.removeprefix("_l").removesuffix("_reverse"))
            number = layer * (2 if self.module.bidirectional else 1) + bool(way)

        def before(state: int, place: str) -> str:
            """A value one turn before."""
            if self.begin:
                where = [*([] if self.is_cell else [str(number)]), *self.batch, place]
                start = f"{self.begin[state].name}[{','.join(where)}]"
            else:
                start = "0"
            if self.is_cell:
                return start
            if way:
                later = f"{names[state]}[{self.at(f'{t} + 1', place)}]"
                return f"where({t} + 1 < {self.length}, {later}, {start})"
            return f"where({t} < 1, {start}, {names[state]}[{self.at(f'{t} - 1', place)}])"

        def rows(gate: int) -> str:
            return e if not gate else f"{size} + {e}" if gate == 1 else f"{gate}*{size} + {e}"

        has_bias = bool(self.module.bias)
        here = self.at(t, e)

        def ahead(gate: int) -> str:
            value = (
                f"sum[{read}](weight_ih{end}[{rows(gate)},{read}] * {below}[{self.at(t, read)}])"
            )
            return value + (f" + bias_ih{end}[{rows(gate)}]" if has_bias else "")

        def behind(gate: int) -> str:
            more = f" + bias_hh{end}[{rows(gate)}]" if has_bias else ""
            if self.is_cell and not self.begin:
                return more.removeprefix(" + ") or "0"
            return f"sum[{k}](weight_hh{end}[{rows(gate)},{k}] * {before(0, k)}){more}"

        if self.kind == "RNN":
            function = self.module.nonlinearity
            self.lines.append(f"{names[0]}[{here}] = {function}({ahead(0)} + {behind(0)})")
            return names
        gates = [self.index(f"{gate}{end}") for gate in GATES[self.kind]]
        for number_, gate in enumerate(gates):
            if GATES[self.kind][number_] == "n":
                value = f"tanh({ahead(2)} + {gates[0]}[{here}] * ({behind(2)}))"
            else:
                function = "tanh" if GATES[self.kind][number_] == "g" else "sigmoid"
                value = f"{function}({ahead(number_)} + {behind(number_)})"
            self.lines.append(f"{gate}[{here}] = {value}")
        if self.kind == "GRU":
            _, z, n = (f"{gate}[{here}]" for gate in gates)
            self.lines.append(f"{names[0]}[{here}] = (1 - {z}) * {n} + {z} * {before(0, e)}")
        else:
            i, f, g, o = (f"{gate}[{here}]" for gate in gates)
            self.lines.append(f"{names[1]}[{here}] = {f} * {before(1, e)} + {i} * {g}")
            self.lines.append(f"{names[0]}[{here}] = {o} * tanh({names[1]}[{here}])")
        return names
