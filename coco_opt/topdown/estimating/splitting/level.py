"""A level's splits and roundings in a few compiled calls, where nothing but the parents' tables binds the children.

Bounds on classes of cells may bind the children too (``bounded_classes``), such as all counts that an earlier release
has published of every region. Where they decide in which child a class is, its cells are placed there, and sums alone
bind the others; the rest of the level is few programs. Classes are the first pass of the rounding, which keeps them.

Building a problem object for each of thousands of small regions costs more than solving them. Here the level's rows are
built once, and parents go to the solvers in batches; the split is judged by ``SplitLevel``. Regions that a batch does
not settle to its tolerance are split individually, one after the other; both ways are exact to that tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.problems.sparse_rows import SparseRows, runs_from, stacked
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.table_rounding.level import LevelRounder, RoundingLevel
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.problems.topdown_split.level import Judged, LevelSplitter, SplitLevel
from coco_opt.topdown.estimating.rounding import is_of_cells, nested
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.bounded_classes import FREE, BoundedClasses
from coco_opt.topdown.estimating.splitting.step import LEAST_PARENTS, SplitStep

Runs = tuple[Ints, Ints, Ints]
"""The nonzero entries of some tables: regions (from the first child), cells (rising in a region) and counts."""

Fractions = tuple[Floats, Flags]
"""The fractional tables of several parents, and which of them are certified."""

_SAFE = 0.5  # of the tolerance


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
    classes: BoundedClasses | None = None

    def __call__(self, step: SplitStep, parents: range, above: SparseTables) -> tuple[SparseTables, list[int]]:
        """Return the integer tables of the children of ``parents``, and the parents that must be split individually.

        ``above`` are the tables of these regions; how they are batched changes no table. The children of those left
        have empty tables. Where nothing binds children but sums, an only child has its parent's table, and
        the children of an empty table have empty tables.
        """
        hierarchy = step.measured.hierarchy
        bounds = hierarchy.first_child[parents.start : parents.stop + 1]
        people, only = np.diff(above.offsets) > 0, np.diff(bounds) == 1
        settled, holder = np.ones(len(parents), bool), None
        if self.classes is not None:
            settled, holder = self.classes.decided(above, bounds - hierarchy.level_range(self.level + 1).start)
            holder = np.where(holder < 0, FREE, holder - (bounds[0] - hierarchy.level_range(self.level + 1).start))
        bounded = ~settled & people & ~only
        left = ~settled & ~bounded
        runs = [_only_children(above, np.flatnonzero(settled & people & only), bounds)]
        for chosen, child in ((settled & people & ~only, holder), (bounded, None)):
            if chosen.any():
                by_bounds = chosen is bounded
                batch_runs, done = self._split_batch(step, above, np.flatnonzero(chosen), bounds, child, by_bounds)
                runs.append(batch_runs)
                left[np.flatnonzero(chosen)[~done]] = True
        region, cells, counts = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        tables = SparseTables.of_runs(region, cells, counts, (int(bounds[-1] - bounds[0]), above.size))
        return tables, [parents[place] for place in np.flatnonzero(left).tolist()]

    def _split_batch(
        self, step: SplitStep, above: SparseTables, chosen: Ints, bounds: Ints, holder: Ints | None, by_bounds: bool
    ) -> tuple[Runs, Flags]:
        """Return the children's tables of the ``chosen`` among consecutive parents, and for which there are any.

        Entries of the parents' tables are placed in their ``holder``, counted from the first child, or are ``FREE``;
        ``by_bounds`` the bounds on the children's classes bind instead.
        """
        offsets = above.offsets
        cells = np.concatenate([np.arange(offsets[at], offsets[at + 1]) for at in chosen])
        starts = np.concatenate([[0], np.cumsum(np.diff(offsets)[chosen])]).astype(np.int64)
        regions = np.concatenate([np.arange(bounds[at], bounds[at + 1]) for at in chosen])
        children = np.concatenate([[0], np.cumsum(np.diff(bounds)[chosen])]).astype(np.int64)
        problem = self._problem(step, starts, above.cells[cells], above.counts[cells], children, regions)
        if step.targets is not None:
            tables, settled = self._aimed(step, problem, regions)
        elif by_bounds:
            tables, settled = self._split_bounded(step, problem, regions)
        elif holder is None:
            tables, settled = self._split(step, problem)
        else:
            child = np.where(holder[cells] < 0, FREE, np.searchsorted(regions, bounds[0] + holder[cells]))
            tables, settled = self._split_rest(step, problem, child)
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
        if self.classes is not None:
            places = regions - step.measured.hierarchy.level_range(self.level + 1).start
            within = self.classes.hold(*problem.pairs, rounded.tables, places)
            done &= np.logical_and.reduceat(within, problem.children[:-1])
        return _runs(problem, rounded.tables, done, regions - bounds[0]), done

    def _split_bounded(self, step: SplitStep, problem: SplitLevel, regions: Ints) -> Fractions:
        """Split with the bounds on the children's classes."""
        assert self.classes is not None
        places = regions - step.measured.hierarchy.level_range(self.level + 1).start
        lower, upper = (side[places].astype(np.float64) for side in (self.classes.lower, self.classes.upper))
        problem, start = replace(problem, classes=self.classes.labels, lower=lower, upper=upper), perf_counter()
        tables, rested, prices = self.splitter.split_bounded(problem)
        return tables, self._settled(step, problem, problem.judge(tables, prices), rested, perf_counter() - start)

    def _split_rest(self, step: SplitStep, problem: SplitLevel, child: Ints) -> Fractions:
        """Return the tables with the cells of a ``child`` placed there, and the others split; and which are certified.

        Children are numbered from 0; the answers that are split are what the placed cells leave of them.
        """
        tables, settled = np.zeros(int(problem.places[-1])), np.ones(problem.starts.size - 1, np.bool_)
        start, free = problem.table_rows, np.flatnonzero(child < 0)
        placed = np.flatnonzero(child >= 0)
        tables[start[placed] + child[placed] - problem.children[problem.parent[placed]]] = problem.counts[placed]
        if free.size:
            rest, parents = problem.rest(child)
            rest_tables, settled[parents] = self._split(step, rest)
            tables[runs_from(start[free], np.diff(problem.children)[problem.parent[free]])] = rest_tables
        return tables, settled

    def _aimed(self, step: SplitStep, problem: SplitLevel, regions: Ints) -> Fractions:
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
        return SplitLevel(self.rows, self.query_of, starts, cells, people, children, answers, weights)

    def _split(self, step: SplitStep, problem: SplitLevel) -> Fractions:
        """Split where only the parents' tables bind."""
        start = perf_counter()
        tables, rested = self.splitter.split_level(problem)
        return tables, self._settled(step, problem, problem.judge(tables), rested, perf_counter() - start)

    def _settled(self, step: SplitStep, problem: SplitLevel, judged: Judged, rested: Flags, seconds: float) -> Flags:
        """Return which parents' tables are certified and meet what must hold, and count their certificates."""
        allowed = _SAFE * self.splitter.tolerance * np.maximum(1.0, judged.objective)
        most = np.maximum(1.0, np.maximum.reduceat(problem.counts, problem.starts[:-1]))
        holds = judged.violation <= TopdownSplit.feasibility_tolerance * most
        settled = np.asarray(rested & (judged.gap <= allowed) & holds)
        if settled.any():
            relative = judged.gap / np.maximum(1.0, judged.objective)
            gap, most_relative, violation = (
                float(values[settled].max()) for values in (judged.gap, relative, judged.violation)
            )
            step.solvers.count(TopdownSplit, int(settled.sum()), gap, most_relative, violation, seconds)
        return settled


