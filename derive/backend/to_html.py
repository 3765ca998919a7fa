"""Formulas, plans, code and verdicts as HTML: a part for a notebook, or a page of its own.

    to_page(title, *parts)    the whole page: no script, and nothing is read from anywhere
    to_part(*parts)           the same for a notebook's cell
    to_mathml(latex)          what to_latex writes, as MathML, which browsers set by themselves
    to_svg(plan, data)        the steps as a drawing: a line to each tensor that reads another

Pages and parts have the style sheet beside this module, whose rules hold within the class `derive`
alone. In the drawing every tensor stands a layer below those it is made of. Within a layer tensors
are ordered, and then placed, by the mean of their neighbours, which leaves few lines crossing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from html.entities import html5
from importlib.resources import files
from itertools import pairwise

from derive.backend import to_data, to_latex
from derive.ir import nodes as ir
from derive.ir.pieces import to_compact
from derive.ir.text import to_lines
from derive.plan import ops
from derive.plan.plan import Entry, Plan

_CHARACTER = 7.3  # the width of one, at 12 pixels and one width for all
_PAD, _GAP, _DROP = 10, 18, 46  # inside a box, between boxes, between layers
_LINE, _LONGEST = 16, 34  # the height of a line of text, and its characters
_SWEEPS = 8
_NAME = ' class="name"'


@dataclass
class _Box:
    """A tensor, or where a line crosses a layer on its way (`lines` is empty there)."""

    lines: tuple[str, ...] = ()
    kind: str = "line"
    title: str = ""
    heat: float = 0  # operations, relative to the step with the most
    x: float = 0  # the middle
    y: float = 0  # the upper edge
    height: float = 0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PAD if self.lines else 0


_Key = tuple[str, int]  # a tensor and a layer: its own, or one that a line of it crosses


def find_reads(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The arguments and earlier steps that each step reads, blocks and places of them included."""
    parts = {name: op for tile in plan.tiles for name, op in tile.sliced}
    parts |= {name: op for scan in plan.scans for name, op, _ in scan.sliced}
    known = {entry.name for entry in plan.system.inputs}
    reads = {}
    for step in plan.steps:
        found = _find_sources(step.op, parts)
        reads[step.name] = tuple(dict.fromkeys(name for name in found if name in known))
        known.add(step.name)
    return reads


def _find_sources(op: ops.Op, parts: Mapping[str, ops.Op]) -> Iterator[str]:
    if isinstance(op, ops.Source):
        if op.name in parts:
            yield from _find_sources(parts[op.name], parts)
        else:
            yield op.name
    for each in ops.args_of(op):
        yield from _find_sources(each, parts)


def to_svg(plan: Plan, data: to_data.Data) -> str:
    """The drawing; `data` is the plan's."""
    reads = find_reads(plan)
    layers: dict[str, int] = {}
    for name, sources in reads.items():
        layers[name] = 1 + max((layers.get(source, 0) for source in sources), default=0)
    readers = {s: [n for n in reads if s in reads[n]] for names in reads.values() for s in names}
    for name, found in readers.items():  # an argument stands just above who reads it first
        layers.setdefault(name, min(layers[reader] for reader in found) - 1)
    boxes = {(name, layers[name]): box for name, box in _find_boxes(plan, data, layers)}
    links: list[tuple[_Key, _Key]] = []
    for source, found in readers.items():
        last = max(layers[reader] for reader in found)
        for layer in range(layers[source] + 1, last):
            boxes.setdefault((source, layer), _Box())
        links += pairwise((source, layer) for layer in range(layers[source], last))
        links += [((source, layers[reader] - 1), (reader, layers[reader])) for reader in found]
    rows = [[key for key in boxes if key[1] == layer] for layer in range(1 + max(layers.values()))]
    rows = [row for row in rows if row]  # steps that read nothing have nothing above them
    _arrange(rows, boxes, links)
    return _draw_tree(boxes, links)


