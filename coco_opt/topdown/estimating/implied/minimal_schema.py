"""The minimal schema: counts of the classes that constraints distinguish, for all regions of all levels together.

Constraints distinguish cells by class only (``CellClasses``). So the classes' counts x in every leaf are estimated
first,

    minimise  sum over levels, regions and queries of  w |A x_region - answers|^2     (x_region the leaves' sum)
    s.t.      x >= 0, and every constraint, at its own level,

then rounded such that every constraint holds and every class's count in every region is the next integer on either
side, where such tables exist, as they do where constraints and regions form a network; elsewhere as near as a
mixed-integer program finds. Every other cell is then split below exact class counts: classes do not meet, a parent's
are the sums of its children's, so each split is a transport that always exists. No implied constraint and no failsafe
is needed. (Kifer's slides, "Minimal Schema".)

The counts of classes of cells in every region as variables of one program, and the rows that bind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Grouping
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.feasibility.conflict import prove
from coco_opt.topdown.feasibility.programs import TIME_LIMIT, round_leaves, tightened
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.invariants import refinement
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.rows import Constraints, MatrixOperator, infinite

if TYPE_CHECKING:
    from scipy.sparse import csr_array


"""Sparse programs with many exact rows suit factorisations; the splits' own solver takes 10 to 25 times as long."""

MOST_UNKNOWNS = 4_000_000
"""Leaves x classes up to which the minimal schema is solved in one program."""


class NotSettledError(ProblemError):
    """No integer counts of classes were found in time; there may be some."""


@dataclass(frozen=True, eq=False, slots=True)
class CoreTables:
    """Integer counts of every class in every region, by level int64[regions, classes]."""

    system: ConstraintSystem
    levels: tuple[Ints, ...]

    @classmethod
    def of(cls, system: ConstraintSystem, leaves: Ints) -> CoreTables:
        """Return the counts of all levels from those of the leaves; ProblemError where these break a constraint."""
        if leaves.shape != (system.leaves, system.classes.count) or not system.holds(leaves):
            raise ProblemError("the counts of classes are those of other constraints")
        return cls(system, tuple(system.sums(leaves, level) for level in range(system.hierarchy.levels)))

    def forced(self, regions: range) -> Ints | None:
        """Return the tables of consecutive regions of one level where classes are single cells, None elsewhere."""
        classes = self.system.classes
        if classes.count < classes.labels.size:
            return None
        level, places = self.system.hierarchy.within_level(regions)
        tables: Ints = self.levels[level][places][:, classes.labels]
        return tables

    def undecided(self, terms: Sequence[SplitTerm]) -> list[SplitTerm]:
        """Return the terms that exact class counts do not decide already; all where these decide everything."""
        classes = self.system.classes.operator
        return [term for term in terms if refinement(classes, term.operator) is None] or list(terms)

    def constraints_of(self, regions: range) -> Constraints:
        """Return the exact class counts of consecutive regions of one level, as what binds their tables."""
        classes, (level, places) = self.system.classes, self.system.hierarchy.within_level(regions)
        labels = tuple(f"class {place}" for place in range(classes.count))
        return Constraints(classes.operator, self.levels[level][places], self.levels[level][places], labels)


def core_fits(system: ConstraintSystem) -> bool:
    """Return whether the classes of all leaves can be solved together."""
    return system.leaves * system.classes.count <= MOST_UNKNOWNS


