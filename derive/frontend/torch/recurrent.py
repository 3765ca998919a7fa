"""The recurrent modules of torch as text of the notation, since their kernels are no Python code.

    h[b,t,e] = tanh(sum[d](weight_ih_l0[e,d] * input[b,t,d]) + .. h[b,t - 1,k] ..)

The arguments are the input and, if declared, the initial states. A layer returns its outputs at
all steps and the final states; a cell returns the next states. Source: the equations in the
documentation of torch.nn.
"""

from typing import Any

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.text import to_declaration, to_text
from derive.ir.walk import find_sizes

# Two tables for each kind. The gates, in the order of their rows in the weights: `a0` is the
# linear map of the input at the first gate's rows, `b0` that of the previous state. Then the next
# states, computed from the gates and from the previous states `old_h`, `old_c`.
CELLS = {
    "RNN": ({}, {"h": "{act}({a0} + {b0})"}),
    "GRU": (
        {
            "r": "sigmoid({a0} + {b0})",
            "z": "sigmoid({a1} + {b1})",
            "n": "tanh({a2} + {r} * ({b2}))",
        },
        {"h": "(1 - {z}) * {n} + {z} * {old_h}"},
    ),
    "LSTM": (
        {
            "i": "sigmoid({a0} + {b0})",
            "f": "sigmoid({a1} + {b1})",
            "g": "tanh({a2} + {b2})",
            "o": "sigmoid({a3} + {b3})",
        },
        {"c": "{f} * {old_c} + {i} * {g}", "h": "{o} * tanh({c})"},
    ),
}
_COUNTS = {"RNN": 1, "GRU": 3, "LSTM": 4}


def is_recurrent(module: Any) -> bool:
    """Whether the module is one of torch's own recurrent modules or cells."""
    from torch import nn

    return type(module) in {nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell}


def write_recurrent(module: Any, declared: ir.System) -> str:
    """Return the formula of a recurrent module; its parameters are arguments under their names."""
    return _Writer(module, declared).write_formula()