def _find_boxes(
    plan: Plan, data: to_data.Data, layers: Mapping[str, int]
) -> Iterator[tuple[str, _Box]]:
    """The arguments that are read, then the steps."""
    for entry in plan.system.inputs:
        if entry.name in layers:
            shape = entry.shape if isinstance(entry, ir.Tensor) else ()
            text = f"[{to_compact(*shape)}]"
            yield entry.name, _Box((entry.name, text), "argument", f"{entry.name}{text}")
    loops = [plan.steps[tile.first : tile.last + 1] for tile in plan.tiles]
    loops += [plan.steps[scan.first : scan.last + 1] for scan in plan.scans]
    looped = {step.name for steps in loops for step in steps}
    results = {name for op in plan.results for name in _find_sources(op, {})}
    most = max((step["flops"] for step in data["steps"]), default=0) or 1
    for step in data["steps"]:
        value = step["equation"].partition(" = ")[2]
        text = ", ".join(step["einsums"]) or value
        text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        lines = (step["name"], text, f"[{', '.join(step['shape'])}]")
        kind = "step" + " looped" * (step["name"] in looped) + " result" * (step["name"] in results)
        yield step["name"], _Box(lines, kind, step["equation"], step["flops"] / most)


def _arrange(
    rows: Sequence[list[_Key]], boxes: Mapping[_Key, _Box], links: Sequence[tuple[_Key, _Key]]
) -> None:
    """Order the rows, and give each box its place."""
    above: dict[_Key, list[_Key]] = {key: [] for key in boxes}
    below: dict[_Key, list[_Key]] = {key: [] for key in boxes}
    for one, other in links:
        below[one].append(other)
        above[other].append(one)
    for row in rows:
        _place_nodes(row, boxes, dict.fromkeys(row, 0.0))
    for sweep in range(2 * _SWEEPS):
        near = below if sweep % 2 else above
        for row in rows if near is above else reversed(rows):
            wanted = {key: _mean([boxes[n].x for n in near[key]], boxes[key].x) for key in row}
            if sweep < _SWEEPS:  # afterwards boxes only move
                row.sort(key=lambda key: wanted[key])
            else:
                both = {key: [boxes[n].x for n in (*above[key], *below[key])] for key in row}
                wanted = {key: _mean(both[key], boxes[key].x) for key in row}
            _place_nodes(row, boxes, wanted)
    y = float(_PAD)
    for row in rows:
        height = max(len(boxes[key].lines) for key in row) * _LINE + _PAD
        for box in (boxes[key] for key in row):
            box.height = len(box.lines) * _LINE + _PAD if box.lines else height
            box.y = y + (height - box.height) / 2
        y += height + _DROP


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place_nodes(
    row: Sequence[_Key], boxes: Mapping[_Key, _Box], wanted: Mapping[_Key, float]
) -> None:
    """As near to the wanted places as order and widths allow; those that clash share a mean."""
    offsets, end = [], 0.0
    for key in row:
        half = boxes[key].width / 2
        offsets.append(end + half)
        end += 2 * half + _GAP
    groups: list[list[float]] = []
    for key, offset in zip(row, offsets, strict=True):
        groups.append([wanted[key] - offset])
        while len(groups) > 1 and _mean(groups[-2], 0) > _mean(groups[-1], 0):
            last = groups.pop()
            groups[-1] += last
    shifts = [_mean(group, 0) for group in groups for _ in group]
    for key, offset, shift in zip(row, offsets, shifts, strict=True):
        boxes[key].x = shift + offset


