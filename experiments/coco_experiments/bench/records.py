"""Records of persons read with all checks against DuckDB's group-by, which makes none, each in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark
from coco_opt.files.regions import read_regions
from coco_opt.topdown.measuring.records import read_records
from coco_opt.topdown.names import Bins
from coco_opt.topdown.schema import Schema

READ, DUCKDB = "records, all checks", "DuckDB, the same group-by"
SEXES, RACES, AGES = ("female", "male"), tuple("abcdefg"), ("0..4", "5..17", "18..64", "65..")
_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """How many records in how many regions, in whose order or in none."""

    records: int
    regions: int
    sorted: bool

    @property
    def name(self) -> str:
        """Return how the table calls it."""
        order = "in the order of regions" if self.sorted else "in any order"
        return f"simulated records of {self.regions:,} regions, {order}"


CASES = tuple(Case(10_000_000, 100_000, ordered) for ordered in (True, False))
SMALL = tuple(Case(20_000, 100, ordered) for ordered in (True, False))


def write_records(folder: Path, case: Case, rng: np.random.Generator) -> None:
    """Write records.parquet (region_id, sex, race, age) and hierarchy.parquet, a million rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = pa.array([f"{k:08}" for k in range(case.regions)])
    tree = {"region_id": ids, "nation": ["n"] * case.regions, "county": [f"c{k}" for k in range(case.regions)]}
    pq.write_table(pa.table(tree), folder / "hierarchy.parquet")
    schema = pa.schema([("region_id", ids.type), ("sex", ids.type), ("race", ids.type), ("age", pa.int64())])
    with pq.ParquetWriter(folder / "records.parquet", schema, write_page_checksum=True) as file:
        for begin in range(0, case.records, _ROWS):
            size = min(_ROWS, case.records - begin)
            region = rng.integers(0, case.regions, size)
            if case.sorted:
                region = (begin + np.arange(size)) * case.regions // case.records
            drawn = [pa.array(texts).take(pa.array(rng.integers(0, len(texts), size))) for texts in (SEXES, RACES)]
            columns = [ids.take(pa.array(region)), *drawn, pa.array(rng.integers(0, 100, size))]
            file.write_table(pa.table(columns, schema=schema))


def by_coco_opt(folder: str) -> list[int]:
    """Return the records and the occupied cells of the tables in a folder."""
    place, ages = Path(folder), Bins.of(AGES)
    assert ages is not None
    schema = Schema({"sex": SEXES, "race": RACES, "age": ages.labels})
    public = read_regions(place / "hierarchy.parquet")
    counts = read_records(public, place / "records.parquet", schema, spill=place / "private", bins={"age": ages})
    return [int(counts.counts.sum()), int(counts.cells.size)]


def by_duckdb(folder: str) -> list[int]:
    """Return the same by DuckDB, in two threads and without a bound on its memory; it checks nothing."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET threads = 2")
    ages = "CASE WHEN age < 5 THEN 0 WHEN age < 18 THEN 1 WHEN age < 65 THEN 2 ELSE 3 END"
    cells = f"SELECT count(*) AS n FROM '{folder}/records.parquet' GROUP BY region_id, sex, race, {ages}"
    return [int(value) for value in con.execute(f"SELECT sum(n), count(*) FROM ({cells})").fetchall()[0]]


def measure(bench: Bench) -> str:
    """Time the reading of ten million simulated records in 100,000 regions of 56 cells (small: 20,000 in 100)."""
    cases, calls = SMALL if bench.small else CASES, {READ: "by_coco_opt", DUCKDB: "by_duckdb"}
    for case in bench.over(cases):
        with TemporaryDirectory() as folder:
            write_records(Path(folder), case, np.random.default_rng(15))
            targets = {what: (f"{__name__}:{name}", [folder]) for what, name in calls.items()}
            ours, theirs = bench.in_turns(case.name, case.records, targets)
        if ours != theirs:
            bench.wrong.append(f"{case.name}: the counts are not DuckDB's")
    return f"Reading {cases[0].records:,} records"


NOTES = ("Each reading runs in a process of its own: peak MB are Python's and its packages' too.",)
RECORDS = Benchmark("bench/records", measure, NOTES, (3, 1))
