"""One step of the recursion: a region's integer table becomes its children's, by the split and then the rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.operators import Operator, stack, total
from coco_opt.problem import MAX_INTEGER
from coco_opt.problems.table_rounding import TableRounding
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.topdown.estimating.implied import implied_choice
from coco_opt.topdown.estimating.implied.cuts import ROUNDS, CutOracle, Cutting
from coco_opt.topdown.estimating.implied.minimal_schema import CoreTables, NotSettledError, core_tables
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage, rows_of
from coco_opt.topdown.estimating.method import Implied, TopdownMethod
from coco_opt.topdown.estimating.posterior.result import Targets
from coco_opt.topdown.estimating.rounding import (
    Ties,
    is_of_cells,
    nested,
    nested_passes,
    round_in_passes,
)
from coco_opt.topdown.estimating.splitting.bounded_classes import leaves_cells_open, shared_in_proportion
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.rows import Constraints

_MOST_SUITED = 50_000  # cells of all children up to which splits below exact classes or under cuts are factorised
LEAST_PARENTS = 64  # of a level, from which batches pay for what their kernels take to load
_PROGRAMS = 3  # mixed-integer programs of the minimal schema, one after the other, that share its time
_LEAST_SECONDS = 1.0  # for a step after the time is over: the last step must end with tables
_LEAST_TOLERANCE = 1e-6  # people; answers kept from an earlier pass are known to a solver's precision only


@dataclass(frozen=True, slots=True)
class ImpliedRecord:
    """How implied constraints on regions above were enforced: by which method, with how many classes and cuts.

    ``oracle`` is how cuts are found, "" for none. ``reason`` says why "auto" began with a method, "" where one was
    configured, and ``slow`` what was given up because it was slow.
    """

    method: Implied
    classes: int = 0
    cuts: int = 0
    oracle: str = ""
    reason: str = ""
    slow: str = ""


BY_BOUNDS = ImpliedRecord("bounds")


@dataclass(frozen=True, eq=False, slots=True)
class SplitStep:
    """All that splitting any region takes: build it with ``split_step``.

    ``passes`` are the queries and the tolerance of each pass of the fit, ``rounding_queries`` those that are rounded
    before the cells, in order, by level, and ``crossing_queries`` those together in place of the cells. With
    ``targets`` these are rounded in place of a fit.
    """

    measured: TableMeasurements
    method: TopdownMethod
    solvers: SolverChoices
    stage: LinearStage | None
    passes: tuple[tuple[tuple[int, ...], float], ...]
    rounding_queries: tuple[tuple[Operator, ...], ...]
    crossing_queries: tuple[tuple[Operator, ...], ...] = ()
    core: CoreTables | None = None
    cutting: Cutting | None = None
    reason: str = ""
    slow: str = ""
    deadline: float = float("inf")  # seconds since the epoch, after which programs of the failsafe must be quick
    targets: Targets | None = None

    @property
    def seconds_left(self) -> float:
        """Return the seconds that a mixed-integer program may take."""
        return max(_LEAST_SECONDS, self.deadline - time())

    @property
    def implied(self) -> ImpliedRecord:
        """Return how implied constraints were enforced so far."""
        record = ImpliedRecord("bounds", reason=self.reason, slow=self.slow)
        if self.core is not None:
            return replace(record, method="minimal_schema", classes=self.core.system.classes.count)
        if self.cutting is None:
            return record
        oracle, unchecked = self.cutting.oracle, len(self.cutting.unchecked)
        late = f"after {self.method.time:g} s no cuts were looked for, in {unchecked} regions" if unchecked else ""
        slow = "; ".join(filter(None, (self.slow, late)))
        classes, count = oracle.system.classes.count, self.cutting.count
        return replace(record, method="cuts", classes=classes, cuts=count, oracle=oracle.kind, slow=slow)

    def fresh(self) -> SplitStep:
        """Return the same step with nothing counted yet: that of one task, whose counts are added to the run's."""
        cutting = None if self.cutting is None else self.cutting.fresh()
        return replace(self, solvers=self.solvers.fresh(), cutting=cutting)

    def children(self, region: int | None) -> range:
        """Return the children of a region, or for None the root alone."""
        return range(1) if region is None else self.measured.hierarchy.children(region)

    def name(self, region: int | None) -> str:
        """Return what to call a split in messages."""
        hierarchy = self.measured.hierarchy
        return f"the root {hierarchy.names[0]!r}" if region is None else f"the children of {hierarchy.paths[region]!r}"

    def constraints(self, regions: range) -> Constraints | None:
        """Return what binds the tables of consecutive regions of one level, None for nothing."""
        if self.core is not None:
            return self.core.constraints_of(regions)
        measured_constraints = self.measured.constraints_of(regions)
        return measured_constraints if self.cutting is None else self.cutting.added(measured_constraints, regions)

    def terms(self, regions: range, queries: Sequence[int]) -> list[SplitTerm]:
        """Return what is known about the tables of consecutive regions of one level, one term per query."""
        split_terms = []
        for query in queries:
            answers, variances = self.answers_of(regions, query)
            if answers is not None:
                weights = 1.0 / variances if self.method.weighting == "variance" else np.ones(len(regions))
                operator = self.measured.queries[query].operator
                split_terms.append(SplitTerm(operator, answers.astype(np.float64), weights))
        return split_terms

    def answers_of(self, regions: range, query: int) -> tuple[NDArray[Any] | None, Floats]:
        """Return what is known of a query's answers in consecutive regions of one level, and its variances [regions].

        Answers [regions, answers] are read here where they are not in memory.
        """
        if self.stage is not None:
            return self.stage.trees[query].at(regions)
        level, places = self.measured.hierarchy.within_level(regions)
        answers = rows_of(self.measured.hierarchy, self.measured.answers[level][query], regions)
        return answers, self.measured.region_variances(level, query, places)

    def has_answers(self, level: int, query: int) -> bool:
        """Return whether anything is known of a query's answers at a level."""
        level_answers = (
            self.measured.answers[level] if self.stage is None else [tree.z[level] for tree in self.stage.trees]
        )
        return level_answers[query] is not None

    def fractional(self, regions: range, parent: Ints | None) -> Floats:
        """Return the split tables [J, n] before rounding, the passes one after the other.

        Raises ProblemError where nothing was measured about these regions, which ``method.misfit`` says before, and
        SolverError where all solvers fail.
        """
        if self.targets is not None:
            return self.targets(regions, parent)
        constraints = self.constraints(regions)
        rows = None if constraints is None else constraints.linear
        parent_table = None if parent is None else parent.astype(np.float64)
        problem, tables = None, None
        for queries, tolerance in self.passes:
            terms = self.terms(regions, queries)
            if not terms:
                continue
            if self.core is not None:
                terms = self.core.undecided(terms)
            problem = TopdownSplit(terms, parent_table, rows)
            tables = self._fitted(problem)
            if queries != self.passes[-1][0]:
                rows = _with_answers(rows, terms, tables, max(tolerance, _LEAST_TOLERANCE))
        if problem is None or tables is None:
            path = self.measured.hierarchy.paths[regions.start]
            raise ProblemError(f"nothing that was measured says anything about region {path!r}")
        # Cuts are found from fits that meet those before to a solver's precision, which proportional fitting does not.
        return tables if self.cutting is not None else shared_in_proportion(problem, tables)

    def _fitted(self, problem: TopdownSplit) -> Floats:
        """Return the fitted tables.

        If every solver misses its tolerance, the first solver's point is used and counted as uncertified. Sums and
        constraints need not hold then: rounding restores them.
        """
        try:
            # An earlier release binds by many exact rows for every region.
            release = any(constraint.source == "release" for constraint in self.measured.invariants.constraints)
            exact = self.core is not None or self.cutting is not None or release
            factorised = exact or (leaves_cells_open(problem) and problem.constraints is not None)
            suited = problem.suited if factorised and problem.variables <= _MOST_SUITED else ()
            return np.asarray(self.solvers.solve_suited(problem, suited), dtype=np.float64)
        except SolverError as error:
            solution = error.solution
            if not self.solvers.fallback or solution is None or not np.isfinite(solution.value).all():
                raise
        self.solvers.note_missed(TopdownSplit, solution.relative_gap)
        most = MAX_INTEGER if problem.parent is None else problem.parent
        return np.asarray(np.clip(solution.value, 0.0, most), dtype=np.float64)

    def last_resort(self, tables: Ints | None, failure: Exception) -> Ints:
        """Return integer tables that meet the constraints but are not certified as nearest, and count them.

        Raises the failure where there are none, or no fallback is wanted.
        """
        if tables is None or not self.solvers.fallback:
            raise failure
        self.solvers.note_missed(TableRounding, np.inf)
        return tables

    def integer_tables(self, x: Floats, regions: range, parent: Ints | None) -> Ints:
        """Return integer tables int64[J, n] next to fractional tables; ProblemError where none exist."""
        constraints, seed = self.constraints(regions), self.method.seed
        assert seed is not None
        level = int(self.measured.hierarchy.level[regions.start])
        queries = self.rounding_queries[level]
        together = self.crossing_queries[level] if self.targets is None else ()
        rows, ties = None if constraints is None else constraints.linear, Ties(seed)
        return round_in_passes(x, parent, rows, queries, ties, regions.start, self.solvers, together)

    def split(self, region: int | None, table: Ints | None) -> Ints:
        """Return the children's integer tables int64[J, n] of a region's table (None: the root, or leaves alone)."""
        regions = self.children(region)
        forced = None if self.core is None else self.core.forced(regions)
        if forced is not None:
            return forced
        if table is not None and (len(regions) == 1 or not table.any()):
            return self._forced(regions, table)
        if self.cutting is not None:
            return self._cut(regions, table)
        return self.integer_tables(self.fractional(regions, table), regions, table)

    def _cut(self, regions: range, table: Ints | None) -> Ints:
        """Return integer tables that extend to the leaves: constraints are added while some violates one."""
        assert self.cutting is not None
        x = self.fractional(regions, table)
        for _ in range(ROUNDS):
            if not self.cutting.cut(regions, x):
                break
            x = self.fractional(regions, table)
        tables = self.integer_tables(x, regions, table)
        for _ in range(ROUNDS):
            if not self.cutting.cut(regions, tables):
                break
            tables = self.integer_tables(x, regions, table)
        return tables

    def _forced(self, regions: range, table: Ints) -> Ints:
        """Return the only possible tables: an only child's, or empty ones."""
        tables = np.tile(table, (len(regions), 1))
        constraints = self.constraints(regions)
        if constraints is not None:
            broken = constraints.broken_by(tables)
            if broken.any():
                child, row = np.argwhere(broken)[0]
                raise ProblemError(
                    f"the only tables that add up to the parent's violate {constraints.labels[row]!r} of "
                    f"{self.measured.hierarchy.paths[regions[child]]!r}"
                )
        return tables