def _draw_tree(boxes: Mapping[_Key, _Box], links: Sequence[tuple[_Key, _Key]]) -> str:
    """The drawing of boxes that have their places, and of the lines between them."""
    left = min(box.x - box.width / 2 for box in boxes.values()) - _PAD
    width = max(box.x + box.width / 2 for box in boxes.values()) + _PAD - left
    height = max(box.y + box.height for box in boxes.values()) + _PAD
    parts = [
        f'<svg class="tree" role="img" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{left:.0f} 0 {width:.0f} {height:.0f}">',
        "<title>contraction tree</title>",
    ]
    for one, other in links:
        start, end = boxes[one], boxes[other]
        y, z = start.y + start.height, end.y
        bend = (z - y) / 2
        top = y if start.lines else start.y  # a line goes straight down beside other tensors
        path = (
            f"M{start.x:.1f} {top:.1f}V{y:.1f}C{start.x:.1f} {y + bend:.1f} "
            f"{end.x:.1f} {z - bend:.1f} {end.x:.1f} {z:.1f}"
        )
        parts.append(f'<path d="{path}"/>')
    for box in boxes.values():
        if not box.lines:
            continue
        texts = "".join(
            f'<text x="{box.x:.1f}" y="{box.y + _PAD / 2 + _LINE * (k + 0.75):.1f}"'
            f"{_NAME if not k else ''}>{escape(line)}</text>"
            for k, line in enumerate(box.lines)
        )
        corner = 4 if box.kind != "argument" else box.height / 2
        parts.append(
            f'<g class="{box.kind}"><title>{escape(box.title)}</title>'
            f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="{corner:g}" style="--heat:{box.heat:.3f}"/>{texts}</g>'
        )
    return "\n".join([*parts, "</svg>"])


def to_page(title: str, *parts: str) -> str:
    """A page of its own."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        '</title>\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<style>{_read_style()}</style></head>\n'
        f'<body><main class="derive">\n{_join_parts(parts)}\n</main></body></html>\n'
    )


def to_part(*parts: str) -> str:
    """The page that a notebook shows below a cell."""
    return f'<div class="derive"><style>{_read_style()}</style>\n{_join_parts(parts)}\n</div>'


def _join_parts(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


@cache
def _read_style() -> str:
    return files("derive.backend").joinpath("page.css").read_text(encoding="utf-8")


def write_built(  # noqa: PLR0913 - what a file is made of, and where it is from
    system: ir.System,
    plan: Plan,
    source: str,
    *,
    title: str = "",
    small: Sequence[str] = (),
    notes: Sequence[str] = (),
    laws: Sequence[str] = (),
    entries: Sequence[Entry] = (),
) -> tuple[str, ...]:
    """The sections about a formula and its file; `entries` are those of its derivation."""
    derivation = ["<h2>Derivation</h2>"] if entries else []
    for number, entry in enumerate(entries, 1):
        law = f"<small>{escape(entry.law)}</small>"
        derivation.append(f"<h3>{number}. {escape(entry.name)} {law}</h3>")
        derivation.append(write_equations(to_latex.END.join(to_latex.find_rows(entry))))
    typed = escape("\n".join(to_lines(system)))
    return (
        write_title(system.name, title, *small),
        f"{write_equations(to_latex.to_rows(system))}\n<details><summary>in the notation</summary>"
        f"<pre>{typed}</pre></details>{_write_list(notes)}",
        write_plan(system, plan, laws),
        "\n".join(derivation),
        f'<h2>Code</h2>\n<pre class="wide code">{colour_code(source)}</pre>',
    )


def write_title(name: str, title: str, *lines: str) -> str:
    """The heading, and the small print below it."""
    more = f" <small>{escape(title)}</small>" if title else ""
    below = "".join(f'<p class="source">{escape(line)}</p>' for line in lines if line)
    return f"<h1>{escape(name)}{more}</h1>{below}"


def write_equations(latex: str) -> str:
    """The contents of a LaTeX `aligned`, as MathML."""
    math = to_mathml(rf"\begin{{aligned}}{latex}\end{{aligned}}")
    return f'<div class="wide"><math display="block">{math}</math></div>'


def write_plan(system: ir.System, plan: Plan, notes: Iterable[str]) -> str:
    """The indices, the steps, what they cost, and the drawing of them."""
    data = to_data.to_plan_data(plan)
    most = max((step["flops"] for step in data["steps"]), default=0) or 1
    steps = []
    for step, (name, einsums, shape, flops, equation) in zip(
        data["steps"], to_data.to_step_rows(data), strict=True
    ):
        share = step["flops"] / most
        cells = [f"<td><b>{escape(name)}</b></td>", _write_cell(einsums), _write_cell(shape)]
        bar = f'<td class="number" style="--share:{share:.3f}">{flops}</td>'
        steps.append(f"<tr>{''.join(cells)}{bar}{_write_cell(equation)}</tr>")
    roles = [
        f"<tr>{''.join(map(_write_cell, row))}</tr>"
        for row in to_data.to_role_rows(to_data.to_roles_data(system, plan.sizes))
    ]
    at = " ".join(f"{name}={number}" for name, number in plan.sizes.items())
    loops = [f"{tile.index.name} in blocks" for tile in plan.tiles]
    loops += [f"{scan.index.name} in turn" for scan in plan.scans]
    says = "The stronger the colour of a step, the more operations it takes."
    says += f" Dashed steps run in a loop over {', '.join(loops)}." if loops else ""
    drawing = to_svg(plan, data) if plan.steps else ""
    return "\n".join(
        [
            "<h2>Indices</h2>",
            _write_table(to_data.ROLE_HEADS, roles),
            f"<h2>Steps{f' <small>at {escape(at)}</small>' if at else ''}</h2>",
            _write_table(to_data.STEP_HEADS, steps),
            _write_pairs(to_data.to_cost_pairs(data, plan)),
            _write_list(f"by {note}" for note in notes),
            "<h2>Contraction tree</h2>",
            f'<figure><div class="wide">{drawing}</div><figcaption>{escape(says)}</figcaption>'
            "</figure>",
        ]
    )


def colour_code(source: str) -> str:
    """The text with a class around each token; no token goes over the end of a line."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return str(highlight(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


