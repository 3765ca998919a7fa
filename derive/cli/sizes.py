"""Sizes from the command line: `S=4096,B=2`, whole numbers above 0, `4096` or `4_096`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.errors import Mark, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from derive.errors import DeriveError

_SIZE = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=\s*(?P<number>[0-9]+(?:_[0-9]+)*)\s*")
_LONGEST = 18  # digits of a size


def parse_sizes(text: str) -> dict[str, int]:
    """The sizes in order; DeriveError shows what is no `name=number`."""
    sizes: dict[str, int] = {}
    column = 0
    for part in text.split(",") if text.strip() else ():
        place = (column, column + len(part))
        column = place[1] + 1
        found = _SIZE.fullmatch(part)
        if found is None:
            raise _refuse(text, "sizes-form", f"{part.strip() or 'nothing'} is no size", place)
        name = found["name"]
        if name in sizes:
            raise _refuse(text, "sizes-twice", f"{name} is given twice", place)
        if len(found["number"]) > _LONGEST:
            raise _refuse(text, "sizes-range", f"{name} is too large", place)
        sizes[name] = int(found["number"])
        if sizes[name] < 1:
            raise _refuse(text, "sizes-range", f"{name} has to be 1 or more", place)
    return sizes


def check_sizes(sizes: Mapping[str, int], known: Iterable[str]) -> None:
    """Refuse a size that none of the formulas has."""
    known = list(dict.fromkeys(known))
    strange = [name for name in sizes if name not in known]
    if strange:
        has = f"the sizes are {', '.join(known)}" if known else "there are no sizes"
        raise refuse(
            "size-unknown",
            f"there is no size {strange[0]}",
            facts=[has],
            help="leave it out, or correct its name",
        )


def to_option(sizes: Mapping[str, int]) -> str:
    """The sizes as they are written after `--sizes`."""
    return ",".join(f"{name}={number}" for name, number in sizes.items())


def _refuse(text: str, code: str, says: str, place: tuple[int, int]) -> DeriveError:
    start, end = place
    line = "".join(c if c.isprintable() else " " for c in text)
    advice = "write sizes like S=4096,B=2"
    return refuse(code, says, marks=[Mark(line, start, end)], help=advice)
