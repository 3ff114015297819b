"""Tables of persons from all two-way marginals: coco-opt, private-PGM, CVXPY least squares, and clipping alone.

Every system gets the same noisy marginals: of a nation and its regions, and of log-linear persons without regions and
with 42 of them, whose ten marginals cross. private-PGM (``mbi``) fits a graphical model by mirror descent, with the
region as one more attribute; CVXPY solves nonnegative least squares over all cells; coco-opt's own fit is shown before
its integers; clipping rounds each noisy marginal by itself, so that marginals contradict each other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.peers.study import OURS, System, Trial, missing, peer_table, results_of, trial
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown import Schema, Strategy, TableCounts, TablePlan, estimate_tables, measure_tables, parse_queries
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements

Answers = list[list[Floats]]  # by level and query, [regions of the level, answers]

SEEDS, SMALL_SEEDS = (1, 2, 3, 4, 5), (1,)
EPSILON = Fraction(1)
LARGE = {"sex": 2, "race": 5, "education": 16, "marital": 7, "income": 2}
ITERATIONS = 1_000


@dataclass(frozen=True, slots=True)
class Setting:
    """Simulated persons by the ``sizes`` of attributes; ``regions`` 1 is a nation alone.

    ``loglinear`` persons have all two-way interactions, others cells of a Dirichlet draw.
    """

    sizes: Mapping[str, int]
    regions: int
    persons: int
    loglinear: bool = False

    @property
    def name(self) -> str:
        """Return the setting in words."""
        cells = math.prod(self.sizes.values())
        where = "one region" if self.regions == 1 else f"{self.regions} regions"
        return f"{cells:,} cells, {where}, {self.persons:,} persons"


SETTINGS = (
    Setting({"sex": 2, "age": 8, "race": 5, "schooling": 4}, 8, 20_000),
    *(Setting(LARGE, regions, 48_842, loglinear=True) for regions in (1, 42)),
)
SMALL_SETTINGS = (
    Setting({"sex": 2, "age": 3, "race": 2}, 2, 400),
    Setting({"sex": 2, "age": 3, "race": 2}, 1, 400, loglinear=True),
)
_MOST_CONVEX = 10_000  # unknowns up to which CVXPY takes less than minutes


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """Simulated persons of a nation and its regions, and the noisy answers to all two-way marginals at both levels."""

    schema: Schema
    truth: Answers
    noisy: TableMeasurements
    measurement: Any

    @classmethod
    def simulated(cls, setting: Setting, seed: int) -> Case:
        """Return persons whose attributes depend on each other and on the region; seeded noise, NOT PRIVATE."""
        sizes, regions = setting.sizes, setting.regions
        schema = Schema({name: tuple(f"{name}{value}" for value in range(size)) for name, size in sizes.items()})
        rng = np.random.default_rng(1)  # one population; only the noise differs between runs
        nation = loglinear(sizes, rng) if setting.loglinear else rng.dirichlet(np.full(schema.cells, 0.3))
        shares = [rng.dirichlet(50.0 * nation + 1e-6) for _ in range(regions)] if regions > 1 else [nation]
        tables = np.array([rng.multinomial(setting.persons // regions, share) for share in shares])
        paths = [("nation", f"region {number}") for number in range(regions)] if regions > 1 else [("nation",)]
        hierarchy = Hierarchy.from_paths(paths)
        counts = TableCounts.from_counts(hierarchy, schema, tables)
        queries = parse_queries([f"{a} * {b}" for a, b in combinations(sizes, 2)], schema)
        plan = TablePlan.product(Strategy.uniform(queries), Epsilon(EPSILON), levels=hierarchy.levels)
        measurement = measure_tables(counts, plan, source=SeededNoise(seed))
        exact = [
            [
                np.asarray(counts.answers_to(query.operator, hierarchy.level_range(level)), np.float64)
                for query in queries
            ]
            for level in range(hierarchy.levels)
        ]
        return cls(schema, exact, TableMeasurements.of(measurement), measurement)

    def marginals(self, tables: Floats) -> Answers:
        """Return the answers of tables float64[regions, cells] at every level."""
        levels = (tables.sum(axis=0, keepdims=True), tables)[-len(self.truth) :]
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
            for name, level, truth in zip(names, estimate, self.truth, strict=False)  # one region has no level below
        }


def loglinear(sizes: Mapping[str, int], rng: np.random.Generator) -> Floats:
    """Return the shares float64[cells] of a log-linear model with falling margins and all two-way interactions."""
    logarithms = np.zeros(tuple(sizes.values()))
    axes = range(logarithms.ndim)
    for axis, size in enumerate(logarithms.shape):
        margin = -np.arange(size) * rng.uniform(0.2, 1.6)
        logarithms += margin.reshape([size if other == axis else 1 for other in axes])
    for pair in combinations(axes, 2):
        shape = [size if axis in pair else 1 for axis, size in enumerate(logarithms.shape)]
        logarithms += rng.normal(0.0, 0.7, shape)
    shares: Floats = np.exp(logarithms - logarithms.max()).ravel()
    shares /= shares.sum()
    return shares


def ours(case: Case) -> Answers:
    """Return the answers of coco-opt's integer tables, which add up and are certified."""
    result = estimate_tables(case.measurement)
    levels = range(len(case.truth))
    return [[np.asarray(result.answers(query.operator, level)) for query in case.noisy.queries] for level in levels]


