"""A level's splits and roundings in a few compiled calls, where nothing but the parents' tables binds the children.

Exact counts of classes of cells may bind the children too, such as all that an earlier release has published of every
region. They are the first pass of the rounding, which keeps them.

Building a problem object for each of thousands of small regions costs more than solving them. Here the level's rows are
built once, and parents go to the solvers in batches; the split is judged by ``SplitLevel``. Regions that a batch does
not settle to its tolerance are split individually, one after the other; both ways are exact to that tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from coco_opt.operators import Operator
from coco_opt.problems.sparse_rows import SparseRows, stacked
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.table_rounding.level import LevelRounder, RoundingLevel
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.problems.topdown_split.level import LevelSplitter, SplitLevel
from coco_opt.topdown.bounds import refinement
from coco_opt.topdown.estimating.rounding import nested
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.step import SplitStep
from coco_opt.topdown.invariants import Constraints

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Runs = tuple[Ints, Ints, Ints]
"""The nonzero entries of some tables: regions (from the first child), cells (rising in a region) and counts."""

LEAST_PARENTS = 64
"""Parents of a level from which batches pay for what their kernels take to load."""

_SAFE = 0.5  # of the tolerance
_MOST_TOGETHER = (
    120  # cells that exact classes and queries connect, above which one factorisation of a parent is faster
)


@dataclass(frozen=True, eq=False, slots=True)
class ExactClasses:
    """Exact counts int64[regions, classes] of classes of cells in the regions of a level; ``labels`` int64[cells].

    ``labels`` are -1 for cells of no class. ``fully_known`` bool[regions] says of which regions all counts are exact.
    """

    operator: Operator
    labels: Ints
    counts: Ints
    fully_known: NDArray[np.bool_]

    @classmethod
    def of(cls, constraints: Constraints) -> ExactClasses | None:
        """Return the classes of constraints that count cells with weight 1 and no cell twice, None for others."""
        matrix = constraints.operator.to_sparse().tocsc()
        if (np.diff(matrix.indptr) > 1).any() or (matrix.data != 1.0).any():
            return None
        labels = np.full(matrix.shape[1], -1, np.int64)
        labels[np.diff(matrix.indptr) > 0] = matrix.indices
        exact = (constraints.lower == constraints.upper).all(axis=1)
        return cls(constraints.operator, labels, constraints.lower, exact) if exact.any() else None

    def of_parents(self, bounds: Ints) -> NDArray[np.bool_]:
        """Return which parents, whose children lie between consecutive bounds in their level, have exact children."""
        return np.asarray(np.logical_and.reduceat(self.fully_known[: bounds[-1]], bounds[:-1]))

    def holds(self, cells: Ints, tables: Ints, regions: Ints) -> bool:
        """Return whether integer tables int64[cells, regions] keep the counts."""
        sums, label = np.zeros((self.counts.shape[1], regions.size), np.int64), self.labels[cells]
        np.add.at(sums, label[label >= 0], tables[label >= 0])
        return bool((self.counts[regions] == sums.T).all())


@dataclass(frozen=True, eq=False)
class LevelSplit:
    """Splits many regions of one level together, by any step of the run; build it with ``level_split``."""

    level: int
    splitter: LevelSplitter
    rounder: LevelRounder
    queries: tuple[int, ...]
    rows: SparseRows
    query_of: Ints
    passes: SparseRows
    turn: Ints
    exact_classes: ExactClasses | None = None
    part: Ints | None = None  # the connected part of each cell, where exact classes bind

    def __call__(self, step: SplitStep, parents: range, above: SparseTables) -> tuple[SparseTables, list[int]]:
        """Return the integer tables of the children of ``parents``, and the parents that must be split one by one.

        ``above`` are the tables of these regions; how they are batched changes no table. The children of those left
        have empty tables. Where nothing binds children but sums, an only child has its parent's table, and
        the children of an empty table have empty tables.
        """
        hierarchy = step.measured.hierarchy
        bounds = hierarchy.first_child[parents.start : parents.stop + 1]
        people, only = np.diff(above.offsets) > 0, np.diff(bounds) == 1
        open_parents, forced = people & ~only, people & only
        left = np.zeros(len(parents), bool)
        if self.exact_classes is not None:
            exact = self.exact_classes.of_parents(bounds - hierarchy.level_range(self.level + 1).start)
            exact &= self._small(above)
            open_parents, forced, left = open_parents & exact, np.zeros_like(only), ~(open_parents & exact)
        runs = [_only_children(above, np.flatnonzero(forced), bounds)]
        chosen = np.flatnonzero(open_parents)
        if chosen.size:
            batch_runs, done = self._split_batch(step, above, chosen, bounds)
            runs.append(batch_runs)
            left[chosen[~done]] = True
        region, cells, counts = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        tables = SparseTables.of_runs(region, cells, counts, (int(bounds[-1] - bounds[0]), above.size))
        return tables, [parents[place] for place in np.flatnonzero(left).tolist()]

    def _small(self, above: SparseTables) -> NDArray[np.bool_]:
        """Return which parents' connected cells are so few that the dense interior points of a batch pay."""
        assert self.part is not None
        sizes = [
            int(np.bincount(self.part[above.cells[start:stop]]).max(initial=0))
            for start, stop in zip(above.offsets[:-1], above.offsets[1:], strict=True)
        ]
        return np.array(sizes) <= _MOST_TOGETHER

    def _split_batch(
        self, step: SplitStep, above: SparseTables, chosen: Ints, bounds: Ints
    ) -> tuple[Runs, NDArray[np.bool_]]:
        """Return the children's tables of the parents ``chosen`` from consecutive ones, and for which there are any."""
        offsets = above.offsets
        cells = np.concatenate([np.arange(offsets[at], offsets[at + 1]) for at in chosen])
        starts = np.concatenate([[0], np.cumsum(np.diff(offsets)[chosen])]).astype(np.int64)
        regions = np.concatenate([np.arange(bounds[at], bounds[at + 1]) for at in chosen])
        children = np.concatenate([[0], np.cumsum(np.diff(bounds)[chosen])]).astype(np.int64)
        problem = self._problem(step, starts, above.cells[cells], above.counts[cells], children, regions)
        tables, settled = self._split(step, problem) if step.targets is None else self._aimed(step, problem, regions)
        level = RoundingLevel(
            self.passes,
            self.turn,
            int(self.turn.max(initial=-1)) + 1,
            starts,
            above.cells[cells],
            above.counts[cells],
            bounds[chosen],
            children,
            problem.places,
            tables,
            step.method.seed or 0,
        )
        start = perf_counter()
        rounded = self.rounder.round_level(level)
        seconds = perf_counter() - start
        step.solvers.count(TableRounding, rounded.solves, rounded.gap, rounded.relative_gap, 0.0, seconds)
        done = settled & rounded.done
        if self.exact_classes is not None:
            first = step.measured.hierarchy.level_range(self.level + 1).start
            for number in np.flatnonzero(done).tolist():
                parent_cells = problem.cells[starts[number] : starts[number + 1]]
                integer_tables = rounded.tables[problem.places[number] : problem.places[number + 1]].reshape(
                    parent_cells.size, -1
                )
                done[number] = self.exact_classes.holds(
                    parent_cells, integer_tables, regions[children[number] : children[number + 1]] - first
                )
        return _runs(problem, rounded.tables, done, regions - bounds[0]), done

    def _aimed(self, step: SplitStep, problem: SplitLevel, regions: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the targets of the children of every parent, and that they need no solver."""
        assert step.targets is not None
        tables = np.empty(int(problem.places[-1]))
        for number in range(problem.starts.size - 1):
            used = slice(int(problem.starts[number]), int(problem.starts[number + 1]))
            parent = np.zeros(step.measured.schema.size, np.int64)
            parent[problem.cells[used]] = problem.counts[used]
            children = regions[problem.children[number] : problem.children[number + 1]]
            target = step.targets(range(int(children[0]), int(children[-1]) + 1), parent)[:, problem.cells[used]]
            tables[problem.places[number] : problem.places[number + 1]] = target.T.reshape(-1)
        return tables, np.ones(problem.starts.size - 1, np.bool_)

    def _problem(
        self, step: SplitStep, starts: Ints, cells: Ints, counts: Ints, children: Ints, regions: Ints
    ) -> SplitLevel:
        within = range(int(regions[0]), int(regions[-1]) + 1)
        rows = regions - within.start
        answers, weights = np.empty((rows.size, self.rows.shape[0])), np.empty((rows.size, len(self.queries)))
        column = 0
        for number, query in enumerate(self.queries):
            level_answers, variances = step.answers_of(within, query)
            assert level_answers is not None
            answers[:, column : column + level_answers.shape[1]] = level_answers[rows]
            column += level_answers.shape[1]
            weights[:, number] = 1.0 / variances[rows] if step.method.weighting == "variance" else 1.0
        people = counts.astype(np.float64)
        labels, exact = (
            (None, None)
            if self.exact_classes is None
            else (self.exact_classes.labels, self._exact_counts(step, regions))
        )
        return SplitLevel(self.rows, self.query_of, starts, cells, people, children, answers, weights, labels, exact)

    def _exact_counts(self, step: SplitStep, regions: Ints) -> Floats:
        """Return the exact counts of classes of some regions of the level below."""
        assert self.exact_classes is not None
        first = step.measured.hierarchy.level_range(self.level + 1).start
        return np.asarray(self.exact_classes.counts[regions - first], np.float64)

    def _split(self, step: SplitStep, problem: SplitLevel) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the tables, and which are certified."""
        start = perf_counter()
        prices = None
        if problem.classes is None:
            tables, rested = self.splitter.split_level(problem)
        else:
            tables, rested, prices = self.splitter.split_exact(problem)
        seconds, judged = perf_counter() - start, problem.judge(tables, prices)
        allowed = _SAFE * self.splitter.tolerance * np.maximum(1.0, judged.objective)
        most = np.maximum(1.0, np.maximum.reduceat(problem.counts, problem.starts[:-1]))
        settled = rested & (judged.gap <= allowed) & (judged.violation <= TopdownSplit.feasibility_tolerance * most)
        if settled.any():
            relative = judged.gap / np.maximum(1.0, judged.objective)
            gap, most_relative, violation = (
                float(values[settled].max()) for values in (judged.gap, relative, judged.violation)
            )
            step.solvers.count(TopdownSplit, int(settled.sum()), gap, most_relative, violation, seconds)
        return tables, settled


def _only_children(above: SparseTables, forced: Ints, bounds: Ints) -> Runs:
    """Return the tables of some parents' only children: the parents' own."""
    runs = [np.arange(above.offsets[at], above.offsets[at + 1]) for at in forced.tolist()]
    entries = np.concatenate([np.zeros(0, np.int64), *runs])
    region = np.repeat(bounds[forced] - bounds[0], [run.size for run in runs])
    return region, above.cells[entries], above.counts[entries]


def _runs(problem: SplitLevel, tables: Ints, done: NDArray[np.bool_], regions: Ints) -> Runs:
    """Return the nonzero entries of the parents that are ``done``; ``regions`` are the children."""
    place = np.flatnonzero(tables)
    parent = np.searchsorted(problem.places, place, side="right") - 1
    mask = done[parent]
    place, parent = place[mask], parent[mask]
    cell, child = np.divmod(place - problem.places[parent], np.diff(problem.children)[parent])
    region = regions[problem.children[parent] + child]
    return region, problem.cells[problem.starts[parent] + cell], tables[place]


def level_split(step: SplitStep, level: int) -> LevelSplit | None:
    """Return the split of all regions of a level together, or None where they must be split one by one."""
    hierarchy, method = step.measured.hierarchy, step.method
    below = hierarchy.level_range(level + 1)
    constraints = step.constraints(below)
    classes = None if constraints is None else ExactClasses.of(constraints)
    if len(hierarchy.level_range(level)) < (LEAST_PARENTS if classes is None else 1):
        return None
    splitter, rounder = step.solvers.solver(TopdownSplit), step.solvers.solver(TableRounding)
    free = (constraints is None or classes is not None) and step.cutting is None  # cuts are found as regions are split
    plain = len(step.groups) == 1 and method.rounding != "unbiased" and free
    if not plain or not isinstance(splitter, LevelSplitter) or not isinstance(rounder, LevelRounder):
        return None
    queries = tuple(query for query in step.groups[0][0] if step.has_answers(level + 1, query))
    rounded = (*(() if classes is None else (classes.operator,)), *step.rounded[level + 1])
    if not queries or (rounded and not nested(rounded)):
        return None
    cells = np.arange(step.measured.schema.size)
    operators = [step.measured.queries[query].operator for query in queries]
    query_of = np.repeat(np.arange(len(operators)), [operator.answers for operator in operators])
    turn = np.repeat(np.arange(len(rounded)), [operator.answers for operator in rounded])
    rows, passes = stacked(operators, cells), stacked(rounded, cells)
    part = None if classes is None else _parts(classes, operators)
    return LevelSplit(level, splitter, rounder, queries, rows, query_of, passes, turn.astype(np.int64), classes, part)


def _parts(classes: ExactClasses, operators: Sequence[Operator]) -> Ints:
    """Return the part of each cell: cells of one class are connected, and those of an answer that no classes decide."""
    from scipy.sparse import block_array, vstack
    from scipy.sparse.csgraph import connected_components

    open_queries = [operator for operator in operators if refinement(classes.operator, operator) is None]
    rows = vstack([operator.to_sparse() for operator in (classes.operator, *open_queries)], format="csr")
    _, part = connected_components(block_array([[None, rows.T], [rows, None]], format="csr"), directed=False)
    return np.asarray(part[: rows.shape[1]], np.int64)
