"""The equations of coupled cluster over spin orbitals, each term written out by Wick's theorem.

The Hamiltonian f + v is normal ordered, v[p, q, r, s] = <pq||rs>; clusters stand below it and each
is joined to it by at least one line (Kucharski and Bartlett 1986; Shavitt and Bartlett 2009, 10).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations, product
from math import factorial, prod

HOLES, PARTICLES = "ijk", "abc"  # the free indices of a residual
INNER = {"o": "lmno", "v": "defg"}  # indices that are summed
Operator = tuple[str, bool]  # an index, and whether the operator creates in it
Tensor = tuple[str, str]  # a name and its indices
Term = tuple[tuple[str, ...], tuple[Tensor, ...]]  # the summed indices and the factors


def find_terms(level: int, clusters: int) -> dict[Term, Fraction]:
    """Terms of the residual of `level` excitations; `clusters` is the highest rank of a cluster."""
    found: Counter[Term] = Counter()
    for rank in (1, 2):
        for up, down in product(combinations_with_replacement("ov", rank), repeat=2):
            for below in draw_clusters(up.count("o"), down.count("v"), clusters):
                external = sum(n - h for n, h, _ in below) + down.count("o")
                particles = sum(n - p for n, _, p in below) + up.count("v")
                if external == particles == level:
                    for term, weight in write_diagram("".join(up), "".join(down), below, level):
                        found[term] += weight
    return {term: weight for term, weight in found.items() if weight}


def draw_clusters(
    holes: int, particles: int, most: int, least: tuple[int, int, int] = (1, 0, 0)
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield ordered lists of clusters (excitations, holes, particles) that use all the lines."""
    if not holes and not particles:
        yield ()
        return
    for n in range(1, most + 1):
        for h, p in product(range(min(n, holes) + 1), range(min(n, particles) + 1)):
            if h + p and (n, h, p) >= least:
                for rest in draw_clusters(holes - h, particles - p, most, (n, h, p)):
                    yield ((n, h, p), *rest)


def write_diagram(
    up: str, down: str, below: tuple[tuple[int, int, int], ...], level: int
) -> Iterator[tuple[Term, Fraction]]:
    """Yield a term for each assignment of the free indices to the vertices of a diagram."""
    weight = prod(
        (Fraction(1, factorial(h) * factorial(p)) for _, h, p in below), start=Fraction(1)
    )
    weight /= prod(factorial(number) for number in Counter(below).values())
    hole_groups = [down.count("o"), *(n - h for n, h, _ in below)]
    particle_groups = [up.count("v"), *(n - p for n, _, p in below)]
    for own_holes in partition_names(HOLES[:level], hole_groups):
        for own_particles in partition_names(PARTICLES[:level], particle_groups):
            inner = {kind: iter(names) for kind, names in INNER.items()}
            lines = [
                (
                    "".join(next(inner["o"]) for _ in range(h)),
                    "".join(next(inner["v"]) for _ in range(p)),
                )
                for _, h, p in below
            ]
            first = "".join(h for h, _ in lines) + own_particles[0]
            last = own_holes[0] + "".join(p for _, p in lines)
            each = [
                (h + held, p + kept)
                for (h, p), held, kept in zip(lines, own_holes[1:], own_particles[1:], strict=True)
            ]
            sign = find_sign(first, last, each, level)
            moved, term = write_term(up, down, first, last, each)
            yield term, weight * sign * moved


def partition_names(names: str, groups: list[int]) -> Iterator[tuple[str, ...]]:
    """Yield the ordered partitions of names into groups of the given sizes."""
    if not groups:
        yield ()
        return
    for own in combinations(names, groups[0]):
        rest = "".join(name for name in names if name not in own)
        for others in partition_names(rest, groups[1:]):
            yield ("".join(own), *others)


def find_sign(first: str, last: str, clusters: list[tuple[str, str]], level: int) -> int:
    """The sign of the full contraction of <0| bra H T .. |0>: the parity of its crossings."""
    string: list[str] = []
    for hole, particle in reversed(list(zip(HOLES[:level], PARTICLES[:level], strict=True))):
        string += [hole, particle]
    string += [*first, *reversed(last)]
    for holes, particles in clusters:
        for hole, particle in zip(holes, particles, strict=True):
            string += [particle, hole]
    ends = [
        [at for at, name in enumerate(string) if name == each] for each in dict.fromkeys(string)
    ]
    crossings = sum(a < c < b < d or c < a < d < b for (a, b), (c, d) in combinations(ends, 2))
    return -1 if crossings % 2 else 1


def write_term(
    up: str, down: str, first: str, last: str, clusters: list[tuple[str, str]]
) -> tuple[int, Term]:
    """The canonical form of a term, and the sign of the index permutation."""
    inner = [name for name in first + last if name not in HOLES + PARTICLES]
    kinds = {kind: [n for n in inner if n in INNER[kind]] for kind in "ov"}
    spellings = []
    for to_holes, to_particles in product(permutations(kinds["o"]), permutations(kinds["v"])):
        names = dict(zip(kinds["o"] + kinds["v"], to_holes + to_particles, strict=True))
        sign, factors = 1, []
        for name, groups in [
            (f"{'fv'[len(up) - 1]}_{up}{down}", (first, last)),
            *((f"t{len(holes)}", (holes, particles)) for holes, particles in clusters),
        ]:
            indices = ""
            for group in groups:
                moved = [names.get(index, index) for index in group]
                ordered = sorted(moved, key=lambda index: (index in "abcdefg", index))
                sign *= find_parity([ordered.index(index) for index in moved])
                indices += "".join(ordered)
            factors.append((name, indices))
        spellings.append((sorted(factors), sign))
    factors, sign = min(spellings)
    return sign, (tuple(sorted(kinds["o"] + kinds["v"])), tuple(factors))


def find_parity(order: list[int]) -> int:
    """The sign of a permutation."""
    return -1 if sum(a > b for a, b in combinations(order, 2)) % 2 else 1


def write_equations(levels: Iterable[int], clusters: int) -> str:
    """Write the residuals of these excitation levels in the notation; level 0 is the energy."""
    lines, used, results = [], dict[str, str](), []
    for level in levels:
        free = HOLES[:level] + PARTICLES[:level]
        results.append(f"r{level}")
        parts = []
        for (bound, factors), weight in sorted(find_terms(level, clusters).items()):
            used |= dict(factors)
            size = "" if abs(weight) == 1 else f"{abs(weight)} * "
            text = size + " * ".join(f"{name}[{', '.join(at)}]" for name, at in factors)
            text = f"sum[{', '.join(bound)}]({text})" if bound else text
            parts.append(f"{'-' if weight < 0 else '+'} {text}")
        target = f"r{level}[{', '.join(free)}]" if free else f"r{level}"
        lines.append(f"{target} = (" + "\n    ".join(parts).removeprefix("+ ") + ")")
    shapes = [
        f"{name}[{', '.join('V' if index in 'abcdefg' else 'O' for index in at)}]"
        for name, at in sorted(used.items())
    ]
    return "\n".join(["; ".join(shapes), *lines, f"return {', '.join(results)}"]) + "\n"
