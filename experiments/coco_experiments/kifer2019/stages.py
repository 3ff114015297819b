"""Tables released in one, two and three stages that agree exactly: what agreement costs in error, at equal budget.

Hawaii's blocks: race (7 cells), by ethnicity (14), by voting age and residence (224; the cells are MADE within the real
counts of the blocks, see ``redistricting``). One stage asks the three queries at once; two publish race first, three
race, then race by ethnicity, each later stage keeping what is out. All ask the same queries at the same shares of the
same budget, so what differs is that a later measurement cannot improve what was published before. With and without
exact totals of counties. The first seed goes through files and the whole engine: released, verified, and verified again
with an edited first stage.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coco_experiments.kifer2019.redistricting import LEVELS, people
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.topdown.data import generated_blocks, hawaii
from coco_opt.array_types import Floats
from coco_opt.config import configure
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.releases import release, verify_release
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.kind.earlier_releases import agreed_tables
from coco_opt.topdown.kind.files import CellRuns, TablesRelease
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import parse_queries, parse_query
from coco_opt.topdown.schema import Schema

NAME = "kifer2019/stages"
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
class Run:
    """What some stages ended with, and what they took: by stage, processor seconds of measuring and estimating."""

    result: TablesResult
    seconds: tuple[float, ...]
    differing: int


def part_of(counts: TableCounts, stage: int) -> TableCounts:
    """Return the private table of a stage: the persons by its attributes alone."""
    names = ATTRIBUTES[stage]
    schema = Schema({name: counts.schema.attributes[name] for name in names})
    codes = counts.schema.decode(counts.cells)
    leaf = np.repeat(np.arange(counts.offsets.size - 1), np.diff(counts.offsets))
    cells = schema.encode({name: codes[name] for name in names})
    return TableCounts.from_microdata(counts.hierarchy, schema, leaf, cells, counts.counts)


def run_stages(counts: TableCounts, stages: int, seed: int, exact: bool) -> Run:
    """Release in some stages, in memory; later stages agree with the stage before."""
    tree, differing = counts.hierarchy, 0
    published: TablesRelease | None = None
    seconds: list[float] = []
    for number, queries in enumerate(ASKED[stages]):
        private = part_of(counts, queries[-1])
        share = sum(SHARES[i] for i in queries)
        parsed = parse_queries([QUERIES[i] for i in queries], private.schema)
        strategy = Strategy(parsed, tuple(SHARES[i] / share for i in queries))
        neighbours: Any = "replace" if exact else "add_remove"
        plan = TablePlan.product(strategy, Epsilon(EPSILON * share), tree.levels, neighbours=neighbours)
        begun = process_time()
        bounds: list[RegionBounds] = []
        if published is not None:
            bounds.append(agreed_tables(published, tree, LEVELS, private.schema)[0])
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
        published = TablesRelease(tree, LEVELS, ids, private.schema, CellRuns.of(result.tables), {})
    return Run(result, tuple(seconds), differing)


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


def through_files(counts: TableCounts, folder: Path) -> tuple[dict[str, str], list[str]]:
    """Release three stages by the whole engine and verify; return what was seen and what failed."""
    tree, earlier = counts.hierarchy, None
    regions = {"region_id": [f"r{i}" for i in range(len(tree.leaves))]}
    paths = [tree.paths[leaf].split("/") for leaf in tree.leaves]
    regions |= {name: [path[i] for path in paths] for i, name in enumerate(LEVELS)}
    outcome, failures = None, []
    for stage in range(len(ATTRIBUTES)):
        private = part_of(counts, stage)
        values, codes = private.schema.attributes, private.schema.decode(private.cells)
        leaf = np.repeat(np.arange(private.offsets.size - 1), np.diff(private.offsets))
        records: dict[str, Any] = {"region_id": np.array(regions["region_id"])[leaf]}
        records |= {name: np.array(values[name])[codes[name]] for name in values}
        topdown = {"attributes": values, "workload": ["race"], "strategy": [QUERIES[stage]]}
        config = configure(
            folder=folder,
            name=f"stage-{stage + 1}",
            data={"records": pa.table({**records, "count": private.counts}), "hierarchy": pa.table(regions)},
            privacy={"epsilon": str(EPSILON * SHARES[stage]), "noise": "seeded", "seed": stage},
            topdown=topdown if earlier is None else {**topdown, "agrees_with": str(earlier)},
        )
        outcome = release(config, folder / config.name)
        earlier = outcome.folder
        failures += [
            f"{config.name}: {check.name}: {check.detail}" for check in verify_release(earlier) if not check.passed
        ]
    assert outcome is not None
    spent = outcome.manifest["spent_in_all"][0]["epsilon"]
    if Fraction(spent) != EPSILON:
        failures.append(f"the last manifest says that epsilon {spent} was spent in all")
    message = _edited(folder / "stage-1", outcome.folder)
    if not message:
        failures.append("verify of the last stage did not find the edited first one")
    return {"spent in all": f"epsilon = {spent}", "an edited first stage": message or "not found"}, failures


def _edited(earlier: Path, later: Path) -> str:
    """Move a person between two rows of an earlier release; return what verify of the later one says of it."""
    rows = pq.read_table(earlier / "tables.parquet")
    persons = rows.column("persons").to_numpy().copy()
    persons[-2:] += [1, -1] if persons[-1] > 1 else [-1, 1]
    column = rows.column_names.index("persons")
    pq.write_table(rows.set_column(column, rows.schema.field(column), pa.array(persons)), earlier / "tables.parquet")
    failed = [check for check in verify_release(later) if not check.passed]
    return "; ".join(check.detail for check in failed if check.name == "agrees_with")


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Compare, release and verify; fails where stages disagree, are worse by a tenth, or an edit is not found."""
    blocks = generated_blocks(np.random.default_rng(7)) if small else hawaii(data)
    counts = people(blocks, structural_zeros=False)
    seeds = SEEDS[:1] if small else SEEDS
    shape = len(CONSTRAINTS), len(ASKED), len(seeds), counts.hierarchy.levels, len(QUERIES)
    absolute, bias = np.zeros(shape), np.zeros(shape)
    seconds: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    failures: list[str] = []
    done, total = 0, len(CONSTRAINTS) * len(seeds) * len(ASKED) + 1
    for i, constraint in enumerate(CONSTRAINTS):
        for place, seed in enumerate(seeds):
            for row, stages in enumerate(ASKED):
                outcome = run_stages(counts, stages, seed, exact=i > 0)
                absolute[i, row, place], bias[i, row, place] = errors_of(counts, outcome.result)
                seconds.setdefault((i, stages), []).append(outcome.seconds)
                if outcome.differing:
                    failures.append(f"{stages} stages, {constraint}: {outcome.differing} answers differ")
                done += 1
                reporter.progress(NAME, done, total)
    with tempfile.TemporaryDirectory() as name:
        seen, wrong = through_files(counts, Path(name))
    reporter.progress(NAME, total, total)
    tables = {
        "_errors": error_table(absolute.mean(axis=2)),
        "_bias": bias_table(bias.mean(axis=2)),
        "_seconds": seconds_table(seconds),
        "_seen": seen_table(seen),
    }
    if not small:  # a few simulated blocks with one seed say little about errors
        failures += worse(absolute.mean(axis=2))
    return publish(NAME, tables, out, reporter, failures=(*failures, *wrong))