class _Writer:
    """The namespace and the lines of one module's formula."""

    def __init__(self, module: Any, declared: ir.System) -> None:
        self.module = module
        self.kind = type(module).__name__.removesuffix("Cell")
        self.is_cell = type(module).__name__.endswith("Cell")
        self.states = ("h", "c") if self.kind == "LSTM" else ("h",)
        self.ways = ("", "_reverse") if getattr(module, "bidirectional", False) else ("",)
        self.input, *self.begin = declared.tensors
        rank = len(self.input.shape)
        does, advice = "", ""
        if getattr(module, "proj_size", 0):
            does, advice = "projects its values", "leave proj_size out, and multiply behind it"
        elif getattr(module, "dropout", 0) and module.training and module.num_layers > 1:
            does, advice = "leaves out values at random", "lift it behind .eval()"
        elif rank not in ((1, 2) if self.is_cell else (2, 3)) or (
            len(self.begin) not in (0, len(self.states))
        ):
            takes = "input[B, D]" if self.is_cell else "input[B, T, D]"
            more = "; ".join(f"{state}[..]" for state in self.states)
            does = f"takes {takes}, and {more} that it begins with or none"
            advice = "declare these"
        if does:
            raise refuse("lift-module", f"{type(module).__name__} {does}", help=advice)
        self.taken = {*find_sizes(declared), *(each.name for each in declared.tensors)}
        # extent of the last axis of a state
        self.size = (
            to_text(self.begin[0].shape[-1]) if self.begin else self.fresh_name("H", "Hidden")
        )
        self.taken |= {name for name, _ in module.named_parameters()} | {self.size}
        self.lines: list[str] = []
        has_batch = rank == (2 if self.is_cell else 3)
        self.batch = [self.fresh_name("b")] if has_batch else []
        self.t = "" if self.is_cell else self.fresh_name("t")
        self.e, self.k = self.fresh_name("e"), self.fresh_name("k")
        self.first = not has_batch or getattr(module, "batch_first", False)
        turn = int(has_batch and self.first)
        self.length = "" if self.is_cell else to_text(self.input.shape[turn])

    def fresh_name(self, *wishes: str) -> str:
        """Return the first free wish, or the first wish with a number."""
        numbered = (f"{wishes[0]}{k}" for k in range(2, len(self.taken) + 3))
        found = next(name for name in (*wishes, *numbered) if name not in self.taken)
        self.taken.add(found)
        return found

    def at(self, t: str, *more: str) -> str:
        """Return a state's subscript: batch and step in the order of the input, then `more`."""
        turn = [t] if t else []
        return ",".join([*(self.batch + turn if self.first else turn + self.batch), *more])

    def rows(self, gate: int) -> str:
        """Return the row of a gate in the weights."""
        return f"{gate}*{self.size} + {self.e}".removeprefix("1*") if gate else self.e

    def write_formula(self) -> str:
        count, size = _COUNTS[self.kind], self.size
        declared = [to_declaration(entry) for entry in (self.input, *self.begin)]
        rows = f"{count}*{size}" if count > 1 else size
        width = to_text(self.input.shape[-1])
        below: str = self.input.name
        last: list[dict[str, str]] = []
        for layer in range(1 if self.is_cell else self.module.num_layers):
            ends = ["" if self.is_cell else f"_l{layer}{way}" for way in self.ways]
            for end in ends:
                shapes = {"weight_ih": f"{rows}, {width}", "weight_hh": f"{rows}, {size}"}
                shapes |= {"bias_ih": rows, "bias_hh": rows} if self.module.bias else {}
                declared += [f"{name}{end}[{shape}]" for name, shape in shapes.items()]
            read = self.fresh_name(f"d{layer}" if layer else "d")
            made = [self.write_layer(below, read, end, len(last) + k) for k, end in enumerate(ends)]
            last += made
            below, width = made[0]["h"], size
            if self.ways[1:]:
                below, width = self.fresh_name(f"both_l{layer}"), f"2*{size}"
                for place, each in zip((self.e, f"{size} + {self.e}"), made, strict=True):
                    value = f"{each['h']}[{self.at(self.t, self.e)}]"
                    self.lines.append(f"{below}[{self.at(self.t, place)}] = {value}")
        results = [below]
        if self.is_cell:
            results = [last[0][state] for state in self.states]
        for state in () if self.is_cell else self.states:
            results.append(self.fresh_name(f"{state}_n"))
            for number, names in enumerate(last):
                turn = "0" if number % len(self.ways) else f"{self.length} - 1"
                left = ",".join([str(number), *self.batch, self.e])
                value = f"{names[state]}[{self.at(turn, self.e)}]"
                self.lines.append(f"{results[-1]}[{left}] = {value}")
        declared.append(f"index {self.e}, {self.k} < {size}")
        return "\n".join(["; ".join(declared), *self.lines, f"return {', '.join(results)}"])

    def write_layer(self, below: str, read: str, end: str, number: int) -> dict[str, str]:
        """Append the equations of one layer in one direction; return the names of its states."""
        t, here = self.t, self.at(self.t, self.e)
        mark = "_new" if self.is_cell else ""
        names = {state: self.fresh_name(f"{state}{end}{mark}") for state in self.states}
        has_bias = bool(self.module.bias)

        def before(state: str, place: str) -> str:
            """Return a state at the previous step, or the initial state at the first step."""
            start = "0"
            if self.begin:
                where = [*([] if self.is_cell else [str(number)]), *self.batch, place]
                start = f"{self.begin[self.states.index(state)].name}[{','.join(where)}]"
            if self.is_cell:
                return start
            if end.endswith("_reverse"):
                later = f"{names[state]}[{self.at(f'{t} + 1', place)}]"
                return f"where({t} + 1 < {self.length}, {later}, {start})"
            return f"where({t} < 1, {start}, {names[state]}[{self.at(f'{t} - 1', place)}])"

        parts = {"act": getattr(self.module, "nonlinearity", "")}
        for gate in range(_COUNTS[self.kind]):
            own = self.rows(gate)
            ahead = f"sum[{read}](weight_ih{end}[{own},{read}] * {below}[{self.at(t, read)}])"
            behind = f"sum[{self.k}](weight_hh{end}[{own},{self.k}] * {before('h', self.k)})"
            behind = "" if self.is_cell and not self.begin else behind
            biases = [f"bias_{word}{end}[{own}]" if has_bias else "" for word in ("ih", "hh")]
            parts[f"a{gate}"] = " + ".join(filter(None, (ahead, biases[0])))
            parts[f"b{gate}"] = " + ".join(filter(None, (behind, biases[1]))) or "0"
        gates, values = CELLS[self.kind]
        made = {gate: self.fresh_name(f"{gate}{end}") for gate in gates} | names
        parts |= {f"old_{state}": before(state, self.e) for state in self.states}
        parts |= {name: f"{called}[{here}]" for name, called in made.items()}
        for name, value in {**gates, **values}.items():
            self.lines.append(f"{parts[name]} = {value.format(**parts)}")
        return names
