"""Records of persons read with all checks, each reading in a process of its own, against DuckDB's group-by.

``noisy_measurements``: a million rows in the layout of the 2020 Census Noisy Measurement Files, against bare pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_opt import Measurement, configure, read_noisy_measurements
from coco_opt.config import Config
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


COUNTIES, BLOCKS = 400, 320
SMALL_COUNTIES, SMALL_BLOCKS = 5, 12
PUBLISHED_READ, PYARROW = "read and checked", "pyarrow, the columns alone"
LIMIT = 10.0
ATTRIBUTES = {
    "hhgq": ["household", "prison", "juvenile", "nursing", "other_inst", "college", "military", "other"],
    "votingage": ["under", "over"],
    "hispanic": ["no", "yes"],
}
QUERIES = {
    "total_dpq": (),
    "hhgq_dpq": (8,),
    "votingage_dpq": (2,),
    "hispanic_dpq": (2,),
    "votingage * hispanic_dpq": (2, 2),
    "hispanic * hhgq_dpq": (8, 2),
    "votingage * hhgq_dpq": (8, 2),
    "detailed_dpq": (8, 2, 2),
}
_PUBLISHED_ROWS = 1 << 17


def write_files(folder: Path, counties: int, blocks: int, rng: np.random.Generator) -> tuple[Path, Path, int]:
    """Write made files of that layout, one a level; return the files' folder, the hierarchy and the number of rows.

    Geocodes are 1, 4 and 8 characters long. Values are noise alone, as of regions without anybody.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    above = [f"1{county:03d}" for county in range(counties)]
    leaves = [f"{code}{block:04d}" for code in above for block in range(blocks)]
    lines = (f"{leaf},1,{leaf[:4]},{leaf}" for leaf in leaves)
    hierarchy = folder / "hierarchy.csv"
    hierarchy.write_text("\n".join(["region_id,US,County,Block", *lines, ""]), encoding="utf-8")
    files = folder / "nmf"
    files.mkdir()
    rows = 0
    for level, codes in (("US", ["1"]), ("County", above), ("Block", leaves)):
        parts = [_table(pa, name, shape, codes, rng) for name, shape in QUERIES.items()]
        pq.write_table(pa.concat_tables(parts), files / f"{level}.parquet", row_group_size=_PUBLISHED_ROWS)
        rows += len(codes) * len(QUERIES)
    return files, hierarchy, rows


def _table(pa: Any, name: str, shape: tuple[int, ...], codes: list[str], rng: np.random.Generator) -> Any:
    """Return the rows of one query."""
    size, sides = int(np.prod(shape, dtype=np.int64)), len(shape)
    values = rng.integers(-40, 60, size * len(codes))
    starts = np.arange(len(codes) + 1, dtype=np.int32)
    return pa.table(
        {
            "geocode": pa.array(codes),
            "query_name": pa.array([name] * len(codes)),
            "query_shape": pa.ListArray.from_arrays(starts * sides, pa.array(np.tile(shape, len(codes)), pa.int64())),
            "value": pa.ListArray.from_arrays(starts * size, pa.array(values)),
            "variance": pa.array(np.full(len(codes), 12.5)),
            "sign": pa.nulls(len(codes), pa.string()),
        }
    )


def config_of(hierarchy: Path) -> Config:
    """Return the configuration that reads them."""
    return configure(
        folder=hierarchy.parent,
        data={"records": "nowhere.parquet", "hierarchy": hierarchy.name},
        privacy={"epsilon": "1", "dataset": "theirs"},
        topdown={"attributes": ATTRIBUTES, "workload": ["total", "hhgq"]},
    )


def by_pyarrow(files: Path) -> int:
    """Return the sum of all values, read without any check."""
    import pyarrow.parquet as pq

    columns = ["geocode", "query_name", "value", "variance"]
    tables = [pq.read_table(path, columns=columns) for path in sorted(files.glob("*.parquet"))]
    return sum(int(chunk.flatten().to_numpy().sum()) for table in tables for chunk in table.column("value").chunks)


def summed(measurement: Measurement) -> int:
    """Return the sum of all answers."""
    return sum(int(part.values.sum()) for part in measurement.answers)


def measure_published(bench: Bench) -> str:
    """Time the reading of a million rows of a tree of 128,401 regions (small: 66)."""
    counties, blocks = (SMALL_COUNTIES, SMALL_BLOCKS) if bench.small else (COUNTIES, BLOCKS)
    with TemporaryDirectory() as temporary:
        files, hierarchy, count = write_files(Path(temporary), counties, blocks, np.random.default_rng(20))
        config = config_of(hierarchy)
        calls = {PUBLISHED_READ: lambda: read_noisy_measurements(files, config), PYARROW: lambda: by_pyarrow(files)}
        timings = take_turns(calls, bench.repeats)
    ours, theirs = timings[PUBLISHED_READ], timings[PYARROW]
    compared = {"peer": PYARROW, "ratio": ours.ratio(theirs), "limit": LIMIT}
    bench.row("simulated data", PUBLISHED_READ, count, ours.median, **compared)
    bench.row("simulated data", PYARROW, count, theirs.median)
    if summed(ours.value) != theirs.value:
        bench.wrong.append("the answers are not those of the files")
    return f"Reading {count:,} rows of noisy measurements: median of {bench.repeats} runs"


PUBLISHED_NOTES = (
    "Reading the hierarchy, its geocodes and all checks are in the time; pyarrow decodes four columns alone.",
)
NOISY_MEASUREMENTS = Benchmark("bench/noisy_measurements", measure_published, PUBLISHED_NOTES, (3, 1))
