"""An acceptance test like the 2020 redistricting data on Hawaii, through configuration and the whole engine.

Eleven queries with the shares by level and query of the 2020 production run (Abowd et al. 2022; the levels below the
nation, their shares scaled to 1), discrete Gaussian noise, the state's total exact, and, as public constraints, which
types of group quarters a block has: at least one person lives in each that is there, nobody in others. The tables are
MADE within the real counts of Hawaii's blocks (see ``coco_experiments.topdown.data``), races of several kinds as one.
"""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish
from coco_experiments.topdown.country import QUARTERS
from coco_experiments.topdown.data import RACES, RESIDENCES, Blocks, frames, generated_blocks, hawaii, large_tables
from coco_opt.config import Config, configure
from coco_opt.releases import release, verify_release
from coco_opt.topdown.kind.files import read_tables_release
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema, ValueGroups

NAME = "kifer2019/redistricting"
LEVELS = ("state", "county", "tract", "block_group", "block")
RHO = Fraction(256, 100)
LEVEL_SHARES, NATION_SHARE = (1440, 447, 687, 1256, 165), 104  # of 4099
NATION_SHARES = (1, 52, 26, 26, 26, 26, 130, 130, 26, 442, 3212)  # the total is known: it has what is left
SEVERAL = "several"
QUERIES = (
    "total",
    "race",
    "hispanic",
    "voting_age",
    "quarters",
    "residence",
    "hispanic * race",
    "race * voting_age",
    "hispanic * voting_age",
    "hispanic * race * voting_age",
    "detail",
)
SHARES = (
    (3773, 6, 6, 6, 6, 6, 12, 12, 6, 34, 230),
    (3126, 10, 10, 10, 10, 10, 28, 28, 10, 101, 754),
    (1567, 8, 5, 5, 5, 5, 1933, 20, 5, 67, 482),
    (1705, 3, 3, 3, 3, 3, 1055, 9, 3, 24, 1288),
    (5, 9, 5, 5, 5, 5, 21, 21, 5, 71, 3945),
)
"""Of 4097, 4097, 4102, 4099 and 4097 parts of each level."""
SEED, SECONDS = 1, 1800.0
SHOWN = ("total", "hispanic * race", "voting_age", "residence", "detail")
COLUMNS = ("level", "regions", *(f"error of {text}" for text in SHOWN))


def schema(*, structural_zeros: bool = True) -> Schema:
    """Return ethnicity 2 x race 7 x voting age 2 x residence 8: 224 cells, 210 without children in the army."""
    attributes = {
        "hispanic": ("no", "yes"),
        "race": (*RACES, SEVERAL),
        "voting_age": ("under_18", "over_17"),
        "residence": RESIDENCES,
    }
    zeros = ("voting_age = under_18 & residence = military",) if structural_zeros else ()
    return Schema(
        attributes,
        zeros,
        {"quarters": ValueGroups("residence", {name: list(values) for name, values in QUARTERS.items()})},
    )


def people(blocks: Blocks, *, structural_zeros: bool = True) -> TableCounts:
    """Return simulated tables of the schema's cells, combinations of races as one."""
    fine = schema(structural_zeros=structural_zeros)
    tables = large_tables(blocks, structural_zeros=structural_zeros)
    codes = tables.schema.decode(tables.counts.cells)
    codes["race"] = np.minimum(codes["race"], len(RACES))
    leaf = np.repeat(np.arange(tables.counts.offsets.size - 1), np.diff(tables.counts.offsets))
    return TableCounts.from_microdata(tables.hierarchy, fine, leaf, fine.encode(codes), tables.counts.counts)


