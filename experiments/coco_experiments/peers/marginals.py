"""Tables of persons from all two-way marginals: coco-opt, private-PGM, CVXPY least squares, and clipping alone.

Every system gets the same noisy marginals, of a nation and its regions. private-PGM (``mbi``) fits a graphical model by
mirror descent, with the region as one more attribute; CVXPY solves nonnegative least squares over all cells; clipping
rounds each noisy marginal by itself, so that marginals contradict each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.peers.study import OURS, Result, System, clock, finish, missing, peer_table
from coco_opt.array_types import Floats
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import Schema, Strategy, TableCounts, TablePlan, estimate_tables, measure_tables, parse_queries
from coco_opt.topdown.noisy_measurements import TableMeasurements

Answers = list[list[Floats]]  # by level and query, [regions of the level, answers]

NAME = "peers/marginals"
SEEDS, SMALL_SEEDS = (1, 2, 3, 4, 5), (1,)
EPSILON = Fraction(1)
SIZES, SMALL_SIZES = {"sex": 2, "age": 8, "race": 5, "schooling": 4}, {"sex": 2, "age": 3, "race": 2}
REGIONS, SMALL_REGIONS = 8, 2
PERSONS, SMALL_PERSONS = 20_000, 400
ITERATIONS = 1_000


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """Simulated persons of a nation and its regions, and the noisy answers to all two-way marginals at both levels."""

    schema: Schema
    truth: Answers
    noisy: TableMeasurements
    measurement: Any

    @classmethod
    def simulated(cls, sizes: Mapping[str, int], regions: int, persons: int, seed: int) -> Case:
        """Return persons whose attributes depend on each other and on the region; seeded noise, NOT PRIVATE."""
        schema = Schema({name: tuple(f"{name}{value}" for value in range(size)) for name, size in sizes.items()})
        cells = int(np.prod(list(sizes.values())))
        rng = np.random.default_rng(1)  # one population; only the noise differs between runs
        nation = rng.dirichlet(np.full(cells, 0.3))
        shares = np.array([rng.dirichlet(50.0 * nation + 1e-6) for _ in range(regions)])
        tables = np.array([rng.multinomial(persons // regions, share) for share in shares])
        hierarchy = Hierarchy.from_paths([("nation", f"region {number}") for number in range(regions)])
        counts = TableCounts.from_counts(hierarchy, schema, tables)
        queries = parse_queries([f"{a} * {b}" for a, b in combinations(sizes, 2)], schema)
        plan = TablePlan.product(Strategy.uniform(queries), Epsilon(EPSILON), levels=2)
        measurement = measure_tables(counts, plan, source=SeededNoise(seed))
        exact = [
            [
                np.asarray(counts.answers_to(query.operator, hierarchy.level_range(level)), np.float64)
                for query in queries
            ]
            for level in range(2)
        ]
        return cls(schema, exact, TableMeasurements.of(measurement), measurement)

    def marginals(self, tables: Floats) -> Answers:
        """Return the answers of tables float64[regions, cells] at both levels."""
        levels = (tables.sum(axis=0, keepdims=True), tables)
        return [[query.operator.apply(table) for query in self.noisy.queries] for table in levels]

    def answers(self) -> Answers:
        """Return the noisy answers."""
        return [
            [np.asarray(answer[:], np.float64) for answer in level if answer is not None]
            for level in self.noisy.answers
        ]

    def errors(self, estimate: Answers) -> dict[str, float]:
        """Return the mean absolute error of an answer at each level, in persons."""
        names = ("mean absolute error, nation", "mean absolute error, regions")
        return {
            name: float(np.mean([np.abs(own - exact).mean() for own, exact in zip(level, truth, strict=True)]))
            for name, level, truth in zip(names, estimate, self.truth, strict=True)
        }


def ours(case: Case) -> Answers:
    """Return the answers of coco-opt's integer tables, which add up and are certified."""
    result = estimate_tables(case.measurement)
    return [[np.asarray(result.answers(query.operator, level)) for query in case.noisy.queries] for level in range(2)]


def clipped(case: Case) -> Answers:
    """Return noisy answers rounded to the nearest nonnegative integer, each by itself."""
    return [[np.rint(answer).clip(min=0) for answer in level] for level in case.answers()]


