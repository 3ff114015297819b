"""Tables released in one, two and three stages that agree exactly: what agreement costs in error, at equal budget.

Hawaii's blocks: race (7 cells), by ethnicity (14), by voting age and residence (224; the cells are MADE within the real
counts of the blocks, see ``redistricting``). One stage asks the three queries at once; two publish race first, three
race, then race by ethnicity, each later stage keeping what is out. All ask the same queries at the same shares of the
same budget, so what differs is that a later measurement cannot improve what was published before. With and without
exact totals of counties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from coco_experiments.kifer2019.redistricting import LEVELS, people
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import generated_blocks, hawaii
from coco_opt.array_types import Floats
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.kind.earlier_releases import agreed_tables
from coco_opt.topdown.kind.files import TablesRelease
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema

QUERIES = ("race", "hispanic * race", "detail")
SHARES = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
EPSILON = Fraction(1)
ATTRIBUTES = (("race",), ("hispanic", "race"), ("hispanic", "race", "voting_age", "residence"))
ASKED: dict[int, tuple[tuple[int, ...], ...]] = {1: ((0, 1, 2),), 2: ((0,), (1, 2)), 3: ((0,), (1,), (2,))}
"""The queries that each stage asks, by the number of stages; the last of them says which attributes it has."""
CONSTRAINTS = ("none", "county totals exact")
COUNTY = 1
SEEDS = (1, 2)
MOST = 1.10
"""What the error of stages may be over that of one, in the geometric mean over levels."""


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """Tables, in how many stages they are released, and what is exact."""

    counts: TableCounts
    stages: int
    constraint: str


Found = dict[str, Any]
"""One seed's mean absolute errors and bias [levels, queries], seconds by stage, and published answers not kept."""


def part_of(counts: TableCounts, stage: int) -> TableCounts:
    """Return the private table of a stage: the persons by its attributes alone."""
    names = ATTRIBUTES[stage]
    schema = Schema({name: counts.schema.attributes[name] for name in names})
    codes = counts.schema.decode(counts.cells)
    leaf = np.repeat(np.arange(counts.offsets.size - 1), np.diff(counts.offsets))
    cells = schema.encode({name: codes[name] for name in names})
    return TableCounts.from_microdata(counts.hierarchy, schema, leaf, cells, counts.counts)


def measure(setting: Setting, seed: int) -> Found:
    """Release in some stages, in memory; later stages agree with the stage before."""
    counts, exact, differing = setting.counts, setting.constraint != CONSTRAINTS[0], 0
    tree, seconds = counts.hierarchy, list[float]()
    published: TablesRelease | None = None
    for number, queries in enumerate(ASKED[setting.stages]):
        private = part_of(counts, queries[-1])
        share = sum(SHARES[i] for i in queries)
        parsed = parse_queries([QUERIES[i] for i in queries], private.schema)
        strategy = Strategy(parsed, tuple(SHARES[i] / share for i in queries))
        neighbours: Any = "replace" if exact else "add_remove"
        plan = TablePlan.product(strategy, Epsilon(EPSILON * share), tree.levels, neighbours=neighbours)
        begun = process_time()
        bounds = [] if published is None else [agreed_tables(published, tree, LEVELS, private.schema)[0]]
        measurement = measure_tables(
            private,
            plan,
            source=SeededNoise(10 * seed + number),
            invariants=[Invariant(parse_query("total", private.schema), COUNTY)] if exact else [],
            bounds=bounds,
        )
        result = estimate_tables(measurement)
        seconds.append(process_time() - begun)
        differing += sum(_differing(result, bound) for bound in bounds)
        ids = (None,) * tree.regions
        published = TablesRelease(tree, LEVELS, ids, private.schema, SparseTables.joined(result.tables), {})
    absolute, bias = errors_of(counts, result)
    return {"absolute": absolute, "bias": bias, "seconds": seconds, "differing": differing}


def _differing(result: TablesResult, published: RegionBounds) -> int:
    """Return how many published answers of the last level a later release does not keep."""
    return int(np.count_nonzero(result.answers(published.query.operator, published.level) != published.lower))