def bounds_fall_short(system: ConstraintSystem) -> bool:
    """Return whether bounds on single answers can fall short of what constraints imply.

    They suffice where all rows count cells once, any two of their sets of cells are disjoint or nested, and a set that
    lies in another has no upper bound, as in "at least one householder" inside an exact total. Then a region's table
    that meets the bounds extends to its children. Give each child its least numbers in the inner sets, and fill it up
    to its total: what is left of the region's inner sets fits, since the children's totals leave as much room.
    """
    sets: dict[bytes, tuple[Flags, bool]] = {}
    for row in system.rows:
        if not row.counts_once:
            return True
        key, cells = row.coefficients.tobytes(), row.coefficients > 0
        bounded = bool((row.upper < UNBOUNDED).any()) or sets.get(key, (cells, False))[1]
        sets[key] = cells, bounded
    for (first, first_bounded), (second, second_bounded) in combinations(sets.values(), 2):
        common = first & second
        inside_first, inside_second = bool((common == second).all()), bool((common == first).all())
        bounded = (second_bounded and inside_first) or (first_bounded and inside_second)
        if common.any() and (bounded or not (inside_first or inside_second)):
            return True
    return False


def core_tables(
    measured: TableMeasurements,
    solvers: SolverChoices,
    seed: int | None = None,
    seconds: float = TIME_LIMIT,
) -> CoreTables:
    """Return integer counts of all classes and regions, ties decided by ``seed``.

    Raises ProblemError where none exist, and NotSettledError where none were found: a program of the rounding, and the
    search for any integer counts, may take ``seconds`` each.
    """
    system = measured.invariants.system
    lower, upper = tightened(system)
    if (lower > upper).any():
        raise _infeasible(system)
    fractional = _fit(measured, system, lower, upper, solvers)
    rng, limit = np.random.default_rng(seed or 0), min(seconds, TIME_LIMIT)
    leaves = round_leaves(system, fractional, lower, upper, rng, limit)
    if leaves is None:
        proof = prove(system, witness=True, time_limit=limit)
        if proof.verdict == "undecided":
            raise NotSettledError(f"whether any integer table meets the constraints was not settled within {limit:g} s")
        if proof.witness is None:
            raise _infeasible(system, proof.message)
        solvers.note_missed(TopdownSplit, np.inf)
        leaves = proof.witness
    return CoreTables.of(system, leaves)


def _infeasible(system: ConstraintSystem, message: str = "") -> ProblemError:
    reason = message or prove(system).message
    undecided = f"whether any integer table meets the constraints was not settled within {TIME_LIMIT:g} s"
    return ProblemError(reason or undecided)


def _fit(
    measured: TableMeasurements,
    system: ConstraintSystem,
    lower: Ints,
    upper: Ints,
    solvers: SolverChoices,
) -> Floats:
    """Return the fractional counts [leaves, classes] nearest to all answers; fixed counts are taken out before."""
    from scipy.sparse import csr_array, eye_array, vstack

    regions = RegionVariables(system)
    base, ceiling = regions.sums(lower.astype(np.float64)), regions.sums(infinite(upper))
    most = ceiling - base
    free, leaves = np.flatnonzero(most > 0), lower.size
    out = base[:leaves].copy()
    if not free.size:
        return out.reshape(lower.shape)
    terms = []
    for matrix, answers, weight in _class_queries(measured, regions):
        inner = csr_array(matrix.tocsc()[:, free])
        used = np.flatnonzero(np.diff(inner.indptr))
        if used.size:
            right = (answers - matrix @ base)[used]
            terms.append(SplitTerm(MatrixOperator(csr_array(inner[used])), right[None, :], np.full((1, 1), weight)))
    if not terms:
        return out.reshape(lower.shape)
    rows, low, high = regions.matrix(list(system.ranged()))
    most = most[free]
    bounded = np.flatnonzero(np.isfinite(most) & (free < leaves))
    shift = rows @ base
    inner = csr_array(rows.tocsc()[:, free])
    inner, low, high = binding_rows(inner, low - shift, high - shift, most)
    sums = csr_array(regions.adding_up.tocsc()[:, free])
    sums = csr_array(sums[np.flatnonzero(np.diff(sums.indptr))])
    matrix = csr_array(vstack([inner, eye_array(free.size, format="csr")[bounded], sums]))
    none = np.zeros(sums.shape[0])
    low = np.concatenate([low, np.zeros(bounded.size), none])
    high = np.concatenate([high, most[bounded], none])
    constraints = LinearRows(MatrixOperator(matrix), low[None, :], high[None, :]) if matrix.shape[0] else None
    fitted = _solve(TopdownSplit(terms, None, constraints), solvers)
    open_leaves = free < leaves
    out[free[open_leaves]] += fitted[open_leaves]
    return out.reshape(lower.shape)


