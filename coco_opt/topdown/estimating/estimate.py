"""From sealed measurements to consistent integer tables: the post-processing of a top-down release in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import cpu_count

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.activity import Progress, doing
from coco_opt.array_types import Ints
from coco_opt.choices import ALL_CERTIFIED, Certificate, SolverChoices, UncertifiedGap
from coco_opt.errors import InputError, ProblemError, SolverError
from coco_opt.estimators import EstimatorRow, estimator_row
from coco_opt.execution import Executor, Threads
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.privacy.measurement import Measurement
from coco_opt.solving import check_threads
from coco_opt.topdown.estimating.implied.minimal_schema import core_fits
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates, best_linear
from coco_opt.topdown.estimating.linear.query_trees import LinearStage, linear_stage
from coco_opt.topdown.estimating.method import TopdownMethod, misfit
from coco_opt.topdown.estimating.posterior.correction import Correction, DrawnTables
from coco_opt.topdown.estimating.posterior.model import Model
from coco_opt.topdown.estimating.posterior.moved_queries import Moved
from coco_opt.topdown.estimating.posterior.result import (
    NO_INTERVALS,
    TableIntervals,
    TablesPosterior,
    Targets,
    interval_queries,
)
from coco_opt.topdown.estimating.posterior.sampler import SamplerOptions, sample_tables
from coco_opt.topdown.estimating.recursion import AfterLevel, Checkpoint, bottom_up, top_down
from coco_opt.topdown.estimating.rounding import seed_of
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.estimating.splitting.failsafe import Relaxation
from coco_opt.topdown.estimating.splitting.step import BY_BOUNDS, ImpliedRecord, split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema

_BLOCK = 256  # regions whose dense tables are in memory at a time


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablesResult:
    """Integer tables of every region, by level, root first; relaxed regions; certificates of solved problems.

    Counts are people, in the schema's allowed cells; a parent's table is the sum of its children's. ``uncertified_gap``
    counts the fits and roundings that were not proved nearest, ``implied`` says how implied constraints were enforced.
    ``posterior`` are the draws of estimation "posterior", ``linear`` the linear stage of "full", which it began with.
    """

    hierarchy: Hierarchy
    schema: Schema
    tables: tuple[SparseTables, ...]
    relaxed: tuple[Relaxation, ...]
    certificates: tuple[Certificate, ...]
    uncertified_gap: UncertifiedGap = ALL_CERTIFIED
    implied: ImpliedRecord = BY_BOUNDS
    posterior: TablesPosterior | None = None
    linear: LinearStage | None = None

    def level(self, level: int) -> Ints:
        """Return the dense tables int64[regions of level, cells] of a level; mind the memory."""
        if not 0 <= level < len(self.tables):
            raise InputError("unknown-level", f"there is no level {level}; levels are 0 to {len(self.tables) - 1}")
        return self.tables[level].dense()

    def answers(self, operator: Operator, level: int) -> Ints:
        """Return a query's answers int64[regions of level, answers], a block of regions at a time."""
        tables = self.tables[level]
        starts = range(0, tables.regions, _BLOCK)
        return np.concatenate([operator.apply(tables.dense(at, min(at + _BLOCK, tables.regions))) for at in starts])

    def intervals_of(self, region: str) -> TableIntervals:
        """Return the intervals of a region by its path from the root; InputError (no-intervals) without any."""
        if self.posterior is None or not self.posterior.has_intervals:
            raise InputError("no-intervals", NO_INTERVALS)
        at = self.hierarchy.index(region)
        level, places = self.hierarchy.within_level(range(at, at + 1))
        return self.posterior.of(places.start, level, self.tables[level])

    def __getitem__(self, region: str) -> Ints:
        """Return a region's table int64[cells], by its path. Raises HierarchyError for an unknown one."""
        at = self.hierarchy.index(region)
        level, places = self.hierarchy.within_level(range(at, at + 1))
        return np.asarray(self.tables[level].dense(places.start, places.stop)[0], dtype=np.int64)

    def __repr__(self) -> str:
        more = f", {len(self.relaxed)} relaxed" if self.relaxed else ""
        return f"TablesResult({self.hierarchy!r}, {self.schema!r}{more})"


