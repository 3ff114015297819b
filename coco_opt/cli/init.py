"""``coco-opt init``: a commented configuration from the headers of the user's own files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coco_opt.cli.console import write
from coco_opt.cli.options import Version
from coco_opt.errors import InputError, Place

_HEADER_LIMIT = 1 << 20
_TABLES = ("entities", "groups", "hierarchy")

_TEMPLATE = """\
# A coco-opt release. Check it, then run:  coco-opt release {name}
[data]
{data}
[privacy]
epsilon = "1"                 # the whole budget, an exact decimal or fraction; smaller is more private
# mechanism = "discrete_gaussian" takes rho = "1/2", or epsilon and delta = "1/1000000", in place of epsilon alone
split = "uniform"             # or one share a level, root first, such as ["1/4", "1/4", "1/2"]
noise = "secure"              # cryptographic noise that cannot be repeated
neighbours = "add_remove"     # or "replace": entities may move between groups while their number is public

[groups]
max_size = 100000             # public bound on a group's size: choose it without looking at the private table
estimator = "cumulative"      # naive | rank | cumulative, or one a level
loss = "l1"                   # l1 | l2
ties = "upper"                # upper | lower | midpoint, for loss l1
consistency = "matching"      # joint | convex | matching | bottom_up | none
merge = "weighted"            # weighted | average
rounding = "half_up"          # half_up | half_even

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# isotonic_l1 = "highs"

[output]
directory = "releases"        # public results
private = "private"           # run records for your eyes only, mode 0700
"""


def init(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Your tables (CSV or Parquet); none: those in this folder."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the config.")] = Path("coco-opt.toml"),
    version: Version = False,
) -> int:
    """Write a commented config for your tables, told apart by their headers alone; overwrites nothing."""
    if os.path.lexists(out):
        raise InputError("file-exists", "exists already: give another --out", Place(str(out)))
    found = _recognise(files or _tables_here(), strict=bool(files))
    text = _TEMPLATE.format(name=out.name, data=_data_section(found, out.parent))
    reason = ""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot be written: {reason}", Place(str(out)))
    missing = [] if "sizes" in found else [role for role in _TABLES if role not in found]
    first = f"fill in the tables not found ({', '.join(missing)}), " if missing else ""
    write(f"Wrote {out}: {first}check max_size and epsilon, then run  coco-opt release {out}")
    return 0


def _tables_here() -> list[Path]:
    return sorted(path for path in Path().iterdir() if path.suffix.lower() in (".csv", ".parquet"))


def _recognise(files: Sequence[Path], *, strict: bool) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Return each role's file and column names; in ``strict`` mode a file of no role is an error."""
    found: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for path in files:
        names = _header(path)
        role = _role(names)
        if role is None and strict:
            message = (
                "has none of the headers entity_id, group_id | group_id, region_id | region_id, levels... | "
                "levels..., size, groups"
            )
            raise InputError("no-header", message, Place(str(path)))
        if role is not None and role in found:
            message = f"is a table of {role}, and so is {found[role][0].name}: name the files to use"
            raise InputError("two-tables", message, Place(str(path)))
        if role is not None:
            found[role] = (path, names)
    if strict and "sizes" in found and len(found) > 1:
        message = "counts made elsewhere need no other table: give this file alone, or the three others"
        raise InputError("two-tables", message, Place(str(found["sizes"][0])))
    return found


def _role(names: Sequence[str]) -> str | None:
    columns = set(names)
    if columns == {"entity_id", "group_id"}:
        return "entities"
    if columns == {"group_id", "region_id"}:
        return "groups"
    if tuple(names[-2:]) == ("size", "groups"):
        return "sizes"
    if names and names[0] == "region_id" and len(names) > 1:
        return "hierarchy"
    return None


def _header(path: Path) -> tuple[str, ...]:
    """Return a file's column names; nothing below the header is read, and no error shows any of it."""
    place = Place(str(path))
    if not path.is_file():
        raise InputError("file-not-found", "no such file", place)
    try:
        if path.suffix.lower() == ".csv":
            with path.open("rb") as file:
                line = file.readline(_HEADER_LIMIT).decode("utf-8-sig")
            return tuple(next(csv.reader([line], strict=True), []))
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            return tuple(pq.read_schema(path).names)
        failure = InputError("unknown-format", "must be a .csv or .parquet file", place)
    except (OSError, ValueError, csv.Error):
        failure = InputError("unreadable-file", "its header cannot be read", place)
    raise failure


def _data_section(found: dict[str, tuple[Path, tuple[str, ...]]], folder: Path) -> str:
    """Return the [data] lines; names of tables that were not found are left to fill in."""
    if "sizes" in found and not all(role in found for role in _TABLES):
        path, names = found["sizes"]
        lines = [_line("sizes", _relative(path, folder), "level columns root first, then size, groups: private")]
        if len(names) == 2:
            lines.append('root = "all"                  # the table has no level columns: name its one region')
        return "\n".join(lines) + "\n"
    notes = ("entity_id, group_id: private", "group_id, region_id: public", "region_id, then levels: public")
    lines = []
    for role, note in zip(_TABLES, notes, strict=True):
        name = _relative(found[role][0], folder) if role in found else f"{role}.csv"
        missing = "" if role in found else " (NOT FOUND: fill in)"
        lines.append(_line(role, name, note + missing))
    return "\n".join(lines) + "\n"


def _line(key: str, value: str, note: str) -> str:
    # A JSON string is a TOML string.
    return f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<30}# {note}"


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
