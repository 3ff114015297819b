"""Implied constraints by every method against enumeration, on random small instances.

Two leaves of at most three persons a cell, constraints that a random table meets, and towns near those that can be
split. A town is accepted where no implied constraint refuses it. Every method must accept what some leaves, enumerated,
add up to; with known totals and bounds on single types nothing else, for integers are claimed there. For constraints
that cross and for rules with coefficients fractional leaves are claimed: what elimination refuses in exact rationals
must be refused. The proof before payment claims integers everywhere.

Elimination is Fourier-Motzkin's in exact rationals, redundant rows removed. Rows say ``weights @ x >= side``.
Eliminating a variable pairs every row that bounds it from below with every one that bounds it from above; what is left
is necessary and sufficient for a fractional value to exist. Doubly exponential: for small general systems, and the
oracle of the other ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import gcd, lcm
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.topdown import UNBOUNDED, LinearConstraint, RegionBounds, Schema, parse_query
from coco_opt.topdown.estimating.implied.cuts import CutOracle
from coco_opt.topdown.feasibility.conflict import prove
from coco_opt.topdown.feasibility.system import ConstraintSystem

MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Inequality:
    """weights @ x >= side, in smallest integer weights; ``origin`` are the rows it combines."""

    weights: tuple[int, ...]
    side: Fraction
    origin: frozenset[int] = frozenset()

    @classmethod
    def of(cls, weights: Iterable[int | Fraction], side: int | Fraction, origin: Iterable[int] = ()) -> Inequality:
        """Return the row with its weights scaled to coprime integers."""
        exact = [Fraction(weight) for weight in weights]
        times = lcm(*(weight.denominator for weight in exact)) if exact else 1
        integers = [int(weight * times) for weight in exact]
        common = gcd(*integers) or 1
        return cls(tuple(weight // common for weight in integers), Fraction(side) * times / common, frozenset(origin))


def eliminated(rows: Sequence[Inequality], variables: Sequence[int]) -> list[Inequality]:
    """Return rows without some variables that hold exactly where values of these exist; weights of the rest alone.

    Chernikov's rule drops rows that combine more rows than one plus the variables eliminated; exact multipliers drop
    redundant ones. Raises ProblemError where more than ``MOST_ROWS`` rows arise.
    """
    current = [Inequality(row.weights, row.side, frozenset({place})) for place, row in enumerate(rows)]
    for done, variable in enumerate(variables, start=1):
        combined = [row for row in current if row.weights[variable] == 0]
        below = [row for row in current if row.weights[variable] > 0]
        above = [row for row in current if row.weights[variable] < 0]
        for lower in below:
            for upper in above:
                origin = lower.origin | upper.origin
                if len(origin) > done + 1:
                    continue
                up, down = -upper.weights[variable], lower.weights[variable]
                weights = [up * a + down * b for a, b in zip(lower.weights, upper.weights, strict=True)]
                combined.append(Inequality.of(weights, up * lower.side + down * upper.side, origin))
        current = _tightest(combined)
        if len(current) > MOST_ROWS:
            raise ProblemError(f"elimination comes to more than {MOST_ROWS:,} rows: the system is too large for it")
    gone = set(variables)
    left = [Inequality.of([w for place, w in enumerate(row.weights) if place not in gone], row.side) for row in current]
    return irredundant(_tightest(left))


def irredundant(rows: Sequence[Inequality]) -> list[Inequality]:
    """Return rows without those that others imply, as multipliers prove in exact rationals; the last first."""
    needed = [row for row in rows if any(row.weights) or row.side > 0]
    for row in list(reversed(needed)):
        rest = [other for other in needed if other is not row]
        if implied(row, rest):
            needed = rest
    return needed


def _tightest(rows: Iterable[Inequality]) -> list[Inequality]:
    """Return one row for each set of weights: that of the largest side, and of the shortest history among equals."""
    best: dict[tuple[int, ...], Inequality] = {}
    for row in rows:
        if not any(row.weights) and row.side <= 0:
            continue
        current = best.get(row.weights)
        if current is None or (row.side, -len(row.origin)) > (current.side, -len(current.origin)):
            best[row.weights] = row
    return list(best.values())


def implied(row: Inequality, rest: Sequence[Inequality]) -> bool:
    """Return whether nonnegative multipliers of the rest give the row's weights and at least its side, exactly."""
    if not rest:
        return False
    from scipy.optimize import linprog

    matrix = np.array([inequality.weights for inequality in rest], dtype=np.float64).T
    sides = np.array([float(inequality.side) for inequality in rest])
    solve: Any = linprog  # its stubs know results without an answer only
    result = solve(-sides, A_eq=matrix, b_eq=np.array(row.weights, dtype=np.float64), method="highs-ds")
    if result.status != 0 or -result.fun < float(row.side) - 1e-9:
        return False
    exact = [Fraction(float(value)).limit_denominator(10**6) for value in result.x]
    weights = [
        sum(m * inequality.weights[k] for m, inequality in zip(exact, rest, strict=True))
        for k in range(len(row.weights))
    ]
    side = sum((m * inequality.side for m, inequality in zip(exact, rest, strict=True)), Fraction(0))
    return weights == list(row.weights) and side >= row.side