def _solve(problem: TopdownSplit, solvers: SolverChoices) -> Floats:
    """Return the fit, or the point a solver left, or zeros without one: rounding makes the constraints hold."""
    try:
        return np.asarray(solvers.solve_suited(problem, problem.suited), dtype=np.float64).reshape(-1)
    except SolverError as error:
        solution = error.solution
    if solution is not None and np.isfinite(solution.value).all():
        solvers.note_missed(TopdownSplit, solution.relative_gap)
        return np.asarray(np.maximum(solution.value, 0.0), dtype=np.float64).reshape(-1)
    solvers.note_missed(TopdownSplit, np.inf)
    return np.zeros(problem.shape[1])


def _class_queries(measured: TableMeasurements, regions: RegionVariables) -> Iterator[tuple[csr_array, Floats, float]]:
    """Yield what the answers say about the classes: a matrix over all regions' classes, answers and their weight.

    A query's answers and the classes meet in the finest partition of the cells that both refine; its parts are sums of
    answers and sums of classes.
    """
    system = regions.system
    for level in range(system.hierarchy.levels):
        for place, query in enumerate(measured.queries):
            answers = measured.answers[level][place]
            if answers is None or not isinstance(query.operator, Grouping):
                continue
            for size, of_answers, of_classes in _common_sums(query.operator, system):
                matrix, summed = regions.of_regions(level, of_classes), answers[:].astype(np.float64) @ of_answers.T
                if (level, place) not in measured.by_region:
                    yield matrix, summed.reshape(-1), 1.0 / (size * measured.variance(level, place))
                    continue
                variances = np.repeat(measured.region_variances(level, place), len(of_answers))
                for variance in np.unique(variances[np.isfinite(variances)]).tolist():
                    rows = np.flatnonzero(variances == variance)
                    yield matrix[rows], summed.reshape(-1)[rows], 1.0 / (size * variance)