def convex(case: Case) -> Answers:
    """Return the answers of the nonnegative tables that are nearest in least squares, by CVXPY and Clarabel."""
    cp: Any = import_module("cvxpy")
    operators = [query.operator.to_sparse() for query in case.noisy.queries]
    regions, cells = case.answers()[1][0].shape[0], case.schema.cells
    tables = cp.Variable((regions, cells), nonneg=True)
    loss = 0
    for level, answers in enumerate(case.answers()):
        own = tables if level else cp.sum(tables, axis=0, keepdims=True)
        for query, (operator, answer) in enumerate(zip(operators, answers, strict=True)):
            loss += cp.sum_squares(own @ operator.T - answer) / float(case.noisy.variances[level, query])
    cp.Problem(cp.Minimize(loss)).solve(solver=cp.CLARABEL)
    return case.marginals(np.asarray(tables.value))


def graphical_model(case: Case) -> Answers:
    """Return the answers of private-PGM's model, its own fractional marginals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its own numerical settings on import
        import_module("jax").config.update("jax_enable_x64", True)  # noqa: FBT003
        mbi, estimation = import_module("mbi"), import_module("mbi.estimation")
        names = list(case.schema.names)
        regions = case.answers()[1][0].shape[0]
        sizes = [len(case.schema.attributes[name]) for name in names]
        domain = mbi.Domain(["region", *names], [regions, *sizes])
        pairs, measured = list(combinations(names, 2)), []
        for level, answers in enumerate(case.answers()):
            for query, answer in enumerate(answers):
                clique = ("region", *pairs[query]) if level else pairs[query]
                deviation = float(np.sqrt(case.noisy.variances[level, query]))
                measured.append(mbi.LinearMeasurement(answer.ravel(), clique, stddev=deviation))
        model = estimation.MirrorDescent().estimate(domain, measured, iters=ITERATIONS)
        regional = [np.asarray(model.project(("region", *pair)).datavector()).reshape(regions, -1) for pair in pairs]
    return [[answer.sum(axis=0, keepdims=True) for answer in regional], regional]


def systems() -> dict[System, Callable[[Case], Answers]]:
    """Return every way to estimate, by name."""
    return {
        System(OURS, "integer tables of all regions, certified"): ours,
        System("mbi", f"private-PGM, mirror descent, {ITERATIONS:,} iterations"): graphical_model,
        System("cvxpy", "nonnegative least squares by Clarabel, fractional"): convex,
        System("numpy", "clipped and rounded, not consistent"): clipped,
    }


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Compare on 320 cells in eight regions, five seeds; small: 12 cells in two regions and one seed."""
    seeds = SMALL_SEEDS if small else SEEDS
    sizes, regions, persons = (SMALL_SIZES, SMALL_REGIONS, SMALL_PERSONS) if small else (SIZES, REGIONS, PERSONS)
    listed = {system: make for system, make in systems().items() if system.version is not None}
    errors: dict[System, list[dict[str, float]]] = {system: [] for system in listed}
    seconds: dict[System, list[float]] = {system: [] for system in listed}
    for done, seed in enumerate(seeds, 1):
        case = Case.simulated(sizes, regions, persons, seed)
        for system, make in listed.items():
            if seed == seeds[0]:
                make(case)  # compiles and imports, outside the clock
            ran = clock(make, case)
            errors[system].append(case.errors(ran.answer))
            seconds[system].append(ran.seconds)
        reporter.progress(NAME, done, len(seeds))
    instance = f"{case.schema.cells:,} cells, {regions} regions, {persons:,} persons"
    results = [
        Result(
            instance,
            system,
            {measure: tuple(error[measure] for error in errors[system]) for measure in errors[system][0]},
            tuple(seconds[system]),
        )
        for system in listed
    ]
    notes = (
        f"epsilon {float(EPSILON):g} in all, even over two levels and all two-way marginals. Data are simulated.",
        "Only coco-opt's tables are integers that add up, as a release needs; private-PGM and CVXPY are fractional.",
        "AIM, which also chooses the marginals, is not compared: the package mbi holds no mechanisms.",
        *missing(list(systems())),
    )
    return finish(NAME, [peer_table("Tables of persons from two-way marginals", results, notes)], [], out, reporter)
