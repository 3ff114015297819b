"""Stated and actual times of estimations with constraints: no run may take twice what was stated before it.

172 configurations of simulated persons: the 48 of ``kifer2019/census``, 24 of the same with 210 to 2,100 cells, and 100
random ones (2 to 5 levels, 20 to 300 leaves, 8 to 600 cells, one to four constraints of random kinds that the data
meet). The stated time is what ``plan`` says of an estimation: a rehearsal on other simulated persons, with the default
choice of how implied constraints are kept. Times are CPU seconds of this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.kifer2019.census import configs
from coco_experiments.kifer2019.facilities import blocks
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    LinearConstraint,
    RegionBounds,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    measure_tables,
    parse_query,
)
from coco_opt.topdown.estimating.estimate import TablesResult
from coco_opt.topdown.kind.rehearsal import estimation_seconds
from coco_opt.topdown.table_queries import TableQueries

NAME = "kifer2019/constraint_times"
AGES = (30, 75)
RANDOM = 100
MOST = 2.0
SECONDS = 0.5  # below which a run is not slow, however little was stated
COLUMNS = ("configuration", "cells", "regions", "constraints", "method", "stated (s)", "actual (s)", "ratio")


@dataclass(frozen=True)
class Case:
    """One configuration: the arguments of ``blocks``, or the seed of a random one."""

    name: str
    types: int = 0
    count: int = 0
    ages: int = 1
    exact: bool = False
    seed: int = 1

    def measurement(self) -> Measurement:
        """Return its seeded measurement."""
        if not self.types:
            return random_measurement(self.seed)
        return blocks(self.types, self.count, self.seed, ages=self.ages, exact=self.exact)[0]


def cases() -> list[Case]:
    """Return all 172."""
    every = [(*config, "census") for config in configs()]
    every += [
        (types, 100, ages, exact, seed, "cells")
        for types, ages, exact, seed in product((7, 14, 28), AGES, (False, True), (1, 2))
    ]
    listed = [
        Case(
            f"{name}: {types} types x {ages}, {count} blocks, {'exact' if exact else 'some'}, seed {seed}",
            types,
            count,
            ages,
            exact,
            seed,
        )
        for types, count, ages, exact, seed, name in every
    ]
    return listed + [Case(f"random {seed}", seed=seed) for seed in range(RANDOM)]


def random_measurement(seed: int) -> Measurement:
    """Return a measurement of random persons, regions and constraints that these persons meet."""
    rng = np.random.default_rng([17, seed])
    tree, schema = _random_tree(rng), _random_schema(rng)
    share = rng.dirichlet(np.full(schema.size, 0.3))
    people = rng.poisson(rng.gamma(1.0, 60.0, (len(tree.leaves), 1)) * share).astype(np.int64)
    tables = tree.aggregate(people)
    invariants, bounds, linear = [], [], []
    for _ in range(int(rng.integers(1, 5))):
        level, names = int(rng.integers(tree.levels)), list(schema.attributes)
        query = parse_query(str(rng.choice(["total", *names, " * ".join(names[:2])])), schema)
        regions = tree.level_range(level)
        answers = query.operator.apply(tables[regions.start : regions.stop])
        kind = int(rng.integers(4))
        if kind == 0:
            invariants.append(Invariant(query, level))
        elif kind == 1:
            bounds.append(RegionBounds(query, level, answers // 2, np.where(answers > 0, UNBOUNDED, 0)))
        elif kind == 2:
            bounds.append(RegionBounds(query, level, np.maximum(answers - 2, 0), answers + 3))
        else:
            linear.append(_random_relation(rng, tree, schema, tables, level))
    queries = [parse_query(text, schema) for text in ("total", next(iter(schema.attributes)), "detail")]
    plan = TablePlan.product(Strategy.uniform(queries), Epsilon(Fraction(1)), tree.levels, neighbours="replace")
    return measure_tables(
        TableCounts.from_counts(tree, schema, people),
        plan,
        source=SeededNoise(seed),
        invariants=invariants,
        bounds=bounds,
        linear=linear,
    )


def _random_tree(rng: np.random.Generator) -> Hierarchy:
    leaves, levels = int(rng.integers(20, 301)), int(rng.integers(2, 6))
    fan_out = max(2, round(leaves ** (1 / (levels - 1))))
    paths = []
    for leaf in range(leaves):
        above = [f"{level}: {leaf // fan_out ** (levels - 1 - level)}" for level in range(1, levels)]
        paths.append(("land", *above))
    return Hierarchy.from_paths(paths)


def _random_schema(rng: np.random.Generator) -> Schema:
    sizes = [int(rng.integers(2, 9)) for _ in range(int(rng.integers(2, 4)))]
    sizes[-1] = max(sizes[-1], 4)
    return Schema({f"a{number}": [f"v{value}" for value in range(size)] for number, size in enumerate(sizes)})


def _random_relation(
    rng: np.random.Generator, tree: Hierarchy, schema: Schema, tables: np.ndarray, level: int
) -> LinearConstraint:
    """Return a constraint between two counts, with the constant that makes the tables meet it."""
    regions = tree.level_range(level)
    first, second = (f"[{name} = {rng.choice(list(values))}]" for name, values in list(schema.attributes.items())[:2])
    times = int(rng.integers(1, 4))
    relation = LinearConstraint.of(f"{first} <= {times} * {second}", tree, schema, level)
    most = int((tables[regions.start : regions.stop] @ relation.row(schema)).max())
    return LinearConstraint.of(f"{first} <= {times} * {second} + {max(0, most)}", tree, schema, level)


def row_of(case: Case) -> tuple[tuple[Cell, ...], str]:
    """Return the row of one configuration, and what is wrong with it, "" for nothing."""
    measurement, method = case.measurement(), TopdownMethod()
    table_queries = TableQueries.of(measurement.measurement_plan)
    stated = estimation_seconds(table_queries, method, lambda: SolverChoices(fallback=True))
    try:
        result, actual = _timed(measurement, method)
        if actual > MOST * stated:  # once more: a first run may have compiled what others never took
            result, actual = _timed(measurement, method)
    except (ProblemError, SolverError) as error:
        return (case.name, *[None] * (len(COLUMNS) - 1)), f"{case.name}: not released: {error}"
    constraints = len(table_queries.invariants) + len(table_queries.constraints)
    size, regions = table_queries.schema.size, measurement.hierarchy.regions
    return compared((case.name, size, regions, constraints, result.implied.method), stated, actual)


def _timed(measurement: Measurement, method: TopdownMethod) -> tuple[TablesResult, float]:
    start = process_time()
    result = estimate_tables(measurement, method, SolverChoices(fallback=True))
    return result, process_time() - start


def compared(start: tuple[Cell, ...], stated: float, actual: float) -> tuple[tuple[Cell, ...], str]:
    """Return a row with both times, and what is wrong with them, "" for nothing."""
    ratio = actual / stated
    slow = actual > SECONDS and ratio > MOST
    return (*start, stated, actual, ratio), f"{start[0]}: {actual:.1f} s, stated {stated:.1f}" if slow else ""


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Estimate every configuration; fails where one takes more than twice what was stated."""
    listed = cases()
    listed = [listed[0], listed[48], listed[-1]] if small else listed
    row_of(listed[0])  # compiles
    rows, failures = [], []
    for done, case in enumerate(listed, 1):
        row, wrong = row_of(case)
        rows.append(row)
        failures += [wrong] if wrong else []
        reporter.progress(NAME, done, len(listed))
    measured = [row for row in rows if row[-1] is not None]
    ratios = np.array([row[-1] for row in measured], dtype=np.float64)
    notes = (
        f"{len(measured)} of {len(listed)} released; actual over stated time: median {np.median(ratios):.2f}, largest "
        f"{ratios.max():.2f}; the longest run took {max(float(row[-2] or 0) for row in measured):.1f} s.",
    )
    table = Table("stated and actual times of estimations with constraints", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, failures=failures)