INSTANCES, SMALL = 500, 8
TREE = Hierarchy.from_paths([("town", "R1"), ("town", "R2")])
MOST, TRIED = 3, 12
NESTED, CROSSING, RULES = "types within known totals", "two marginals that cross", "rules with coefficients"
CLASSES = (NESTED, CROSSING, RULES)
Setting = tuple[Schema, list[RegionBounds], list[LinearConstraint]]
Accepts = Callable[[Ints], bool]


def drawn(name: str, rng: np.random.Generator) -> Setting:
    """Return a schema of two to four cells, bounds and rules that some table of at most ``MOST`` a cell meets."""
    if name == CROSSING:
        schema = Schema({"a": ["x", "y"], "b": ["0", "1"]})
    else:
        schema = Schema({"kind": [f"k{k}" for k in range(int(rng.integers(2, 4)))]})
    truth = rng.integers(0, MOST + 1, (2, schema.size))

    def near(text: str, spare: int) -> RegionBounds:
        query = parse_query(text, schema)
        true = query.operator.apply(truth)
        low, high = (rng.integers(0, spare + 1, true.shape) for _ in range(2))
        most = MOST * query.operator.apply(np.ones((1, schema.size), np.int64))
        return RegionBounds(query, 1, np.maximum(true - low, 0), np.minimum(true + high, most))

    if name == NESTED:
        return schema, [near("kind", 2), near("total", 0)], []
    if name == CROSSING:
        return schema, [near("detail", 2), near("a", 1), near("b", 0)], []
    rules = []
    for number in range(2):
        weights = rng.integers(-2, 4, schema.size)
        weights[int(rng.integers(schema.size))] = 2
        terms = tuple((int(w), f"kind = k{k}") for k, w in enumerate(weights) if w)
        most = truth @ weights + rng.integers(0, 2, 2)
        rules.append(LinearConstraint(f"rule {number}", terms, 1, np.full(2, -UNBOUNDED), most))
    return schema, [near("kind", 2)], rules


def enumerated(schema: Schema, bounds: list[RegionBounds], rules: list[LinearConstraint]) -> set[tuple[int, ...]]:
    """Return every town that some leaves add up to, each tried against each constraint."""
    every, leaves = np.array(list(product(range(MOST + 1), repeat=schema.size)), np.int64), []
    for leaf in range(2):
        good = np.ones(len(every), np.bool_)
        for bound in bounds:
            answers = bound.query.operator.apply(every)
            good &= ((answers >= bound.lower[leaf]) & (answers <= bound.upper[leaf])).all(axis=1)
        for rule in rules:
            good &= every @ rule.row(schema) <= rule.upper[leaf]
        leaves.append(every[good])
    return {tuple(row) for row in (leaves[0][:, None] + leaves[1][None]).reshape(-1, schema.size).tolist()}


def by_elimination(schema: Schema, bounds: list[RegionBounds], rules: list[LinearConstraint]) -> Accepts:
    """Return which towns meet what exact elimination of the leaves' cells leaves."""
    n = schema.size
    rows = [Inequality.of(unit, 0) for unit in np.eye(3 * n, dtype=int)[: 2 * n].tolist()]

    def at_most(weights: Ints, leaf: int, side: int) -> None:
        row = np.zeros(3 * n, np.int64)
        row[leaf * n : (leaf + 1) * n] = -weights
        rows.append(Inequality.of(row.tolist(), -side))

    for leaf in range(2):
        for bound in bounds:
            for weights, low, high in zip(
                bound.query.operator.to_sparse().toarray().astype(np.int64),
                bound.lower[leaf].tolist(),
                bound.upper[leaf].tolist(),
                strict=True,
            ):
                at_most(weights, leaf, high)
                at_most(-weights, leaf, -low)
        for rule in rules:
            at_most(rule.row(schema), leaf, int(rule.upper[leaf]))
    for cell in range(n):
        link = [int(k % n == cell) * (1 if k < 2 * n else -1) for k in range(3 * n)]
        rows += [Inequality.of(link, 0), Inequality.of([-w for w in link], 0)]
    inequalities = eliminated(rows, range(2 * n))
    return lambda town: all(
        sum(w * x for w, x in zip(row.weights, town.tolist(), strict=True)) >= row.side for row in inequalities
    )


