"""Three Parquet tables with whole-number ids, read with all checks, against DuckDB's group-by with the same ones."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from coco_experiments.bench.rows import Row, finish
from coco_experiments.bench.timing import take_turns
from coco_experiments.experiment import Outcome, Reporter
from coco_opt.groups.asked.entities import read_tables
from coco_opt.groups.asked.private import PrivateCounts

NAME = "bench/ingestion"
ENTITIES, LEAVES = 20_000_000, 3_109
SMALL_ENTITIES, SMALL_LEAVES = 20_000, 30
REPEATS = 3
READ, DUCKDB = "three tables, all checks", "DuckDB, the same group-by and checks"
TARGET = 1 / 1.5
_ROWS = 1 << 20

Rows = list[tuple[int, int, int]]


def write_tables(folder: Path, entities: int, leaves: int, rng: np.random.Generator) -> tuple[Path, Path, Path]:
    """Write made tables, two groups for five entities; return the paths of entities, groups and hierarchy."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = 2 * entities // 5
    paths = folder / "entities.parquet", folder / "groups.parquet", folder / "hierarchy.csv"
    lines = (f"{leaf},nation,state{leaf % 50},county{leaf}" for leaf in range(leaves))
    paths[2].write_text("\n".join(["region_id,nation,state,county", *lines, ""]), encoding="utf-8")
    listed = {"group_id": np.arange(groups), "region_id": np.sort(rng.integers(0, leaves, groups))}
    pq.write_table(pa.table(listed), paths[1], row_group_size=_ROWS)
    members = {"entity_id": np.arange(entities), "group_id": rng.integers(0, groups, entities)}
    pq.write_table(pa.table(members), paths[0], row_group_size=_ROWS)
    return paths


def by_duckdb(entities: Path, groups: Path) -> Rows:
    """Return (region, size, groups) by DuckDB, after the checks that ``read_tables`` makes of ids."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET threads = 2")
    con.execute(f"CREATE VIEW entities AS FROM '{entities}'")
    con.execute(f"CREATE VIEW groups AS FROM '{groups}'")
    for wrong in (
        "SELECT count(*) - count(DISTINCT group_id) + count(*) - count(region_id) FROM groups",
        "SELECT count(*) - count(DISTINCT entity_id) + count(*) - count(group_id) FROM entities",
        "SELECT count(*) FROM entities ANTI JOIN groups USING (group_id)",
    ):
        assert con.execute(wrong).fetchall() == [(0,)]
    query = """
        WITH filled AS (SELECT group_id, count(*) AS size FROM entities GROUP BY group_id)
        SELECT region_id, coalesce(size, 0) AS size, count(*) FROM groups LEFT JOIN filled USING (group_id)
        GROUP BY ALL ORDER BY ALL"""
    return con.execute(query).fetchall()


def disagreements(counts: PrivateCounts, rows: Rows) -> list[str]:
    """Return one line where the tables are not the same; leaves are in the order of their paths there, by id here."""
    tree = counts.hierarchy
    leaf_of = {int(path.rpartition("county")[2]): leaf for leaf, path in enumerate(tree.paths[tree.leaves.start :])}
    theirs = sorted((leaf_of[region], size, groups) for region, size, groups in rows)
    offsets, sizes, groups = counts.arrays
    leaf = np.repeat(np.arange(len(tree.leaves)), np.diff(offsets))
    ours = list(zip(leaf.tolist(), sizes.tolist(), groups.tolist(), strict=True))
    return [] if ours == theirs else ["the counts are not DuckDB's"]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the reading of made tables of 20 million entities (small: 20,000)."""
    entities, leaves, repeats = (SMALL_ENTITIES, SMALL_LEAVES, 1) if small else (ENTITIES, LEAVES, REPEATS)
    with TemporaryDirectory() as temporary:
        paths = write_tables(Path(temporary), entities, leaves, np.random.default_rng(15))
        timings = take_turns({READ: lambda: read_tables(*paths), DUCKDB: lambda: by_duckdb(*paths[:2])}, repeats)
    ours, theirs = timings[READ], timings[DUCKDB]
    rows = [
        Row("made data", READ, entities, ours.median, DUCKDB, ours.ratio(theirs), TARGET),
        Row("made data", DUCKDB, entities, theirs.median),
    ]
    notes = ["Made data: ids are whole numbers from 0 on, entities in random groups. DuckDB works in two threads."]
    title = f"Reading {entities:,} entities in {2 * entities // 5:,} groups: median of {repeats} runs"
    return finish(NAME, title, rows, notes, disagreements(ours.value, theirs.value), out, reporter)
