"""Tables of a folder as CSV files, for who opens them in a spreadsheet."""

from __future__ import annotations

import shutil
from pathlib import Path

from coco_opt.files.source import quietly
from coco_opt.privacy.private_files import temporary_name

_MARK = b"\xef\xbb\xbf"  # without it spreadsheets take UTF-8 for another encoding


def write_csv_files(folder: Path, target: Path, delimiter: str = ",") -> tuple[Path, ...]:
    """Write each Parquet file of a folder as a CSV file in a new one, which appears complete or not at all.

    Returns the files; none, and no folder, where there is no table. Raises InputError: unreadable-file. Memory is a
    batch of rows.
    """
    tables = sorted(folder.glob("*.parquet"))
    if not tables:
        return ()
    building = temporary_name(target)
    building.mkdir(parents=True)
    try:
        for path in tables:
            quietly(path, lambda path=path: _write(path, building / f"{path.stem}.csv", delimiter))  # type: ignore[misc]
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return tuple(target / f"{path.stem}.csv" for path in tables)


def _write(path: Path, out: Path, delimiter: str) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    options = pa.csv.WriteOptions(delimiter=delimiter)
    with pq.ParquetFile(path, page_checksum_verification=True) as source, out.open("wb") as file:
        file.write(_MARK)
        names = source.schema_arrow.names
        schema = pa.schema([(name, _plain(source.schema_arrow.field(name).type)) for name in names])
        with pa.csv.CSVWriter(file, schema, write_options=options) as writer:
            for batch in source.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))


def _plain(kind: object) -> object:
    """Return the type that a coded column of texts has once it is written out."""
    import pyarrow.types as kinds

    return kind.value_type if kinds.is_dictionary(kind) else kind  # type: ignore[attr-defined]
