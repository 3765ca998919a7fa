"""The steps of a plan as a drawing: arguments above, results below, a line to each that reads it.

Every tensor stands a layer below those it is made of. Within a layer tensors are ordered, and then
placed, by the mean of their neighbours, which leaves few lines crossing.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from derive.backend.to_data import to_compact
from derive.ir import nodes as ir
from derive.plan import ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.backend.to_data import Data
    from derive.plan.plan import Plan

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
    heat: float = 0  # its share of the operations of the step that takes most
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


def to_svg(plan: Plan, data: Data) -> str:
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
    return _draw(rows, boxes, links)


def _find_boxes(plan: Plan, data: Data, layers: Mapping[str, int]) -> Iterator[tuple[str, _Box]]:
    """The arguments that are read, then the steps."""
    for entry in plan.system.inputs:
        if entry.name in layers:
            shape = entry.shape if isinstance(entry, ir.Tensor) else ()
            text = f"[{', '.join(map(to_compact, shape))}]"
            yield entry.name, _Box((entry.name, text), "argument", f"{entry.name}{text}")
    looped = {
        step.name for tile in plan.tiles for step in plan.steps[tile.first : tile.last + 1]
    } | {step.name for scan in plan.scans for step in plan.steps[scan.first : scan.last + 1]}
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
        _place(row, boxes, dict.fromkeys(row, 0.0))
    for sweep in range(2 * _SWEEPS):
        near = below if sweep % 2 else above
        for row in rows if near is above else reversed(rows):
            wanted = {key: _mean([boxes[n].x for n in near[key]], boxes[key].x) for key in row}
            if sweep < _SWEEPS:  # afterwards boxes only move
                row.sort(key=lambda key: wanted[key])
            else:
                both = {key: [boxes[n].x for n in (*above[key], *below[key])] for key in row}
                wanted = {key: _mean(both[key], boxes[key].x) for key in row}
            _place(row, boxes, wanted)
    y = float(_PAD)
    for row in rows:
        height = max(len(boxes[key].lines) for key in row) * _LINE + _PAD
        for box in (boxes[key] for key in row):
            box.height = len(box.lines) * _LINE + _PAD if box.lines else height
            box.y = y + (height - box.height) / 2
        y += height + _DROP


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place(row: Sequence[_Key], boxes: Mapping[_Key, _Box], wanted: Mapping[_Key, float]) -> None:
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


def _draw(
    rows: Sequence[Sequence[_Key]],
    boxes: Mapping[_Key, _Box],
    links: Sequence[tuple[_Key, _Key]],
) -> str:
    left = min(box.x - box.width / 2 for box in boxes.values()) - _PAD
    width = max(box.x + box.width / 2 for box in boxes.values()) + _PAD - left
    height = max(box.y + box.height for row in rows for box in (boxes[k] for k in row)) + _PAD
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
