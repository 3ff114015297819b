"""The posterior's convex relative: one relative-entropy program for all regions, with a dual certificate.

Its prior is learned from its own solution, three times over; the last is rounded to integer tables like joint
estimation's. The posterior and joint estimation read the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.beyond.queries import CELLS, QueryPlan, cells
from coco_experiments.beyond.relative_entropy import RelativeEntropy, learned, solved
from coco_experiments.beyond.study import (
    JOINT,
    Finding,
    Result,
    Way,
    error_table,
    finish,
    seconds_table,
    stored_results_of,
    study,
    usual_ways,
)
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case, top
from coco_experiments.outcome import Cell, Outcome, Reporter, Table
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.estimating.joint import round_tables
from coco_opt.groups.estimating.nearest import integer_histograms
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts
from coco_opt.problems.tree import Tree

NAME = "beyond/convex_relative"
SEEDS = (2018, 2019)
LEARNED = 3  # times
RELATIVE = "relative entropy, cells"
TAXI_CUTS = (300, 1_000)  # sizes from here on count as this one: every size of a leaf is a cone
COLUMNS = ("data", "K", "seed", "unknown counts", "answers", "objective", "relative gap", "processor seconds")


@dataclass(frozen=True, eq=False, slots=True)
class Certified:
    """The last program of a run: its objective, certified gap, and the processor seconds of its solver alone."""

    case: Case
    seed: int
    problem: RelativeEntropy
    objective: float
    gap: float
    seconds: float


def relative(case: Case, queries: QueryPlan, seed: int) -> tuple[list[CountOfCounts], Certified, float]:
    """Return integer tables, the last program, and the seconds of all; the leaves' own fits teach the first prior."""
    answers = GroupsMeasurements(queries.measured(case, seed))
    start = process_time()
    tree, groups = answers.hierarchy, answers.group_counts
    alone = [estimate(answers[leaf], FitOptions("l1"), SolverChoices()).histogram for leaf in tree.leaves]
    h = np.array([histogram.to_dense(case.max_size) for histogram in alone], np.float64)
    for _ in range(LEARNED):
        problem = RelativeEntropy.of(answers, learned(tree, h, groups))
        begin = process_time()
        h, prices = solved(problem)
        seconds = process_time() - begin
    fitted = np.cumsum(tree.aggregate(h), axis=1)[:, :-1]
    tables, _ = round_tables(Tree(tree.parent), fitted, groups, SolverChoices())
    spent = process_time() - start
    last = Certified(case, seed, problem, *problem.certified(h, prices), seconds)
    return integer_histograms(tables, groups), last, spent


def certificates(programs: Sequence[Certified]) -> Table:
    """Return one row a program: its size, and what its prices certify."""
    rows: list[tuple[Cell, ...]] = []
    for program in programs:
        size = program.problem.prior.size, program.problem.bounds.size
        certified = program.objective, program.gap / max(program.objective, 1.0), program.seconds
        rows.append((program.case.name, program.case.max_size, program.seed, *size, *certified))
    notes = (
        f"The last of {LEARNED} programs a run, each with the prior that the one before teaches. CVXPY and Clarabel.",
        "The gap is to the bound of the solver's prices, cut off to their box and computed here.",
    )
    return Table("Relative entropy: dual certificates", COLUMNS, tuple(rows), notes)


def real_cases(folder: Path | None) -> list[Case]:
    """Return Hawaii's state and counties, and Taxi with its sizes cut."""
    return [top(hawaii_case(folder), 2), *(taxi_case(folder, cut) for cut in TAXI_CUTS)]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/convex_relative`` as CSV; small: one seed on simulated data."""
    cases = small_cases(30)[2:] if small else real_cases(data)
    seeds = SEEDS[:1] if small else SEEDS
    results: list[Result] = []
    stored = stored_results_of(out)
    programs: list[Certified] = []
    for case in cases:
        ways = [*usual_ways(case), Way(CELLS, "posterior", cells(case))]
        result = Result(case, Way(RELATIVE, "joint", cells(case)))
        for seed in seeds:
            histograms, last, seconds = relative(case, cells(case), seed)
            programs.append(last)
            result.findings.append(Finding.of(case, histograms, seconds))
        results += [*study(NAME, case, ways, seeds, reporter, stored), result]
    tables = {
        "": error_table("The convex relative, total epsilon 1", results, JOINT),
        "_certificates": certificates(programs),
        "_seconds": seconds_table(results),
    }
    return finish(NAME, out, tables, results, (), reporter)