def settings(fine: Schema, *, nation: bool = False, seed: int = SEED) -> dict[str, dict[str, Any]]:
    """Return the sections of a configuration: the production run's, with the nation's level or without it."""
    levels = (NATION_SHARE, *LEVEL_SHARES) if nation else LEVEL_SHARES
    shares = (NATION_SHARES, *SHARES) if nation else SHARES
    total = sum(levels)
    return {
        "privacy": {
            "mechanism": "discrete_gaussian",
            "rho": str(RHO * total / 4099),
            "split": [str(Fraction(share, total)) for share in levels],
            "neighbours": "replace",
            "noise": "seeded",
            "seed": seed,
        },
        "topdown": {
            "attributes": {name: list(values) for name, values in fine.attributes.items()},
            "structural_zeros": list(fine.structural_zeros),
            "groupings": {"quarters": {"of": "residence", "groups": {k: list(v) for k, v in QUARTERS.items()}}},
            "workload": list(QUERIES),
            "strategy": list(QUERIES),
            "shares": [[str(Fraction(part, sum(level))) for part in level] for level in shares],
            "invariants": [{"query": "total", "level": "state"}],
            "facilities": {"attribute": "residence", "types": {name: {} for name in RESIDENCES[1:]}},
        },
    }


def config_of(counts: TableCounts, folder: Path) -> Config:
    """Return the configuration of a release of these tables, which stay in memory, with their facilities."""
    import pyarrow as pa

    data = frames(counts, LEVELS)
    homes = counts.answers_to(parse_query("residence", counts.schema).operator, counts.hierarchy.leaves)
    types = {name: (homes[:, k] > 0).astype(np.int64) for k, name in enumerate(RESIDENCES) if k}
    facilities = pa.table({"region_id": data["hierarchy"].column("region_id"), **types})
    sections: dict[str, Any] = settings(counts.schema)
    return configure(folder=folder, data={**data, "facilities": facilities}, **sections)


def _errors(counts: TableCounts, folder: Path, seconds: float) -> Table:
    """Return mean absolute errors by level and query, of the tables as read back from the folder."""
    published, tree = read_tables_release(folder), counts.hierarchy
    leaves = published.runs.part(tree.leaves.start, tree.leaves.stop)
    released = TableCounts.from_microdata(tree, counts.schema, leaves.owners, leaves.cells, leaves.counts)
    rows: list[tuple[Cell, ...]] = []
    for level, name in enumerate(LEVELS):
        regions = tree.level_range(level)
        errors = []
        for text in SHOWN:
            query = parse_query(text, counts.schema).operator
            errors.append(float(np.abs(released.answers_to(query, regions) - counts.answers_to(query, regions)).mean()))
        rows.append((name, len(regions), *errors))
    relaxed, uncertified_gap = published.manifest["relaxed"], published.manifest["unproved"]["steps"]
    notes = (
        f"A release in {seconds:.1f} s; {len(relaxed)} regions relaxed, {uncertified_gap} steps not proved nearest.",
        "Mean absolute errors of released answers in people. Noise is seeded: NOT PRIVATE.",
    )
    return Table(
        "like the 2020 redistricting data: 11 queries, shares by level, facilities by block",
        COLUMNS,
        tuple(rows),
        notes,
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Release, verify and compare; fails where a check of the release does, or it takes longer than half an hour."""
    counts = people(generated_blocks(np.random.default_rng(7), 2, 2, 1, 3) if small else hawaii(data))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = config_of(counts, folder)
        reporter.progress(NAME, 1, 3)
        start = perf_counter()
        outcome = release(config, folder / "release")
        seconds = perf_counter() - start
        reporter.progress(NAME, 2, 3)
        failures = [f"{check.name}: {check.detail}" for check in verify_release(outcome.folder) if not check.passed]
        table = _errors(counts, outcome.folder, seconds)
    if seconds > SECONDS:
        failures.append(f"the release took {seconds:.0f} s, more than {SECONDS:.0f}")
    reporter.progress(NAME, 3, 3)
    off = table.records()[0]["error of total"]
    claim = Statement(
        "Abowd et al. 2022, invariants",
        "states' totals and occupied facilities of every block hold exactly in the published tables",
        f"error of the state's total {off:g}; {len(failures)} checks of the release failed",
        not failures and off == 0.0,
    )
    return publish(NAME, {"": table}, out, reporter, failures=failures, statements=[claim])