def estimate_tables(
    measurement: Measurement,
    method: TopdownMethod | None = None,
    solvers: SolverChoices | None = None,
    *,
    threads: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
    after_level: AfterLevel | None = None,
    resume_from: Checkpoint | None = None,
    note: Callable[[str], None] | None = None,
) -> TablesResult:
    """Return nonnegative integer tables that add up and meet the measurement's invariants and bounds.

    This reads the measurement only: it is post-processing and costs no privacy.

    Parameters
    ----------
    measurement : Measurement
        Noisy measurements of tables.
    method : TopdownMethod, optional
        Estimation, rounding and how implied constraints are enforced.
    solvers : SolverChoices, optional
        A solver for each kind of problem; the fast exact solvers if they are left out. With ``fallback``, the default,
        a fit that solvers miss ends with tables that meet the constraints, and ``uncertified_gap`` counts it. If even
        the failsafe finds none, all tables are estimated again with the minimal schema, which always has some.
    threads : int, default 1
        How many threads split regions in parallel. The result does not depend on it.
    executor : Executor, optional
        Workers to use in place of threads.
    progress : callable, optional
        Called with the number of regions done and of all.
    after_level : callable, optional
        Called with a checkpoint after each level.
    resume_from : Checkpoint, optional
        Where to continue (top-down estimations only).
    note : callable, optional
        Called with a sentence where a method is given up because it is slow.

    Returns
    -------
    TablesResult
        ``result["nation/north"]`` is the table of a region, int64 (cells,), by its path from the root.

    Raises
    ------
    ProblemError
        The method cannot read what was measured, or no tables meet the constraints; the message names the region.
    SolverError
        A solver misses its tolerance; the message names the region.

    Notes
    -----
    Source: Abowd et al. 2022, the TopDown algorithm.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon, Hierarchy, Schema, SeededNoise, Strategy, TableCounts, TablePlan
    >>> from coco_opt import estimate_tables, measure_tables, parse_queries
    >>> tree, schema = Hierarchy.from_paths([("land", "north"), ("land", "south")]), Schema({"sex": ["female", "male"]})
    >>> people = TableCounts.from_counts(tree, schema, [[90, 95], [30, 25]])
    >>> plan = TablePlan.product(Strategy.uniform(parse_queries(["sex"], schema)), Epsilon(Fraction(1)), levels=2)
    >>> tables = estimate_tables(measure_tables(people, plan, source=SeededNoise(7)))
    >>> bool((tables["land"] == tables["land/north"] + tables["land/south"]).all())
    True
    """
    check_threads(threads)
    run_by = Threads(int(threads)) if executor is None else executor
    chosen = TopdownMethod() if method is None else method
    used = SolverChoices() if solvers is None else solvers
    measured = TableMeasurements.of(measurement)
    _check_method(measured, chosen)
    if chosen.seed is None:
        chosen = replace(chosen, seed=seed_of(measurement))
    if chosen.estimation == "posterior":
        if resume_from is not None:
            raise ProblemError('estimation "posterior" keeps no levels and cannot resume')
        first = replace(chosen, estimation="full")
        start = estimate_tables(measurement, first, used, executor=run_by, note=note)
        return _least_expected(measurement, measured, chosen, used, start, run_by, progress)
    row = estimator_row("tables", chosen.estimation)
    if row.target:
        workload = chosen.workload or measured.queries
        measured = _with_tables(measured, row, row.load()(measurement, chosen, used))
        chosen = replace(chosen, estimation="classic", workload=workload, passes=())
    with doing("estimating with all information"):
        workers = min(run_by.workers, cpu_count() or 1)
        stage = linear_stage(measured, workers) if chosen.estimation == "full" else None
    constraints = measured.invariants
    core, resumed = (None, False) if resume_from is None else (resume_from.core, resume_from.level >= 0)
    with doing("deriving what the constraints imply"):
        step = split_step(measured, chosen, used.fresh(), core, stage, resumed=resumed)
    if step.slow and note is not None:
        note(step.slow)
    if chosen.estimation == "bottom_up":
        if resume_from is not None:
            raise ProblemError("bottom-up estimation has one level to do and cannot resume")
        checkpoint = bottom_up(step, executor=run_by, progress=progress)
        if after_level is not None:
            after_level(checkpoint)
    else:
        try:
            checkpoint = top_down(
                step, executor=run_by, progress=progress, after_level=after_level, resume_from=resume_from
            )
        except (ProblemError, SolverError):
            # Tables estimated from above may not extend to those below. The classes of all regions together always do.
            if not used.fallback or not constraints or step.core is not None or not core_fits(constraints.system):
                raise
            step = split_step(measured, replace(chosen, implied="minimal_schema"), used.fresh(), stage=stage)
            checkpoint = top_down(step, executor=run_by, progress=progress)
    used.merge(checkpoint.certificates)
    return TablesResult(
        measured.hierarchy,
        measured.schema,
        checkpoint.tables,
        checkpoint.relaxed,
        used.certificates,
        step.solvers.uncertified_gap,
        step.implied,
        linear=stage,
    )