def fitted(case: Case) -> Answers:
    """Return the answers of coco-opt's fits before they are rounded, each level below the integers above."""
    step, parent, answers = split_step(case.noisy, TopdownMethod(seed=1), SolverChoices()), None, []
    for level in range(len(case.truth)):
        regions = case.noisy.hierarchy.level_range(level)
        fit = step.fractional(regions, parent)
        answers.append([query.operator.apply(fit) for query in case.noisy.queries])
        parent = step.integer_tables(fit, regions, parent)[0] if level + 1 < len(case.truth) else None
    return answers


def clipped(case: Case) -> Answers:
    """Return noisy answers rounded to the nearest nonnegative integer, each by itself."""
    return [[np.rint(answer).clip(min=0) for answer in level] for level in case.answers()]


def convex(case: Case) -> Answers:
    """Return the answers of the nonnegative tables that are nearest in least squares, by CVXPY and Clarabel."""
    cp: Any = import_module("cvxpy")
    operators = [query.operator.to_sparse() for query in case.noisy.queries]
    regions, cells = case.answers()[-1][0].shape[0], case.schema.cells
    tables = cp.Variable((regions, cells), nonneg=True)
    loss = 0
    for level, answers in enumerate(case.answers()):
        own = tables if level or regions == 1 else cp.sum(tables, axis=0, keepdims=True)
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
        regions = case.answers()[-1][0].shape[0]
        sizes = [len(case.schema.attributes[name]) for name in names]
        domain = mbi.Domain(["region", *names], [regions, *sizes])
        pairs, measured = list(combinations(names, 2)), []
        for level, answers in enumerate(case.answers()):
            for query, answer in enumerate(answers):
                clique = ("region", *pairs[query]) if level or regions == 1 else pairs[query]
                deviation = float(np.sqrt(case.noisy.variances[level, query]))
                measured.append(mbi.LinearMeasurement(answer.ravel(), clique, stddev=deviation))
        model = estimation.MirrorDescent().estimate(domain, measured, iters=ITERATIONS)
        regional = [np.asarray(model.project(("region", *pair)).datavector()).reshape(regions, -1) for pair in pairs]
    return [[answer.sum(axis=0, keepdims=True) for answer in regional], regional][-len(case.truth) :]


def systems() -> dict[System, Callable[[Case], Answers]]:
    """Return every way to estimate, by name."""
    return {
        System(OURS, "integer tables of all regions, fits certified"): ours,
        System(OURS, "the fits before rounding, fractional"): fitted,
        System("mbi", f"private-PGM, mirror descent, {ITERATIONS:,} iterations"): graphical_model,
        System("cvxpy", "nonnegative least squares by Clarabel, fractional"): convex,
        System("numpy", "clipped and rounded, not consistent"): clipped,
    }


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return 320 cells in eight regions, and 2,240 in one and in 42, five seeds; small: 12 cells, one seed."""
    return seeded(SMALL_SETTINGS, SMALL_SEEDS) if small else seeded(SETTINGS, SEEDS)


def measure(setting: Setting, seed: int) -> Trial:
    """Return the errors and seconds of all systems that are installed and finish in minutes."""
    case, affordable = (
        Case.simulated(setting, seed),
        math.prod(setting.sizes.values()) * setting.regions <= _MOST_CONVEX,
    )
    calls = {system: partial(make, case) for system, make in systems().items() if affordable or make is not convex}
    return trial(calls, case.errors, warm=seed == SEEDS[0])


def report(found: Sequence[Runs[Setting, Trial]], path: Path) -> Report:
    """Return the comparison."""
    results = [result for runs in found for result in results_of(runs.case.name, systems(), runs.found)]
    notes = (
        f"epsilon {float(EPSILON):g} in all, even over levels and all two-way marginals. Data are simulated.",
        "Only coco-opt's tables are integers that add up, as a release needs; private-PGM and CVXPY are fractional.",
        "AIM, which also chooses the marginals, is not compared: the package mbi holds no mechanisms.",
        *missing(list(systems())),
    )
    return Report({"": peer_table("Tables of persons from two-way marginals", results, notes)})


MARGINALS = Study("peers/marginals", plan, measure, report)