_WHOLE = 60  # lines of a file that is shown though nothing is said of any
_BEFORE, _AFTER = 6, 3  # lines of code around those of which something is said
_WORDS = {True: "same", False: "different", None: "unknown"}


def write_verdict(
    data: to_data.Data, source: str, remarks: Mapping[int, str], places: Sequence[str] = ()
) -> str:
    """A verdict's data, the annotated lines of the code, and the edit.

    `places` has the line of a notebook's cell for each line of the text.
    """
    answer = _WORDS[data["same"]]
    grade = "" if data["grade"] in {"different", "unknown"} else f", {data['grade']}"
    parts = [
        f'<h1><span class="answer {answer}">{answer}{grade}</span> '
        f"<small>{escape(data['code'])} against {escape(data['formula'])}</small></h1>"
    ]
    if data["difference"]:
        parts.append(f'<p class="difference">{escape(data["difference"])}</p>')
    parts.append(_write_list(data["reasons"]))
    if remarks or data["corrected"] or source.count("\n") < _WHOLE:
        parts.append(_write_lines(data, source, remarks, places))
    if data["edit"]:
        where = f"{escape(data['place'])}: " if data["place"] else ""
        parts.append(f'<p class="edit"><b>edit</b> {where}{escape(data["edit"])}</p>')
    at = [" ".join(f"{k}={n}" for k, n in sizes.items()) for sizes in data["sizes"]]
    pairs = [("with", ", ".join(data["bindings"])), ("at", "; ".join(filter(None, at)))]
    parts.append(_write_pairs([pair for pair in pairs if pair[1]]))
    for finding in data["findings"]:
        facts = "".join(f"<br>{escape(fact)}" for fact in finding["facts"])
        help = f"<br><i>help: {escape(finding['help'])}</i>" if finding["help"] else ""
        says = f"<b>{escape(finding['code'])}</b> {escape(finding['says'])}"
        parts.append(f'<p class="finding">{says}{facts}{help}</p>')
    return "\n".join(parts)