def worse(absolute: Floats) -> list[str]:
    """Return where stages have more than ``MOST`` times the error of one [constraints, stages, levels, queries]."""
    ratios = np.exp(np.log(absolute[:, 1:] / absolute[:, :1]).mean(axis=2))
    return [
        f"{list(ASKED)[1 + row]} stages, {CONSTRAINTS[i]}: {QUERIES[query]} has {ratios[i, row, query]:.2f} times "
        "the error of one stage"
        for i, row, query in np.argwhere(ratios > MOST).tolist()
    ]


def error_table(absolute: Floats) -> Table:
    """Return errors and their ratios to one stage, by constraint, query and level, with means over levels."""
    rows: list[tuple[Cell, ...]] = []
    for i, constraint in enumerate(CONSTRAINTS):
        for query, text in enumerate(QUERIES):
            errors = absolute[i, :, :, query]
            ratios = errors[1:] / errors[:1]
            for level, name in enumerate(LEVELS):
                rows.append((constraint, text, name, *errors[:, level].tolist(), *ratios[:, level].tolist()))
            means = np.exp(np.log(ratios).mean(axis=1)).tolist()
            rows.append((constraint, text, "geometric mean", None, None, None, *means))
    columns = ("constraints", "query", "level", "one stage", "two", "three", "two / one", "three / one")
    notes = (
        "Noise is seeded: NOT PRIVATE. Budget 1 in all; race has half of it, the others a quarter each.",
        "Exact totals need neighbours that replace a person, which doubles the noise.",
    )
    return Table("mean absolute error of an answer (people)", columns, tuple(rows), notes)


def bias_table(bias: Floats) -> Table:
    """Return the mean error of answers that are not empty."""
    rows = tuple(
        (constraint, text, name, *bias[i, :, level, query].tolist())
        for i, constraint in enumerate(CONSTRAINTS)
        for query, text in enumerate(QUERIES)
        for level, name in enumerate(LEVELS)
    )
    columns = ("constraints", "query", "level", "one stage", "two", "three")
    return Table("bias: mean error of answers with any person (people)", columns, rows)


def seconds_table(seconds: dict[tuple[int, int], list[tuple[float, ...]]]) -> Table:
    """Return the processor seconds of each stage's measuring and estimating, least over seeds."""
    rows = tuple(
        (CONSTRAINTS[i], stages, " + ".join(f"{value:.1f}" for value in np.min(runs, axis=0).tolist()))
        for (i, stages), runs in seconds.items()
    )
    return Table("processor seconds by stage, least of the seeds", ("constraints", "stages", "seconds"), rows)


def seen_table(seen: dict[str, str]) -> Table:
    """Return what the released folders say."""
    return Table("three stages through files", ("what", "seen"), tuple(seen.items()))
