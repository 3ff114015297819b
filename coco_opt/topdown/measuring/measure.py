"""Measure the private tables: integer arithmetic throughout, and only queries planned from public input.

Refuse contradictory constraints before anything is paid: public constraints alone, and with exact answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Floats
from coco_opt.errors import InputError
from coco_opt.operators import Operator
from coco_opt.privacy.blocks import Block
from coco_opt.privacy.measurement import Drawing, Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import Exact, LevelQuery
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import LARGEST, LinearConstraint, RegionBounds
from coco_opt.topdown.feasibility.conflict import Proof, prove
from coco_opt.topdown.feasibility.programs import TIME_LIMIT
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measuring.counts import BLOCK, TableCounts
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
    exact = exact_parts(counts, table_queries)
    return Drawing.of(table_queries.measurement_plan(levels), exact, source, progress).measurement()


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


def proved(table_queries: TableQueries, time_limit: float = TIME_LIMIT) -> Proof:
    """Return the proof that some integer table meets all public constraints, or that this is undecided.

    Raises InputError (inconsistent-facts) naming a smallest set of contradictory constraints.
    """
    return _consistent_proof(prove(table_queries.public_constraints().system, time_limit=time_limit))


def check_exact(counts: TableCounts, table_queries: TableQueries) -> None:
    """Raise InputError where the true answers of invariants contradict each other or the public constraints.

    Data that meet every public constraint are themselves the proof. Otherwise constraints and exact answers, which
    become public with the release, are proved like public constraints alone. Codes: inconsistent-bounds and
    inconsistent-facts, which name regions and constraints, and too-large; messages hold no count. A constraint that is
    declared as taken from the data must hold in them: false-fact names it.
    """
    _check_data_constraints(counts, table_queries)
    if not table_queries.invariants:
        return
    if int(counts.counts.sum()) >= LARGEST:
        raise InputError("too-large", "exact answers are kept for tables of fewer than 2^40 persons in all")
    if meets(counts, table_queries):
        return
    exact = [
        RegionBounds.exact(
            invariant.query,
            invariant.level,
            counts.answers_to(invariant.query.operator, counts.hierarchy.level_range(invariant.level)),
        )
        for invariant in table_queries.invariants
    ]
    _consistent_proof(prove(table_queries.public_constraints(exact).system))


def _check_data_constraints(counts: TableCounts, table_queries: TableQueries) -> None:
    """Raise InputError for a constraint that is declared as taken from the data but does not hold in them."""
    bounds = [bound for bound in table_queries.bounds if bound.source == "data"]
    linear = [constraint for constraint in table_queries.linear if constraint.source == "data"]
    data_constraints = [replace(table_queries, bounds=(bound,), linear=()) for bound in bounds]
    data_constraints += [replace(table_queries, bounds=(), linear=(constraint,)) for constraint in linear]
    for alone in data_constraints:
        if not meets(counts, alone):
            name = alone.linear[0].text if alone.linear else alone.bounds[0].query.name
            message = "is declared as taken from the data, and does not hold in them: correct it, or its source"
            raise InputError("false-fact", f"the constraint {name!r} {message}")


def meets(counts: TableCounts, table_queries: TableQueries) -> bool:
    """Return whether the data meet every public constraint, which proves them consistent; PRIVATE."""
    every_level = range(table_queries.hierarchy.levels)
    return next(_broken(counts, table_queries, every_level), None) is None


@dataclass(frozen=True, eq=False, slots=True)
class Contradiction:
    """A constraint of one region that the private table does not meet: PRIVATE, ``answer`` above all."""

    label: str
    region: int
    lower: int
    upper: int
    answer: int
    row: Floats
    """The coefficient of every cell (cells,)."""


def contradictions(counts: TableCounts, table_queries: TableQueries) -> Iterator[Contradiction]:
    """Yield where the private table contradicts structural and public constraints, level by level from the leaves."""
    if meets(counts, table_queries):
        return
    for level in reversed(range(table_queries.hierarchy.levels)):
        bounds = tuple(each for each in table_queries.bounds if each.source != "data" and each.level == level)
        linear = tuple(each for each in table_queries.linear if each.source != "data" and each.level == level)
        yield from _broken(counts, replace(table_queries, bounds=bounds, linear=linear), (level,))


def _broken(counts: TableCounts, table_queries: TableQueries, levels: Iterable[int]) -> Iterator[Contradiction]:
    """Yield what the regions of some levels do not meet."""
    all_constraints = table_queries.public_constraints()
    for level in levels:
        regions = table_queries.hierarchy.level_range(level)
        constraints = all_constraints.constraints_of(regions)
        if constraints is None:
            continue
        step = max(1, BLOCK // max(1, constraints.operator.answers))
        for start in range(0, len(regions), step):
            some = constraints.at(slice(start, start + step))
            answers = counts.answers_to(some.operator, regions[start : start + step])
            for place, row in np.argwhere((answers < some.lower) | (answers > some.upper)).tolist():
                sides = int(some.lower[place, row]), int(some.upper[place, row]), int(answers[place, row])
                weights = some.operator.adjoint(np.eye(1, some.operator.answers, row)[0])
                yield Contradiction(some.labels[row], regions[start + place], *sides, weights)


def _consistent_proof(proof: Proof) -> Proof:
    if proof.verdict == "conflict":
        raise InputError("inconsistent-facts", proof.message)
    return proof