def split_step(
    measured: TableMeasurements,
    method: TopdownMethod,
    solvers: SolverChoices,
    core_leaves: Ints | None = None,
    stage: LinearStage | None = None,
    *,
    resumed: bool = False,
) -> SplitStep:
    """Prepare the splits of a run; for estimation "full" this runs the linear stage's up pass, unless it is given.

    ``core_leaves`` are the classes' counts in the leaves where an interrupted run has solved them. If ``resumed`` is
    set without them, the first run had given up the minimal schema, which is skipped.
    """
    if stage is None and method.estimation == "full":
        stage = linear_stage(measured)
    system = measured.invariants.system if measured.invariants else None
    choice = implied_choice(system, method)
    start, given_up = time(), list[str]()
    for implied, _ in choice.candidates:
        if implied == "minimal_schema" and resumed and core_leaves is None and len(choice.candidates) > 1:
            continue
        core, cutting = None, None
        left = max(_LEAST_SECONDS, min(method.time, choice.limit) - (time() - start))
        if implied == "minimal_schema":
            try:
                if core_leaves is None:
                    core = core_tables(measured, solvers, method.seed, left / _PROGRAMS)
                else:
                    core = CoreTables.of(measured.invariants.system, core_leaves)
            except NotSettledError as error:
                if implied == choice.candidates[-1][0]:
                    raise
                given_up.append(f"the minimal schema was given up: {error}")
                continue
        elif implied == "cuts":
            assert system is not None
            cutting = Cutting(CutOracle(system), deadline=start + method.time)
        break
    rounding_queries = _rounding_queries(measured, method, core)
    parents = [len(measured.hierarchy.level_range(level)) for level in range(measured.hierarchy.levels - 1)]
    problems = sum(count * (len(queries) + 1) for count, queries in zip(parents, rounding_queries[1:], strict=True))
    solvers = solvers.limited(TableRounding, max(_LEAST_SECONDS, method.time / max(1, problems)))
    return SplitStep(
        measured,
        method,
        solvers,
        stage,
        passes=method.query_passes([query.name for query in measured.queries]),
        rounding_queries=rounding_queries,
        crossing_queries=_crossing_queries(measured, method, rounding_queries),
        core=core,
        cutting=cutting,
        reason=choice.reason,
        slow="; ".join(given_up),
        deadline=start + method.time,
    )


