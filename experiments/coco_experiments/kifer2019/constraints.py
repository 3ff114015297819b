"""Constraints with known answers: every feasible set is released, every contradiction refused before payment.

Instances are MADE from a random table, so that constraints hold by construction, in named classes; half of each class
is then perturbed to a contradiction that holds by construction too. What is counted is what ``measure_tables`` and
``estimate_tables`` do with them: a release is checked against every constraint in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.choices import SolverChoices
from coco_opt.errors import InputError, ProblemError, SolverError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    LinearConstraint,
    RegionBounds,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TableQueries,
    estimate_tables,
    measure_tables,
    parse_query,
)
from coco_opt.topdown.measuring.feasibility_check import proved
from coco_opt.topdown.noisy_measurements import TableMeasurements

Ints = np.ndarray
NAME = "kifer2019/constraints"
INSTANCES, SMALL = 5_000, 20
COLUMNS = ("class", "instances", "released", "refused", "undecided", "wrong", "failsafes", "seconds")


@dataclass(eq=False)
class Instance:
    """A made table with constraints, and whether some integer table meets them all: known by construction."""

    tree: Hierarchy
    schema: Schema
    leaves: Ints
    bounds: list[RegionBounds] = field(default_factory=list)
    linear: list[LinearConstraint] = field(default_factory=list)
    exact: list[Invariant] = field(default_factory=list)
    feasible: bool = True

    def at(self, level: int) -> Ints:
        """Return the true tables of a level."""
        regions = self.tree.level_range(level)
        return self.tree.aggregate(self.leaves)[regions.start : regions.stop]

    def bound(self, text: str, level: int, spare: Callable[[tuple[int, ...]], Ints], *, floor: bool = True) -> None:
        """Add bounds that the true answers meet with something to spare on both sides."""
        query = parse_query(text, self.schema)
        true = query.operator.apply(self.at(level))
        lower = np.maximum(true - spare(true.shape), 0) if floor else np.zeros_like(true)
        self.bounds.append(RegionBounds(query, level, lower, true + spare(true.shape)))


def generated(rng: np.random.Generator, types: int) -> Instance:
    """Return a random sparse table of some types and two ages in 2 to 12 blocks."""
    towns, size = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    tree = Hierarchy.from_paths([("land", f"town {t}", f"block {b}") for t in range(towns) for b in range(size)])
    schema = Schema({"kind": [f"k{k}" for k in range(types)], "age": ["minor", "adult"]})
    leaves = rng.poisson(rng.gamma(0.5, 4.0, (towns * size, 2 * types))).astype(np.int64)
    return Instance(tree, schema, leaves)


def nested_public(rng: np.random.Generator, types: int, *, feasible: bool) -> Instance:
    """Facilities by type, blocks of publicly known totals; or more people in facilities than in the block."""
    instance = generated(rng, types)
    instance.bound("kind", 2, lambda shape: rng.integers(0, 3, shape))
    instance.bound("total", 2, lambda shape: np.zeros(shape, np.int64))
    if not feasible:
        kinds, totals = instance.bounds
        lower, block = kinds.lower.copy(), int(rng.integers(len(instance.leaves)))
        lower[block] = _spread(rng, int(totals.lower[block, 0]) + int(rng.integers(1, 3)), types)
        instance.bounds[0] = RegionBounds(kinds.query, 2, lower, np.maximum(kinds.upper, lower))
    instance.feasible = feasible
    return instance


def nested_data(rng: np.random.Generator, types: int, *, feasible: bool) -> Instance:
    """Facilities by type, block totals taken from the data; or facilities that hold more than the data's block."""
    instance = nested_public(rng, types, feasible=feasible)
    del instance.bounds[1]
    instance.exact.append(Invariant(parse_query("total", instance.schema), 2))
    return instance


def upper_levels(rng: np.random.Generator, types: int, *, feasible: bool) -> Instance:
    """Totals of towns and types of the land next to block bounds; or a land of fewer people than its towns."""
    instance = generated(rng, types)
    instance.bound("kind", 2, lambda shape: rng.integers(0, 4, shape))
    instance.bound("total", 1, lambda shape: np.zeros(shape, np.int64))
    instance.bound("kind", 0, lambda shape: rng.integers(0, 2, shape))
    if not feasible:
        kinds = instance.bounds[2]
        room = int(instance.bounds[1].lower.sum()) - int(rng.integers(1, 3))
        upper = _spread(rng, max(room, 0), types)[None, :]
        if room < 0:
            return upper_levels(rng, types, feasible=False)
        instance.bounds[2] = RegionBounds(kinds.query, 0, np.minimum(kinds.lower, upper), upper)
    instance.feasible = feasible
    return instance


def overlapping(rng: np.random.Generator, types: int, *, feasible: bool) -> Instance:
    """Two marginals of each block; or one whose parts are more than the other's allow."""
    instance = generated(rng, types)
    instance.bound("kind", 2, lambda shape: rng.integers(0, 2, shape))
    instance.bound("age", 2, lambda shape: rng.integers(0, 2, shape))
    if not feasible:
        kinds, ages = instance.bounds
        block = int(rng.integers(len(instance.leaves)))
        lower = kinds.lower.copy()
        lower[block] = _spread(rng, int(ages.upper[block].sum()) + 1, types)
        instance.bounds[0] = RegionBounds(kinds.query, 2, lower, np.maximum(kinds.upper, lower))
    instance.feasible = feasible
    return instance