def errors_of(counts: TableCounts, result: TablesResult) -> tuple[Floats, Floats]:
    """Return mean absolute error and mean error over cells that are not empty, float64[levels, queries] (people)."""
    queries = parse_queries(QUERIES, counts.schema)
    absolute, bias = (np.zeros((counts.hierarchy.levels, len(queries))) for _ in range(2))
    for level in range(counts.hierarchy.levels):
        for i, query in enumerate(queries):
            true = counts.answers_to(query.operator, counts.hierarchy.level_range(level))
            error = result.answers(query.operator, level) - true
            absolute[level, i] = np.abs(error).mean()
            bias[level, i] = error[true > 0].mean() if (true > 0).any() else 0.0
    return absolute, bias


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return one, two and three stages, without and with exact totals."""
    counts = people(generated_blocks(np.random.default_rng(7)) if small else hawaii(data), structural_zeros=False)
    settings = product(CONSTRAINTS, ASKED)
    return seeded((Setting(counts, stages, exact) for exact, stages in settings), SEEDS[: 1 if small else None])


def report(results: Sequence[Runs[Setting, Found]], path: Path) -> Report:
    """Return errors, bias and seconds; it fails where stages disagree, or are worse than one by a tenth."""
    rows, bias_rows, seconds, failures = list[Record](), list[Record](), list[Record](), list[str]()
    found = {(runs.case.constraint, runs.case.stages): runs.found for runs in results}
    for constraint in CONSTRAINTS:
        by_stages = {stages: found[constraint, stages] for stages in ASKED}
        means = {
            what: {stages: np.mean([each[what] for each in runs], axis=0) for stages, runs in by_stages.items()}
            for what in ("absolute", "bias")
        }
        for query, text in enumerate(QUERIES):
            key: Record = {"constraints": constraint, "query": text}
            errors = {stages: values[:, query] for stages, values in means["absolute"].items()}
            ratios = {stages: values / errors[1] for stages, values in errors.items() if stages > 1}
            for level, name in enumerate(LEVELS):
                at_level = {f"stages: {stages}": float(values[level]) for stages, values in errors.items()}
                times = {f"{stages} / 1": float(values[level]) for stages, values in ratios.items()}
                rows.append({**key, "level": name, **at_level, **times})
                biases = {f"stages: {stages}": float(values[level, query]) for stages, values in means["bias"].items()}
                bias_rows.append({**key, "level": name, **biases})
            over = {stages: float(np.exp(np.log(values).mean())) for stages, values in ratios.items()}
            times = {f"{stages} / 1": ratio for stages, ratio in over.items()}
            rows.append({**key, "level": "geometric mean", **times})
            if len(by_stages[1]) > 1:  # a few simulated blocks with one seed say little about errors
                failures += [
                    f"{stages} stages, {constraint}: {text} has {ratio:.2f} times the error of one stage"
                    for stages, ratio in over.items()
                    if ratio > MOST
                ]
        for stages, runs in by_stages.items():
            least = np.min([each["seconds"] for each in runs], axis=0).tolist()
            words = " + ".join(f"{value:.1f}" for value in least)
            seconds.append({"constraints": constraint, "stages": stages, "seconds": words})
            if differing := sum(each["differing"] for each in runs):
                failures.append(f"{stages} stages, {constraint}: {differing} answers differ")
    notes = (
        "Noise is seeded: NOT PRIVATE. Budget 1 in all; race has half of it, the others a quarter each.",
        "Exact totals need neighbours that replace a person, which doubles the noise.",
    )
    tables = {
        "_errors": Table.of("mean absolute error of an answer (people)", rows, notes),
        "_bias": Table.of("bias: mean error of answers with any person (people)", bias_rows),
        "_seconds": Table.of("processor seconds by stage, least of the seeds", seconds),
    }
    kept = sum(each["differing"] for runs in found.values() for each in runs)
    means_of_levels = [row for row in rows if row["level"] == "geometric mean"]
    ratios_to_one = [row[column] for row in means_of_levels for column in ("2 / 1", "3 / 1")]
    claim = Statement(
        "slides, Incremental Schema Extension",
        "columns can be added to published data step by step, each stage consistent with the one before",
        f"{kept} published answers are not kept; "
        f"errors {min(ratios_to_one):.3g} to {max(ratios_to_one):.3g} times those of one stage",
        kept == 0,
    )
    return Report(tables, failures=failures, statements=[claim])


STAGES = Study("kifer2019/stages", plan, measure, report)