def _rounding_queries(
    measured: TableMeasurements, method: TopdownMethod, core: CoreTables | None
) -> tuple[tuple[Operator, ...], ...]:
    """Return the queries that are rounded before the cells, in order, for each level: the total first.

    A list in the method is kept as it is; without one, those measured that make a network with the constraints.
    """
    levels = [measured.hierarchy.level_range(level) for level in range(measured.hierarchy.levels)]
    if method.rounding != "passes":
        return ((),) * len(levels)
    if method.rounding_order:
        chosen = [query.operator for query in method.rounding_order]
        return (tuple(query for query in chosen if not is_of_cells(query)),) * len(levels)
    texts = {query.text: query.operator for query in (*(method.workload or measured.queries),)}
    everybody = texts.pop("total", total(measured.schema.size))
    level_constraints = [(measured if core is None else core).constraints_of(regions) for regions in levels]
    return tuple(
        nested_passes([everybody, *texts.values()], None if constraints is None else constraints.operator)
        for constraints in level_constraints
    )


def _crossing_queries(
    measured: TableMeasurements, method: TopdownMethod, rounding_queries: Sequence[tuple[Operator, ...]]
) -> tuple[tuple[Operator, ...], ...]:
    """Return the queries that are rounded together by level: where none measures cells, and some cross the passes.

    Levels of many parents are split and rounded in batches, which take nested queries alone.
    """
    queries = [query.operator for query in (method.workload or measured.queries) if not is_of_cells(query.operator)]
    levels = measured.hierarchy.levels
    if (
        method.rounding != "passes"
        or method.rounding_order
        or any(is_of_cells(each.operator) for each in measured.queries)
    ):
        return ((),) * levels
    few = [level == 0 or len(measured.hierarchy.level_range(level - 1)) < LEAST_PARENTS for level in range(levels)]
    return tuple(
        tuple(queries) if few[level] and not nested([*passes, *queries]) else ()
        for level, passes in enumerate(rounding_queries)
    )


def _with_answers(rows: LinearRows | None, terms: Sequence[SplitTerm], tables: Floats, tolerance: float) -> LinearRows:
    """Return the rows with the answers of a finished pass added."""
    operators: list[Operator] = [term.operator for term in terms]
    answers = [term.operator.apply(tables) for term in terms]
    lower, upper = [a - tolerance for a in answers], [a + tolerance for a in answers]
    if rows is not None:
        operators, lower, upper = [rows.operator, *operators], [rows.lower, *lower], [rows.upper, *upper]
    return LinearRows(stack(operators), np.concatenate(lower, axis=1), np.concatenate(upper, axis=1))
