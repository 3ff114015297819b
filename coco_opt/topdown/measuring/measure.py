"""Measure the private tables: integer arithmetic throughout, and only queries planned from public input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coco_opt.activity import Progress
from coco_opt.operators import Operator
from coco_opt.privacy.blocks import Block
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import Exact, LevelQuery, add_noise
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import BLOCK, TableCounts
from coco_opt.topdown.measuring.feasibility_check import check_exact, meets, proved
from coco_opt.topdown.table_queries import TableQueries, noise_label


def measure_tables(
    counts: TableCounts,
    plan: TablePlan,
    *,
    source: NoiseSource,
    invariants: Sequence[Invariant] = (),
    bounds: Sequence[RegionBounds] = (),
    linear: Sequence[LinearConstraint] = (),
    levels: Sequence[str] = (),
    progress: Progress | None = None,
) -> Measurement:
    """Return the noisy measurements of every query that costs something, in every region.

    Parameters
    ----------
    counts : TableCounts
        PRIVATE: the people of every leaf.
    plan : TablePlan
        Queries and costs by level, and the neighbours.
    source : NoiseSource
        Where the noise comes from, such as ``SeededNoise`` or ``OpenDPNoise``.
    invariants : sequence of Invariant, default ()
        Answers that are published exactly. They need a plan for "replace".
    bounds, linear : sequences of RegionBounds and of LinearConstraint, default ()
        Constraints that are public already.
    levels : sequence of str, default ()
        The names of the levels, root first.
    progress : callable, optional
        Called with the number of answers done and of all.

    Returns
    -------
    Measurement
        Queries, noisy integers, noise distributions and costs.

    Raises
    ------
    ProblemError
        The plan or an invariant cannot be measured, or the noise was drawn already.
    InputError
        inconsistent-bounds, inconsistent-facts, too-large: constraints exclude each other.

    Notes
    -----
    Everything is checked before the first noise is drawn. O(runs + answers) time and a proof of the constraints; memory
    is that of the answers and one block.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon, Hierarchy, Schema, SeededNoise, Strategy, TableCounts, TablePlan
    >>> from coco_opt import measure_tables, parse_queries
    >>> tree, schema = Hierarchy.from_paths([("land", "north"), ("land", "south")]), Schema({"sex": ["female", "male"]})
    >>> people = TableCounts.from_counts(tree, schema, [[90, 95], [30, 25]])
    >>> plan = TablePlan.product(Strategy.uniform(parse_queries(["sex"], schema)), Epsilon(Fraction(1)), levels=2)
    >>> measure_tables(people, plan, source=SeededNoise(7)).cost == Epsilon(Fraction(1))
    True
    """
    table_queries = TableQueries(counts.hierarchy, counts.schema, plan, tuple(invariants), tuple(bounds), tuple(linear))
    if not meets(counts, table_queries):
        proved(table_queries)
    check_exact(counts, table_queries)
    measurement_plan = table_queries.measurement_plan(levels)
    parts = exact_parts(counts, table_queries)
    answers = add_noise(
        measurement_plan.queries, parts, measurement_plan.hierarchy, measurement_plan.per_region, source, progress
    )
    return Measurement(measurement_plan, answers, source.name, source.private)


def exact_parts(counts: TableCounts, table_queries: TableQueries, block: int = BLOCK) -> Iterator[Exact]:
    """Return the exact answers to all queries in their order, about ``block`` answers at a time; all PRIVATE."""
    return map(ExactTables.of(counts, table_queries), blocks_of(table_queries, block))


def blocks_of(table_queries: TableQueries, block: int = BLOCK) -> Iterator[Block]:
    """Yield the regions whose answers are computed together, about ``block`` answers; from public numbers alone."""
    hierarchy = table_queries.hierarchy
    for place, (level_query, _) in enumerate(_operators(table_queries)):
        regions, answers = hierarchy.level_range(level_query.level), int(level_query.size)
        step = max(1, block // answers)
        for start in range(0, len(regions), step):
            some = regions[start : start + step]
            yield Block(place, some, start * answers, len(some) * answers)


def _operators(table_queries: TableQueries) -> Iterator[tuple[LevelQuery, Operator]]:
    """Yield all queries of a measurement in their order, and how each is computed from cells."""
    for (_, query), level_query in zip(table_queries.plan.measured_queries, table_queries.noisy, strict=True):
        yield level_query, table_queries.plan.queries[query].operator
    for invariant, level_query in zip(table_queries.invariants, table_queries.exact, strict=True):
        yield level_query, invariant.query.operator


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ExactTables:
    """PRIVATE: the exact answers of any block, from counts and what each query sums."""

    counts: TableCounts
    queries: tuple[tuple[LevelQuery, Operator], ...]

    @classmethod
    def of(cls, counts: TableCounts, table_queries: TableQueries) -> ExactTables:
        """Return the answers of some counts to the queries of a measurement."""
        return cls(counts, tuple(_operators(table_queries)))

    def __call__(self, block: Block) -> Exact:
        """Return the exact answers of a block's regions, one after the other."""
        level_query, operator = self.queries[block.place]
        label = noise_label(self.counts.hierarchy, level_query.level)
        return Exact(level_query, label, self.counts.answers_to(operator, block.regions).reshape(-1))

    def __repr__(self) -> str:
        return f"ExactTables({len(self.queries)} queries: private)"