def methods(name: str, instance: Setting) -> dict[str, Accepts]:
    """Return which towns every method accepts; the first is elimination."""
    schema, bounds, rules = instance
    system = ConstraintSystem.of(TREE, schema, bounds, rules)

    def oracle(kind: str) -> Accepts:
        cuts = CutOracle(system, flows=kind == "flow")
        assert cuts.kind == kind
        return lambda town: cuts.violated(0, 0, system.classes.operator.apply(town[None])[0]) is None

    def proof(town: Ints) -> bool:
        exact = RegionBounds.exact(parse_query("detail", schema), 0, town[None])
        return prove(ConstraintSystem.of(TREE, schema, [*bounds, exact], rules)).verdict == "holds"

    flows = {"max-flow cuts": oracle("flow")} if name == NESTED else {}
    accepts = {"elimination": by_elimination(*instance), **flows, "projection cuts (lifting)": oracle("projection")}
    return {**accepts, "proof before payment": proof}


def towns(rng: np.random.Generator, integer_towns: set[tuple[int, ...]]) -> Ints:
    """Return towns to try, near those that can be split."""
    good = np.array(sorted(integer_towns), np.int64)
    near = good[rng.integers(len(good), size=TRIED)]
    # People moved between cells keep the total, which is a constraint of its own; people added do not.
    moved = rng.integers(-1, 2, near.shape)
    moved[::2, -1] -= moved[::2].sum(axis=1)
    tried: Ints = np.unique(np.maximum(near + moved * rng.integers(0, 3, (TRIED, 1)), 0), axis=0)
    return tried


def claims_integers(name: str, method: str) -> bool:
    """Return whether a method claims integer leaves for what it accepts, not fractional ones alone."""
    return name == NESTED or method == "proof before payment"


def measure(name: str, seed: int) -> dict[str, dict[str, int]]:
    """Return by method how many towns of one instance it accepts, and how many of them it should not."""
    rng = np.random.default_rng([seed, 13])
    instance, tallies = drawn(name, rng), {}
    integer_towns, accepts = enumerated(*instance), methods(name, instance)
    tried = towns(rng, integer_towns)
    fractional = [accepts["elimination"](town) for town in tried]
    for method, accepted in accepts.items():
        row = Counter({**dict.fromkeys(COUNTED, 0), "instances": 1, "towns": len(tried)})
        for town, fraction in zip(tried, fractional, strict=True):
            said, exists = accepted(town), tuple(town.tolist()) in integer_towns
            # A cut bounds from above: with the town's own total it is all there is.
            if name == NESTED and method.startswith(("max-flow", "projection")):
                said = said and int(town.sum()) == sum(next(iter(integer_towns)))
            claimed = exists if claims_integers(name, method) else fraction
            row.update(
                dict(
                    zip(
                        COUNTED[2:], (said, said and not exists, exists and not said, said and not claimed), strict=True
                    )
                )
            )
        tallies[method] = dict(row)
    return tallies


COUNTED = ("instances", "towns", "accepted", "of them without integer leaves", "wrongly refused", "wrongly accepted")


def plan(data: Path | None, small: bool) -> list[tuple[str, Sequence[int]]]:
    """Return the classes in turn, an instance a seed."""
    instances = SMALL if small else INSTANCES
    return [(name, range(place, instances, len(CLASSES))) for place, name in enumerate(CLASSES)]


def report(results: Sequence[Runs[str, dict[str, dict[str, int]]]], path: Path) -> Report:
    """Return all counts; it fails for a town wrongly refused, or wrongly accepted where that is claimed."""
    rows: list[Record] = []
    failures = []
    for runs in results:
        for method in runs.found[0]:
            row = {column: sum(found[method][column] for found in runs.found) for column in COUNTED}
            claims = "integers" if claims_integers(runs.case, method) else "fractions"
            rows.append({"class": runs.case, "method": method, "claims": claims, **row})
            refused, accepted = row["wrongly refused"], row["wrongly accepted"]
            if refused or accepted:
                failures.append(f"{runs.case}, {method}: {refused} wrongly refused, {accepted} accepted")
    notes = ("Whole towns; wrongly accepted: against enumeration, or elimination where fractions are claimed.",)
    instances = sum(len(runs.seeds) for runs in results)
    table = Table.of(f"implied constraints on {instances} random small instances", rows, notes)
    exact = next(row for row in rows if row["method"] == "elimination")
    tried, refused, accepted = (sum(row[c] for row in rows) for c in ("towns", "wrongly refused", "wrongly accepted"))
    claim = Statement(
        "slides, Implied constraints",
        "Fourier-Motzkin elimination finds necessary and sufficient constraints: of fractions, often of integers",
        f"of {tried:,} towns {refused} wrongly refused, {accepted} wrongly accepted; within known totals "
        f"{exact[COUNTED[3]]} of {exact[COUNTED[2]]} accepted have no integer leaves",
        not failures,
    )
    return Report({"": table}, failures=failures, statements=[claim])


IMPLIED = Study("kifer2019/implied", plan, measure, report)