def _common_sums(operator: Grouping, system: ConstraintSystem) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield, for parts of equally many answers, which answers and which classes each is the sum of."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels, classes = operator.labels, system.classes.labels
    outside = operator.answers  # an answer of its own for cells that the query does not count
    answer = np.where(labels < 0, outside, labels)
    size = operator.answers + 1 + system.classes.count
    edges = coo_array((np.ones(answer.size), (answer, classes + outside + 1)), shape=(size, size))
    _, part = connected_components(edges, directed=False)
    of_answer, of_class = part[: operator.answers], part[outside + 1 :]
    lost = part[outside] if (labels < 0).any() else -1
    parts = np.array(
        [number for number in np.unique(of_class) if number != lost and (of_answer == number).any()], np.int64
    )
    sizes = np.array([int((of_answer == number).sum()) for number in parts])
    for size_of in np.unique(sizes).tolist():
        same = parts[sizes == size_of]
        yield size_of, (of_answer == same[:, None]).astype(np.float64), (of_class == same[:, None]).astype(np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class RegionVariables:
    """The counts of all classes in every region as variables: the leaves' first, then those of the levels above.

    A query of a large region is a row of few variables then. As a row of all its leaves it would join these to one
    another, and a factorisation would fill up.
    """

    system: ConstraintSystem

    @property
    def starts(self) -> Ints:
        """Return the first variable of each level, and their number, int64[levels + 1]; the leaves' level is first."""
        hierarchy, count = self.system.hierarchy, self.system.classes.count
        sizes = [len(hierarchy.level_range(level)) * count for level in range(hierarchy.levels - 1, -1, -1)]
        return np.cumsum([0, *sizes])

    def first(self, level: int) -> int:
        """Return the first variable of a level."""
        return int(self.starts[self.system.hierarchy.levels - 1 - level])

    def sums(self, leaves: Floats) -> Floats:
        """Return all variables from those of the leaves [leaves, classes]."""
        levels = range(self.system.hierarchy.levels - 1, -1, -1)
        return np.concatenate([self.system.sums(leaves, level).reshape(-1) for level in levels])

    @property
    def adding_up(self) -> csr_array:
        """Return the rows that are 0 where every region's counts are the sums of its children's."""
        from scipy.sparse import csr_array, eye_array, kron

        hierarchy, size, blocks = self.system.hierarchy, int(self.starts[-1]), []
        classes = eye_array(self.system.classes.count, format="csr")
        for level in range(hierarchy.levels - 1):
            regions, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
            starts = hierarchy.first_child[regions.start : regions.stop + 1] - below.start
            sums = csr_array((np.ones(len(below)), np.arange(len(below)), starts), shape=(len(regions), len(below)))
            own = eye_array(len(regions) * self.system.classes.count, format="csr")
            children = _placed(csr_array(kron(sums, classes, format="csr")), self.first(level + 1), size)
            blocks.append(_placed(csr_array(own), self.first(level), size) - children)
        return _stacked(blocks, size)

    def matrix(self, pairs: Sequence[tuple[int, Ints]]) -> tuple[csr_array, Floats, Floats]:
        """Return rows of some (row, regions) over the variables, with infinite sides for none."""
        from scipy.sparse import csr_array, kron

        size, blocks, lows, highs = int(self.starts[-1]), [], [np.zeros(0)], [np.zeros(0)]
        for at, regions in pairs:
            row = self.system.rows[at]
            count = len(self.system.hierarchy.level_range(row.level))
            ones, places = np.ones(regions.size), np.arange(regions.size + 1)
            chosen = csr_array((ones, regions, places), shape=(regions.size, count))
            own = csr_array(kron(chosen, csr_array(row.coefficients[None, :].astype(np.float64)), format="csr"))
            blocks.append(_placed(own, self.first(row.level), size))
            lows.append(infinite(row.lower[regions]))
            highs.append(infinite(row.upper[regions]))
        return _stacked(blocks, size), np.concatenate(lows), np.concatenate(highs)

    def of_regions(self, level: int, weights: Floats) -> csr_array:
        """Return sums of classes [parts, classes] in every region of a level as rows over the variables."""
        from scipy.sparse import csr_array, eye_array, kron

        regions = len(self.system.hierarchy.level_range(level))
        rows = csr_array(kron(eye_array(regions), csr_array(weights), format="csr"))
        return _placed(rows, self.first(level), int(self.starts[-1]))


def _placed(matrix: csr_array, first: int, columns: int) -> csr_array:
    """Return the matrix with its columns moved to begin at ``first`` of so many."""
    from scipy.sparse import csr_array

    shape = (matrix.shape[0], columns)
    return csr_array((matrix.data, matrix.indices.astype(np.int64) + first, matrix.indptr), shape=shape)


def _stacked(blocks: Sequence[csr_array], columns: int) -> csr_array:
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(blocks, format="csr")) if blocks else csr_array((0, columns))


def binding_rows(matrix: csr_array, low: Floats, high: Floats, most: Floats) -> tuple[csr_array, Floats, Floats]:
    """Return the rows that a box 0 <= u <= most does not imply."""
    from scipy.sparse import csr_array

    positive, negative = matrix.maximum(0), (-matrix).maximum(0)
    endless = ~np.isfinite(most)
    finite = np.where(endless, 0.0, most)
    free = endless.astype(np.float64)
    largest = np.where(positive @ free > 0, np.inf, positive @ finite)
    smallest = np.where(negative @ free > 0, -np.inf, -(negative @ finite))
    binding = np.flatnonzero((largest > high) | (smallest < low))
    return csr_array(matrix[binding]), low[binding], high[binding]