def linear(rng: np.random.Generator, types: int, *, feasible: bool) -> Instance:
    """Constraints with integer coefficients between answers, next to bounds; or two whose sum contradicts a third."""
    instance = generated(rng, types)
    instance.bound("kind", 2, lambda shape: rng.integers(0, 4, shape), floor=False)
    rows = []
    for number in range(2):
        weights = rng.integers(-2, 3, 2 * types)
        weights[int(rng.integers(2 * types))] = 1
        labels = instance.schema.labels()
        terms = tuple((int(w), label.replace(",", " &")) for w, label in zip(weights, labels, strict=True) if w)
        most = instance.leaves @ weights + rng.integers(0, 2, len(instance.leaves))
        none = np.full(most.shape, -UNBOUNDED)
        instance.linear.append(LinearConstraint(f"rule {number}", terms, 2, none, most))
        rows.append((weights, most))
    if not feasible:
        weights, most = rows[0][0] + rows[1][0], rows[0][1] + rows[1][1] + 1
        labels = instance.schema.labels()
        terms = tuple((int(w), label.replace(",", " &")) for w, label in zip(weights, labels, strict=True) if w)
        if not terms:
            return linear(rng, types, feasible=False)
        instance.linear.append(LinearConstraint("rule 2", terms, 2, most, np.full(most.shape, UNBOUNDED)))
    instance.feasible = feasible
    return instance


CLASSES: dict[str, Callable[..., Instance]] = {
    "nested, public": nested_public,
    "nested, data-taken": nested_data,
    "nested, several levels": upper_levels,
    "overlapping marginals": overlapping,
    "linear constraints": linear,
}


def drawn(name: str, seed: int) -> Instance:
    """Return the instance of a class and seed: 1 to 28 types, every second one a contradiction."""
    rng = np.random.default_rng([seed, *name.encode()])
    types = int(rng.choice([1, 2, 3, 5, 8, 14, 28], p=[0.1, 0.2, 0.2, 0.2, 0.15, 0.1, 0.05]))
    return CLASSES[name](rng, types, feasible=seed % 2 == 0)


def outcome_of(instance: Instance, seed: int) -> tuple[str, int]:
    """Return "released", "refused" or "undecided" where that is right, else what went wrong; and relaxed parents."""
    counts = TableCounts.from_counts(instance.tree, instance.schema, instance.leaves)
    strategy = Strategy.uniform([parse_query("total", instance.schema), parse_query("detail", instance.schema)])
    plan = TablePlan.product(strategy, Epsilon(Fraction(1)), instance.tree.levels, neighbours="replace")
    try:
        measurement = measure_tables(
            counts,
            plan,
            source=SeededNoise(seed),
            invariants=instance.exact,
            bounds=instance.bounds,
            linear=instance.linear,
        )
    except InputError as error:
        return ("refused" if not instance.feasible else f"wrong: refused a feasible set ({error})"), 0
    if not instance.feasible:
        table_queries = TableQueries(
            instance.tree, instance.schema, plan, tuple(instance.exact), tuple(instance.bounds), tuple(instance.linear)
        )
        undecided = proved(table_queries).verdict == "undecided"
        return ("undecided" if undecided else "wrong: a contradiction was paid for"), 0
    try:
        result = estimate_tables(measurement, solvers=SolverChoices(fallback=True))
    except (ProblemError, SolverError) as error:
        return f"wrong: no tables ({error})", 0
    measurements = TableMeasurements.of(measurement)
    for level in range(instance.tree.levels):
        constraints, tables = measurements.constraints_of(instance.tree.level_range(level)), result.level(level)
        if (tables < 0).any() or (constraints is not None and constraints.broken_by(tables).any()):
            return "wrong: a released table breaks a constraint", 0
    return "released", len(result.relaxed)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Try all instances; fails for a wrong table, a wrong refusal, a contradiction paid for, or 1 % undecided."""
    each = (SMALL if small else INSTANCES) // len(CLASSES)
    rows: list[tuple[Cell, ...]] = []
    failures = []
    for place, name in enumerate(CLASSES):
        outcomes: Counter[str] = Counter()
        relaxed, start = 0, perf_counter()
        for seed in range(each):
            outcome, changed = outcome_of(drawn(name, seed), seed)
            outcomes[outcome.split(":")[0]] += 1
            relaxed += changed
            if outcome.startswith("wrong"):
                failures.append(f"{name}, seed {seed}: {outcome.removeprefix('wrong: ')}")
            reporter.progress(NAME, place * each + seed + 1, each * len(CLASSES))
        counts = (outcomes[key] for key in ("released", "refused", "undecided", "wrong"))
        rows.append((name, each, *counts, relaxed, perf_counter() - start))
        if outcomes["undecided"] > 0.01 * each:
            failures.append(f"{name}: {outcomes['undecided']} of {each} undecided")
    notes = ("Half of the instances of a class are contradictions; undecided ones are said to be, before payment.",)
    table = Table("constraints with known answers", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, failures=failures)


def _spread(rng: np.random.Generator, people: int, types: int) -> Ints:
    """Return people shared out among types at random."""
    return np.asarray(rng.multinomial(people, np.full(types, 1.0 / types)), np.int64)
