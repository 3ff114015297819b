"""Three Parquet tables read with all checks, each reading in a process of its own, against DuckDB's group-by.

DuckDB makes the same checks of ids and has no bound on its memory. It neither compares texts in one Unicode form nor
looks for spaces and hidden characters in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.apart import Apart, apart, typical
from coco_experiments.bench.rows import Row, finish
from coco_experiments.bench.timing import Timing
from coco_experiments.outcome import Outcome, Reporter
from coco_opt.groups.measuring.entities import read_tables

NAME = "bench/ingestion"
LEAVES, SMALL_LEAVES = 3_109, 30
READ, DUCKDB = "three tables, all checks", "DuckDB, the same group-by and checks"
TARGET, MEMORY = 1 / 1.5, 2000.0  # times DuckDB's speed; MB
_ROWS = 1 << 20

Rows = list[list[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """How many entities, whether their ids are texts, how often they are read, and in how many files they lie."""

    entities: int
    texts: bool
    repeats: int
    parts: int = 1

    @property
    def name(self) -> str:
        """Return how the table calls it."""
        files = "" if self.parts == 1 else f", {self.parts} files"
        return f"simulated data, {'ids as text' if self.texts else 'integer ids'}{files}"


CASES = (Case(20_000_000, texts=False, repeats=3), Case(20_000_000, texts=True, repeats=1))
SMALL = (Case(20_000, texts=False, repeats=1), Case(20_000, texts=True, repeats=1))


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


def rows_of(case: Case, leaves: int) -> tuple[list[Row], list[str]]:
    """Return the rows of a case, taking turns, and a line where the two do not count the same."""
    module = "coco_experiments.bench.ingestion"
    runs: dict[str, list[Apart]] = {READ: [], DUCKDB: []}
    with TemporaryDirectory() as folder:
        rng = np.random.default_rng(15)
        write_tables(Path(folder), case.entities, leaves, rng, texts=case.texts, parts=case.parts)
        for _ in range(case.repeats):
            runs[READ].append(apart(f"{module}:by_coco_opt", folder))
            runs[DUCKDB].append(apart(f"{module}:by_duckdb", folder))
    clocks = {what: Timing(tuple(reading.seconds for reading in done), None) for what, done in runs.items()}
    ours, theirs = typical(runs[READ]), typical(runs[DUCKDB])
    ratio = clocks[READ].ratio(clocks[DUCKDB])
    target = None if case.texts else TARGET
    rows = [
        Row(case.name, READ, case.entities, ours.seconds, DUCKDB, ratio, target, None, ours.cpu, ours.peak, MEMORY),
        Row(case.name, DUCKDB, case.entities, theirs.seconds, cpu=theirs.cpu, peak=theirs.peak),
    ]
    return rows, [] if ours.value == theirs.value else [f"{case.name}: the counts are not DuckDB's"]


def measured(name: str, cases: tuple[Case, ...], leaves: int, out: Path, reporter: Reporter) -> Outcome:
    """Return the outcome of several cases under one name."""
    rows: list[Row] = []
    wrong: list[str] = []
    with TemporaryDirectory() as folder:  # compiles
        write_tables(Path(folder), SMALL[0].entities, SMALL_LEAVES, np.random.default_rng(1))
        by_coco_opt(folder)
    for done, case in enumerate(cases, 1):
        more, faults = rows_of(case, leaves)
        rows, wrong = rows + more, wrong + faults
        reporter.progress(name, done, len(cases))
    notes = [
        "Simulated data: entities in random groups. DuckDB works in two threads, without a bound on its memory; of "
        "texts it checks neither spaces nor hidden characters, and brings them into no common form.",
        "Each reading runs in a process of its own: peak MB are Python's and its packages' too.",
    ]
    title = f"Reading {cases[0].entities:,} entities in {2 * cases[0].entities // 5:,} groups"
    return finish(name, title, rows, notes, wrong, out, reporter)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the reading of simulated tables of 20 million entities, integer ids and texts (small: 20,000)."""
    return measured(NAME, SMALL if small else CASES, SMALL_LEAVES if small else LEAVES, out, reporter)
