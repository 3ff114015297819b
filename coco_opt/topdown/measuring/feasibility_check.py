"""Refuse contradictory constraints before anything is paid: public constraints alone, and with exact answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import InputError
from coco_opt.topdown.constraint import LARGEST, RegionBounds
from coco_opt.topdown.feasibility.programs import TIME_LIMIT
from coco_opt.topdown.feasibility.proof import Proof, prove
from coco_opt.topdown.measuring.counts import BLOCK, TableCounts
from coco_opt.topdown.table_queries import TableQueries


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