def _with_tables(measured: TableMeasurements, row: EstimatorRow, tables: Sequence[ArrayLike]) -> TableMeasurements:
    """Return an estimator's tables as the answers to fit: the nearest that meet all constraints are released.

    Raises ProblemError where they are not one array of finite numbers for each level.
    """
    tree, cells = measured.hierarchy, measured.schema.size
    shapes = [(len(tree.level_range(level)), cells) for level in range(tree.levels)]
    values = [np.array(table, dtype=np.float64) for table in tables]
    if [table.shape for table in values] != shapes or not all(np.isfinite(table).all() for table in values):
        raise ProblemError(f"estimator {row.name!r} must return finite numbers of the shapes {shapes}")
    query, ones = parse_query("detail", measured.schema), np.ones((tree.levels, 1))
    answers = tuple((table,) for table in values)
    return replace(measured, queries=(query,), answers=answers, variances=ones, by_region={})


def _least_expected(
    measurement: Measurement,
    measured: TableMeasurements,
    method: TopdownMethod,
    solvers: SolverChoices,
    start: TablesResult,
    executor: Executor,
    progress: Progress | None,
) -> TablesResult:
    """Sample all tables from those of ``start`` on, and return the tables of least expected error.

    Where moves may not connect all tables that meet the constraints, those of ``start`` are the result.
    """
    model = Model.of(measurement, measured)
    if not model.connected:
        return replace(start, posterior=TablesPosterior(None, None, (), 0.0))
    assert method.seed is not None
    with doing("drawing tables from the posterior"):
        attributes = [parse_query(name, measured.schema) for name in measured.schema.attributes]
        dividing = (*attributes, *measured.queries)
        options = SamplerOptions(seconds=method.time)
        sampled = sample_tables(model, start.tables, method.seed, options, progress, dividing)
    drawn = DrawnTables(measured.hierarchy, sampled.draws, measured.schema.size)
    step = split_step(measured, replace(method, implied=start.implied.method), solvers.fresh())
    queries = interval_queries(parse_query("detail", measured.schema), method.workload or measured.queries)
    with doing("comparing with linear estimates"):
        linear = best_linear(measured.own, full=False, stage=start.linear)
        of_level = tuple(query.operator for query in queries)
        before, moved = drawn, Moved.of(drawn, linear, of_level, start.tables[-1])
        drawn = moved.drawn
        step = replace(step, targets=Targets.of(drawn, linear, step.rounding_queries))
        of_levels = (of_level,) * measured.hierarchy.levels
        correction = Correction.of(drawn, linear, of_levels, widened=before, moved=moved.rows)
    with doing("rounding the tables of least expected error"):
        checkpoint = top_down(step, executor=executor)
    solvers.merge(checkpoint.certificates)
    return replace(
        start,
        tables=checkpoint.tables,
        relaxed=checkpoint.relaxed,
        certificates=solvers.certificates,
        uncertified_gap=step.solvers.uncertified_gap,
        implied=step.implied,
        posterior=TablesPosterior(drawn, sampled, queries, method.intervals, correction),
    )


def _check_method(measured: TableMeasurements, method: TopdownMethod) -> None:
    constraints = measured.invariants
    names, levels = [query.name for query in measured.queries], {level for level, _ in measured.measured_queries}
    unfit = misfit(
        method, names, levels, measured.hierarchy.levels, {constraint.level for constraint in constraints.constraints}
    )
    if unfit is not None:
        raise ProblemError(unfit[1])
    if method.estimation == "bottom_up" and measured.by_region:
        leaves = measured.hierarchy.levels - 1
        of_queries = [measured.region_variances(leaves, query) for query in range(len(measured.queries))]
        unknown = np.flatnonzero(np.isinf(of_queries).all(axis=0))
        if unknown.size:
            path = measured.hierarchy.paths[measured.hierarchy.leaves[int(unknown[0])]]
            message = f"bottom_up sums the leaves, and {unknown.size:,} of them have no answers, first {path!r}"
            raise ProblemError(f"{message}: use 'full' or 'posterior'")


def linear_estimates(measurement: Measurement, *, full: bool | None = None) -> LinearEstimates:
    """Return the linear unbiased estimates of the same measurement, to release next to the integer tables.

    They may be negative and fractional; ``standard_errors`` says exactly how sure they are. The best from all answers
    of all regions and all that is exact, where that is affordable. With ``full`` they are a ``FullInformation``, which
    has covariances and intervals too. Raises ProblemError where this does not fit in memory, or where the answers of
    some leaf do not determine what is measured anywhere.
    """
    return best_linear(TableMeasurements.of(measurement), full)
