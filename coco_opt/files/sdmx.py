"""The main table of a release as SDMX-CSV 2.0, the exchange format of statistical offices (SDMX 3.0).

Columns: STRUCTURE, STRUCTURE_ID and ACTION; the dimensions REF_AREA, those of the table's keys in capital letters and
TIME_PERIOD where it is stated; the measure OBS_VALUE; the attributes OBS_STATUS and, where the table has it,
STANDARD_ERROR. Source: SDMX-CSV field guide of the SDMX technical working group.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.files.csv import plain_schema
from coco_opt.files.differences import REGION, Compared
from coco_opt.files.foreign_errors import quietly
from coco_opt.privacy.private_files import temporary_name

_ID = r"[A-Za-z][A-Za-z0-9_-]*"
_STRUCTURE = re.compile(rf"{_ID}(\.{_ID})*:[A-Za-z0-9_@$-]+\([0-9]+(\.[0-9]+)*\)")
_PERIOD = re.compile(r"[0-9]{4}[0-9A-Za-z:/-]*")
_ACTION = "R"  # replace: what a receiving system knows of the same keys
_STATUS = "E"  # estimated value, in the cross-domain code list of observation status
# Letters that have no accent to take off.
_LETTERS = str.maketrans({"ł": "l", "Ł": "l", "ø": "o", "Ø": "o", "đ": "d", "Đ": "d", "ß": "ss", "æ": "ae", "œ": "oe"})
_IDENTITY = ("STRUCTURE", "STRUCTURE_ID", "ACTION")
_FIXED = (*_IDENTITY, "REF_AREA", "TIME_PERIOD", "OBS_VALUE", "OBS_STATUS", "STANDARD_ERROR")


def write_sdmx(folder: Path, target: Path, compared: Compared, structure: str, period: str | None = None) -> int:
    """Write the main table of a release as an SDMX-CSV file, which appears complete or not at all.

    ``structure`` identifies the office's dataflow, as in "OFFICE:HOUSEHOLDS(1.0)", ``period`` the time of all counts. A
    region is its id where it has one, else its path. Returns the number of observations. Memory is a batch of rows.
    Raises InputError: bad-option, unreadable-file, file-not-found.
    """
    if not _STRUCTURE.fullmatch(structure):
        raise InputError(
            "bad-option", '--sdmx names a dataflow as AGENCY:ID(VERSION), such as "OFFICE:HOUSEHOLDS(1.0)"'
        )
    if period is not None and not _PERIOD.fullmatch(period):
        raise InputError("bad-option", "--period is a time in SDMX's form, such as 2026, 2026-Q1 or 2026-04-01")
    path = folder / f"{compared.table}.parquet"
    if not path.is_file():
        raise InputError("file-not-found", f"has no {path.name}: give a release folder", Place(folder.name))
    building = temporary_name(target)
    building.parent.mkdir(parents=True, exist_ok=True)
    try:
        rows: int = quietly(path, lambda: _write(path, building, compared, structure, period))
        building.rename(target)
    finally:
        building.unlink(missing_ok=True)
    return rows


def _write(path: Path, out: Path, compared: Compared, structure: str, period: str | None) -> int:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as source, out.open("wb") as file:
        schema, header = plain_schema(source.schema_arrow), False
        for batch in source.iter_batches():
            table = _observations(pa.Table.from_batches([batch]).cast(schema), compared, structure, period)
            if not header:
                file.write((",".join(table.column_names) + "\n").encode())
                header = True
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False))
        return int(source.metadata.num_rows)


def _observations(table: Any, compared: Compared, structure: str, period: str | None) -> Any:
    """Return the rows with SDMX's columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = (*REGION, compared.value, compared.error)
    keys = compared.keys or tuple(name for name in table.column_names if name not in known)
    fixed = {"STRUCTURE": "dataflow", "STRUCTURE_ID": structure, "ACTION": _ACTION}
    columns: dict[str, Any] = {name: pa.repeat(value, table.num_rows) for name, value in fixed.items()}
    if "region" in table.column_names:
        columns["REF_AREA"] = pc.coalesce(table["region_id"], table["region"])
    columns |= {name: table[key] for name, key in zip(components(keys), keys, strict=True)}
    if period is not None:
        columns["TIME_PERIOD"] = pa.repeat(period, table.num_rows)
    columns["OBS_VALUE"] = table[compared.value]
    columns["OBS_STATUS"] = pa.repeat(_STATUS, table.num_rows)
    if compared.error:
        columns["STANDARD_ERROR"] = table[compared.error]
    return pa.table(columns)


def components(keys: Iterable[str]) -> list[str]:
    """Return an id for each key that no other component has: where its own is taken, D_ and a number mark it."""
    names: list[str] = []
    for plain in map(component, keys):
        marked = chain((plain, f"D_{plain}"), (f"D_{plain}{number}" for number in count(2)))
        names.append(next(name for name in marked if name not in (*_FIXED, *names)))
    return names


def component(name: str) -> str:
    """Return the id of a component: capital letters without accents, digits and underscores, a letter first."""
    letters = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    plain = re.sub(r"[^A-Z0-9_]+", "_", "".join(c for c in letters if not unicodedata.combining(c)).upper())
    return plain if re.match("[A-Z]", plain) else f"D_{plain}"
