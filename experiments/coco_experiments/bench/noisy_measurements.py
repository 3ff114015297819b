"""A million rows in the layout of the 2020 Census Noisy Measurement Files, read here and by bare pyarrow."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_opt import Measurement, configure, read_noisy_measurements
from coco_opt.config import Config

COUNTIES, BLOCKS = 400, 320
SMALL_COUNTIES, SMALL_BLOCKS = 5, 12
READ, PYARROW = "read and checked", "pyarrow, the columns alone"
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
_ROWS = 1 << 17


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
        pq.write_table(pa.concat_tables(parts), files / f"{level}.parquet", row_group_size=_ROWS)
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


def measure(bench: Bench) -> str:
    """Time the reading of a million rows of a tree of 128,401 regions (small: 66)."""
    counties, blocks = (SMALL_COUNTIES, SMALL_BLOCKS) if bench.small else (COUNTIES, BLOCKS)
    with TemporaryDirectory() as temporary:
        files, hierarchy, count = write_files(Path(temporary), counties, blocks, np.random.default_rng(20))
        config = config_of(hierarchy)
        calls = {READ: lambda: read_noisy_measurements(files, config), PYARROW: lambda: by_pyarrow(files)}
        timings = take_turns(calls, bench.repeats)
    ours, theirs = timings[READ], timings[PYARROW]
    compared = {"peer": PYARROW, "ratio": ours.ratio(theirs), "limit": LIMIT}
    bench.row("simulated data", READ, count, ours.median, **compared)
    bench.row("simulated data", PYARROW, count, theirs.median)
    if summed(ours.value) != theirs.value:
        bench.wrong.append("the answers are not those of the files")
    return f"Reading {count:,} rows of noisy measurements: median of {bench.repeats} runs"


NOTES = ("Reading the hierarchy, its geocodes and all checks are in the time; pyarrow decodes four columns alone.",)
NOISY_MEASUREMENTS = Benchmark("bench/noisy_measurements", measure, NOTES, (3, 1))