def _write_lines(
    data: to_data.Data, source: str, remarks: Mapping[int, str], places: Sequence[str]
) -> str:
    """The lines of which something is said, those around them, and below each the corrected one."""
    lines = colour_code(source).splitlines()
    corrected = {each["line"]: each["text"] for each in data["corrected"]}
    told = [number for number in {**remarks, **corrected} if 0 < number <= len(lines)]
    first = max(1, min(told, default=1) - _BEFORE)
    last = min(len(lines), max(told, default=len(lines)) + _AFTER)
    is_new = [line for line in corrected if line == data["line"]] or list(corrected)
    rows = []
    for number in range(first, last + 1):
        at = places[number - 1] if number <= len(places) else str(number)
        is_bad = data["same"] is False and number in {data["line"], *is_new}
        mark = ' class="bad"' if is_bad else ""
        said = f'<td class="remark">{escape(remarks.get(number, ""))}</td>'
        cell = f'<td class="number">{escape(at)}</td><td class="code">{lines[number - 1]}</td>'
        rows.append(f"<tr{mark}>{cell}{said}</tr>")
        if number in corrected:
            text = colour_code(corrected[number]).rstrip("\n")
            cell = f'<td class="number">+</td><td class="code">{text}</td>'
            rows.append(
                f'<tr class="good">{cell}<td class="remark">so that the code reads</td></tr>'
            )
    return (
        f'<div class="wide"><table class="lines"><tbody>{_join_parts(rows)}</tbody></table></div>'
    )


def write_gallery(families: Mapping[str, Sequence[tuple[str, str, str, ir.System]]]) -> str:
    """The formulas of a library by family: name, title, source, equations."""
    marks = "".join(f'<a href="#{escape(name)}">{_to_words(name)}</a> ' for name in families)
    parts = [f"<nav>{marks}</nav>"]
    for family, formulas in families.items():
        parts.append(f'<h2 id="{escape(family)}">{_to_words(family)}</h2>\n<div class="cards">')
        for name, title, source, system in formulas:
            small = f'<p class="source">{escape(source)}</p>' if source else ""
            declared = next(iter(to_lines(system)), "")
            parts.append(
                f'<article id="{escape(family)}-{escape(name)}"><h3>{escape(name)}</h3>'
                f"<p>{escape(title)}</p>{small}{write_equations(to_latex.to_rows(system))}"
                f"<pre>{escape(declared)}</pre></article>"
            )
        parts.append("</div>")
    return "\n".join(parts)


def _to_words(name: str) -> str:
    return escape(name.replace("_", " "))


def _write_cell(text: str) -> str:
    return f"<td>{'<br>'.join(map(escape, text.splitlines()))}</td>"


def _write_table(heads: Iterable[str], rows: Iterable[str]) -> str:
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    table = f"<thead><tr>{cells}</tr></thead>\n<tbody>{_join_parts(rows)}</tbody>"
    return f'<div class="wide"><table>{table}</table></div>'


def _write_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(one)}</dt><dd>{escape(other)}</dd>" for one, other in pairs)
    return f"<dl>{rows}</dl>" if rows else ""