def _only_children(above: SparseTables, forced: Ints, bounds: Ints) -> Runs:
    """Return the tables of some parents' only children: the parents' own."""
    runs = [np.arange(above.offsets[at], above.offsets[at + 1]) for at in forced.tolist()]
    entries = np.concatenate([np.zeros(0, np.int64), *runs])
    region = np.repeat(bounds[forced] - bounds[0], [run.size for run in runs])
    return region, above.cells[entries], above.counts[entries]


def _runs(problem: SplitLevel, tables: Ints, done: Flags, regions: Ints) -> Runs:
    """Return the nonzero entries of the parents that are ``done``; ``regions`` are the children."""
    place = np.flatnonzero(tables)
    parent = np.searchsorted(problem.places, place, side="right") - 1
    mask = done[parent]
    place, parent = place[mask], parent[mask]
    cell, child = np.divmod(place - problem.places[parent], np.diff(problem.children)[parent])
    region = regions[problem.children[parent] + child]
    return region, problem.cells[problem.starts[parent] + cell], tables[place]


def level_split(step: SplitStep, level: int) -> LevelSplit | None:
    """Return the split of all regions of a level together, or None where they must be split individually."""
    hierarchy = step.measured.hierarchy
    below = hierarchy.level_range(level + 1)
    constraints = step.constraints(below)
    classes = None if constraints is None else BoundedClasses.of(constraints)
    # Where classes bind, few parents pay, too, if kernels are loaded for the many of a level below.
    used = classes is not None and (classes.exact.any() or _parents(hierarchy, hierarchy.levels - 2) >= LEAST_PARENTS)
    if _parents(hierarchy, level) < (1 if used else LEAST_PARENTS):
        return None
    splitter, rounder = step.solvers.solver(TopdownSplit), step.solvers.solver(TableRounding)
    free = (constraints is None or classes is not None) and step.cutting is None  # cuts are found as regions are split
    plain = len(step.passes) == 1 and not step.crossing_queries[level + 1] and free
    if not plain or not isinstance(splitter, LevelSplitter) or not isinstance(rounder, LevelRounder):
        return None
    queries = tuple(query for query in step.passes[0][0] if step.has_answers(level + 1, query))
    rounded = (*(() if classes is None else (classes.operator,)), *step.rounding_queries[level + 1])
    if not queries or (rounded and not nested(rounded)):
        return None
    cells = np.arange(step.measured.schema.size)
    operators = [step.measured.queries[query].operator for query in queries]
    if classes is not None and step.targets is None and not any(is_of_cells(each) for each in operators):
        return None  # cells that no query determines are shared out region by region: ``open_cells``
    query_of = np.repeat(np.arange(len(operators)), [operator.answers for operator in operators])
    turn = np.repeat(np.arange(len(rounded)), [operator.answers for operator in rounded])
    rows, passes = stacked(operators, cells), stacked(rounded, cells)
    return LevelSplit(level, splitter, rounder, queries, rows, query_of, passes, turn.astype(np.int64), classes)


def _parents(hierarchy: Hierarchy, level: int) -> int:
    return len(hierarchy.level_range(level))
