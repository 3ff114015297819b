"""Three Parquet tables read with all checks, each reading in a process of its own, against DuckDB's group-by.

DuckDB makes the same checks of ids and has no bound on its memory. It neither compares texts in one Unicode form nor
looks for spaces and hidden characters in them. ``ingestion_large`` reads 100 million entities in 40 million groups, in
one file and in a folder of 64: fifteen minutes and 15 GB of disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark
from coco_opt.groups.measuring.entities import read_tables

LEAVES, SMALL_LEAVES = 3_109, 30
READ, DUCKDB = "three tables, all checks", "DuckDB, the same group-by and checks"
TARGET, MEMORY = 1 / 1.5, 2000.0  # times DuckDB's speed; MB
_ROWS = 1 << 20

Rows = list[list[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """How many entities, whether their ids are texts, and in how many files they lie."""

    entities: int
    texts: bool
    parts: int = 1

    @property
    def name(self) -> str:
        """Return how the table calls it."""
        files = "" if self.parts == 1 else f", {self.parts} files"
        return f"simulated data, {'ids as text' if self.texts else 'integer ids'}{files}"


CASES = tuple(Case(20_000_000, texts) for texts in (False, True))
LARGE = tuple(Case(100_000_000, texts, parts) for texts in (False, True) for parts in (1, 64))
SMALL = tuple(Case(20_000, texts) for texts in (False, True))


def write_tables(
    folder: Path, entities: int, leaves: int, rng: np.random.Generator, *, texts: bool = False, parts: int = 1
) -> tuple[Path, Path, Path]:
    """Write simulated tables, two groups for five entities; return the paths of entities, groups and hierarchy.

    Entities lie in random groups, and in a folder of so many ``parts``; groups lie in regions in order. ``texts`` makes
    ids texts of 11 characters. A million rows are in memory at a time.
    """
    groups = 2 * entities // 5
    paths = folder / "entities", folder / "groups.parquet", folder / "hierarchy.csv"
    states = min(50, leaves // 2)
    lines = (f"{leaf},nation,state{leaf % states},county{leaf}" for leaf in range(leaves))
    paths[2].write_text("\n".join(["region_id,nation,state,county", *lines, ""]), encoding="utf-8")
    named = partial(_ids, texts=texts)

    def listed(begin: int, end: int) -> dict[str, Any]:
        ids = np.arange(begin, end)
        return {"group_id": named("g", ids), "region_id": ids * leaves // groups}

    def members(begin: int, end: int) -> dict[str, Any]:
        owners = rng.integers(0, groups, end - begin)
        return {"entity_id": named("p", np.arange(begin, end)), "group_id": named("g", owners)}

    _write(paths[1], 0, groups, listed)
    paths[0].mkdir()
    for part in range(parts):
        begin, end = (entities * k // parts for k in (part, part + 1))
        _write(paths[0] / f"part-{part:03}.parquet", begin, end, members)
    return paths


def _ids(begin: str, numbers: np.ndarray, *, texts: bool) -> Any:
    import pyarrow as pa
    import pyarrow.compute as compute

    if not texts:
        return pa.array(numbers)
    padded = compute.utf8_lpad(pa.array(numbers).cast(pa.string()), 10, "0")
    return compute.binary_join_element_wise(begin, padded, "")


def _write(path: Path, first: int, last: int, columns: Callable[[int, int], dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, pa.table(columns(first, first)).schema) as file:
        for begin in range(first, last, _ROWS):
            file.write_table(pa.table(columns(begin, min(last, begin + _ROWS))))


def by_coco_opt(folder: str) -> Rows:
    """Return (region, size, groups) of the tables in a folder, whose private folder may hold what has no room."""
    place = Path(folder)
    tables = place / "entities", place / "groups.parquet", place / "hierarchy.csv"
    counts = read_tables(*tables, place / "private")
    tree = counts.hierarchy
    regions = [int(path.rpartition("county")[2]) for path in tree.paths[tree.leaves.start :]]
    offsets, sizes, groups = counts.arrays
    region = np.repeat(np.array(regions, np.int64), np.diff(offsets))
    order = np.lexsort((sizes, region))
    rows: Rows = np.column_stack([region, sizes, groups])[order].tolist()
    return rows


def by_duckdb(folder: str) -> Rows:
    """Return (region, size, groups) by DuckDB, after the checks that ``read_tables`` makes of ids."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET threads = 2")
    con.execute(f"CREATE VIEW entities AS FROM '{folder}/entities/*.parquet'")
    con.execute(f"CREATE VIEW groups AS FROM '{folder}/groups.parquet'")
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
    return [list(row) for row in con.execute(query).fetchall()]


def read(bench: Bench, cases: tuple[Case, ...]) -> str:
    """Time the reading of simulated tables of these cases, integer ids and texts (small: 20,000 entities)."""
    cases, leaves = (SMALL, SMALL_LEAVES) if bench.small else (cases, LEAVES)
    calls = {READ: "by_coco_opt", DUCKDB: "by_duckdb"}
    with TemporaryDirectory() as folder:  # compiles
        write_tables(Path(folder), SMALL[0].entities, SMALL_LEAVES, np.random.default_rng(1))
        by_coco_opt(folder)
    for case in bench.over(cases):
        with TemporaryDirectory() as folder:
            rng = np.random.default_rng(15)
            write_tables(Path(folder), case.entities, leaves, rng, texts=case.texts, parts=case.parts)
            targets = {what: (f"coco_experiments.bench.ingestion:{name}", [folder]) for what, name in calls.items()}
            aims = {"target": None if case.texts else TARGET, "peak_limit": MEMORY}
            ours, theirs = bench.in_turns(case.name, case.entities, targets, **aims)
        if ours != theirs:
            bench.wrong.append(f"{case.name}: the counts are not DuckDB's")
    return f"Reading {cases[0].entities:,} entities in {2 * cases[0].entities // 5:,} groups"


NOTES = (
    "Simulated data: entities in random groups. DuckDB works in two threads, without a bound on its memory; of "
    "texts it checks neither spaces nor hidden characters, and brings them into no common form.",
    "Each reading runs in a process of its own: peak MB are Python's and its packages' too.",
)
INGESTION = Benchmark("bench/ingestion", partial(read, cases=CASES), NOTES, (3, 1))
INGESTION_LARGE = Benchmark("bench/ingestion_large", partial(read, cases=LARGE), NOTES)