def _write_list(lines: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{rows}</ul>" if rows else ""


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_NAMED = {"infty": "∞", "neg": "¬", "neq": "≠", "to": "→", "cdot": "·"}  # html5 has others of these
_BIG = {r"\sum": "∑", r"\prod": "∏", r"\max": "max", r"\min": "min"}
_THIN = '<mspace width="0.17em"></mspace>'  # between factors, and where LaTeX has its own
_WORDED = (r"\text", r"\texttt", r"\mathrm", r"\operatorname")


def to_mathml(latex: str) -> str:
    """The LaTeX of to_latex as MathML; a command that it never writes stays as it is."""
    return _read_row(_TOKEN.findall(latex)[::-1], "")


def _read_row(tokens: list[str], end: str) -> str:
    """The nodes before a token, which is consumed too; & matches any end of a cell."""
    pieces: list[str] = []
    is_cell = end == "&"
    while tokens and tokens[-1] != end and not (is_cell and tokens[-1] in {r"\\", r"\end"}):
        token = tokens.pop()
        if token in "_^" and pieces:
            base = pieces.pop()
            is_under = token == "_" and "movablelimits" in base and "<m" not in base[3:-5]
            tag = "munder" if is_under else {"_": "msub", "^": "msup"}[token]
            pieces.append(f"<{tag}>{base}{_read_argument(tokens)}</{tag}>")
        elif not token.isspace():
            pieces.append(_read_atom(token, tokens))
        elif pieces and tokens and tokens[-1] != r"\left" and not pieces[-1].startswith("<mo"):
            pieces.append(_THIN)
    if tokens and not is_cell:
        tokens.pop()
    return re.sub(rf"{_THIN}(?=<mo|$)", "", "".join(pieces))


def _read_argument(tokens: list[str]) -> str:
    while tokens[-1].isspace():
        tokens.pop()
    return _read_atom(tokens.pop(), tokens)


def _read_atom(token: str, tokens: list[str]) -> str:
    if token == "{":
        return f"<mrow>{_read_row(tokens, '}')}</mrow>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    if token in _WORDED:
        tag = "mtext" if token.startswith(r"\text") else "mi"
        return f"<{tag}>{escape(_read_words(tokens))}</{tag}>".replace(" ", "\u00a0")
    if token == r"\frac":
        return f"<mfrac>{_read_argument(tokens)}{_read_argument(tokens)}</mfrac>"
    if token == r"\sqrt":
        return f"<msqrt>{_read_argument(tokens)}</msqrt>"
    if token == r"\left":
        start = _read_argument(tokens)
        inside = _read_row(tokens, r"\right")
        return f"<mrow>{start}{inside}{_read_argument(tokens)}</mrow>"
    if token == r"\begin":
        return _read_environment(tokens)
    if token in _BIG:
        return f'<mo movablelimits="true">{_BIG[token]}</mo>'
    if token == r"\,":
        return _THIN
    if token == r"\bmod":
        return '<mo lspace="0.3em" rspace="0.3em">mod</mo>'
    if not token.startswith("\\"):
        return f"<mo>{escape('−' if token == '-' else token)}</mo>"
    name = token[1:]
    sign = _NAMED.get(name) or html5.get(f"{name};", "")
    if name in to_latex.GREEK or not sign:
        return f"<mi>{sign or escape(name)}</mi>"  # \exp, \log, ..
    return f"<mo>{sign}</mo>"


def _read_words(tokens: list[str]) -> str:
    """The text in braces, as it was before it was escaped."""
    depth, taken = 0, []
    while True:
        token = tokens.pop()
        depth += (token == "{") - (token == "}")
        taken.append(token)
        if not depth:
            break
    text = "".join(taken)[1:-1]
    for sign, written in to_latex.ESCAPES.items():
        text = text.replace(written, sign) if sign != "\\" else text
    return text.replace(to_latex.ESCAPES["\\"], "\\")


def _read_environment(tokens: list[str]) -> str:
    """The rows of `aligned`, or of `cases`: each a value and its condition."""
    name = _read_words(tokens)
    rows = [[""]]
    while tokens:
        rows[-1][-1] += _read_row(tokens, "&")
        match tokens.pop():
            case "&":
                rows[-1].append("")
            case r"\\":
                rows.append([""])
            case _:
                break
    _read_words(tokens)
    cells = ("".join(f"<mtd>{cell}</mtd>" for cell in row) for row in rows)
    table = "".join(f"<mtr>{row}</mtr>\n" for row in cells)
    if name == "cases":
        return f'<mrow><mo>{{</mo><mtable class="cases">{table}</mtable></mrow>'
    return f'<mtable displaystyle="true" class="align">{table}</mtable>'
