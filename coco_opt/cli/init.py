"""``coco-opt init``: a commented configuration from the headers of the user's own files."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coco_opt.cli.console import write
from coco_opt.cli.options import Version
from coco_opt.errors import InputError, Place

_HEADER_LIMIT = 1 << 20
_TABLES = ("entities", "groups", "hierarchy")
_OF_RECORDS = ("records", "hierarchy")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

_NOTES = {
    "entities": "entity_id, group_id: private",
    "groups": "group_id, region_id: public",
    "hierarchy": "region_id, then levels: public",
    "records": "region_id, attributes, perhaps count: private",
    "sizes": "level columns root first, then size, groups: private",
}

_HEAD = """\
# A coco-opt release. Check it, then run:  coco-opt plan {name}  and  coco-opt release {name}
[data]
{data}
[privacy]
epsilon = "1"                 # the whole budget, an exact decimal or fraction; smaller is more private
# mechanism = "discrete_gaussian" takes rho = "1/2", or epsilon and delta = "1/1000000", in place of epsilon alone
split = "uniform"             # or one share a level, root first, such as ["1/4", "1/4", "1/2"]
noise = "secure"              # cryptographic noise that cannot be repeated
neighbours = "add_remove"     # or "replace": {neighbours}

"""

_GROUPS = """\
[groups]
max_size = 100000             # public bound on a group's size: choose it without looking at the private table
estimator = "cumulative"      # naive | rank | cumulative, or one a level
loss = "l1"                   # l1 | l2
ties = "upper"                # upper | lower | midpoint, for loss l1
consistency = "matching"      # joint | convex | matching | bottom_up | none
merge = "weighted"            # weighted | average
rounding = "half_up"          # half_up | half_even
variances = "formula"         # formula | bootstrap (slower, merges better), for consistency matching, merge weighted

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# isotonic_l1 = "highs"
"""

_TOPDOWN = """\
[topdown]
workload = {workload}
# what you will look at; {crossed} crosses attributes, "detail" is every cell
strategy = "workload"         # what is measured: workload | identity | optimised, or a list of queries
# structural_zeros = ["age = child & work = yes"]            # what cannot be
# invariants = [{{ query = "total", level = {level} }}]    # exact, not private: needs neighbours = "replace"
estimation = "full"           # full | classic | bottom_up
rounding = "nearest"          # nearest | unbiased
microdata = false             # true: also one row a person

[topdown.attributes]          # every value that can occur, in your order, whether it does or not
{attributes}
[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# topdown_split = "piqp"
"""

_OUTPUT = """
[output]
directory = "releases"        # public results
private = "private"           # run records for your eyes only, mode 0700
"""

Found = dict[str, tuple[Path, tuple[str, ...]]]


def init(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Your tables (CSV or Parquet); none: those in this folder."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the config.")] = Path("coco-opt.toml"),
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="FILE", help="The private table with a row a person, for tables of persons."),
    ] = None,
    version: Version = False,
) -> int:
    """Write a commented config for your tables, told apart by their headers alone; overwrites nothing."""
    if os.path.lexists(out):
        raise InputError("file-exists", "exists already: give another --out", Place(str(out)))
    found = _recognise(files or _tables_here(), records, strict=bool(files))
    _write_new(out, _config(found, out))
    write(f"Wrote {out}: {_what_is_left(found)}, then run  coco-opt plan {out}  and  coco-opt release {out}")
    return 0


def _config(found: Found, out: Path) -> str:
    """Return the text of a config for the tables that were found."""
    of_persons = "records" in found
    moves = "persons' records may change while their number is public"
    if not of_persons:
        moves = "entities may move between groups while their number is public"
    head = _HEAD.format(name=out.name, data=_data_section(found, out.parent), neighbours=moves)
    return head + (_topdown_section(found) if of_persons else _GROUPS) + _OUTPUT


def _what_is_left(found: Found) -> str:
    """Return what the user must do before the config runs."""
    roles = _OF_RECORDS if "records" in found else () if "sizes" in found else _TABLES
    missing = [role for role in roles if role not in found]
    first = f"fill in the tables not found ({', '.join(missing)}), " if missing else ""
    return first + (
        "list every attribute's values, check epsilon" if "records" in found else "check max_size and epsilon"
    )


def _write_new(out: Path, text: str) -> None:
    reason = ""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot be written: {reason}", Place(str(out)))


def _tables_here() -> list[Path]:
    return sorted(path for path in Path().iterdir() if path.suffix.lower() in (".csv", ".parquet"))


def _recognise(files: Sequence[Path], records: Path | None, *, strict: bool) -> Found:
    """Return each role's file and column names; in ``strict`` mode a file of no role is an error."""
    found: Found = {} if records is None else {"records": (records, _record_columns(records))}
    for path in files:
        if records is not None and path.resolve() == records.resolve():
            continue
        names = _header(path)
        role = _role(names)
        if role is None and strict:
            message = (
                "has none of the headers entity_id, group_id | group_id, region_id | region_id, levels... | "
                "levels..., size, groups | region_id, attributes..., count"
            )
            raise InputError("no-header", message, Place(str(path)))
        if role is not None and role in found:
            raise _two_tables(role, path, found[role][0])
        if role is not None:
            found[role] = (path, names)
    return _one_form(found, chosen=records is not None, strict=strict)


def _one_form(found: Found, *, chosen: bool, strict: bool) -> Found:
    """Return the tables of one form of input; without ``strict``, tables that do not go with records named are left."""
    others = [role for role in found if role not in _OF_RECORDS]
    if "records" in found and others and (strict or not chosen):
        message = (
            f"persons' records go with a hierarchy alone, and {found[others[0]][0].name} is a table of {others[0]}"
        )
        raise InputError("two-tables", f"{message}: name the files to use", Place(str(found["records"][0])))
    if "records" in found:
        return {role: found[role] for role in _OF_RECORDS if role in found}
    if strict and "sizes" in found and len(found) > 1:
        message = "counts made elsewhere need no other table: give this file alone, or the three others"
        raise InputError("two-tables", message, Place(str(found["sizes"][0])))
    return found


def _two_tables(role: str, path: Path, other: Path) -> InputError:
    """Return the error of two tables of one role: persons' records look like a hierarchy, which must not be guessed."""
    more = "; if one of them has a row a person, give it with --records FILE" if role == "hierarchy" else ""
    message = f"is a table of {role}, and so is {other.name}: name the files to use{more}"
    return InputError("two-tables", message, Place(str(path)))


def _record_columns(path: Path) -> tuple[str, ...]:
    names = _header(path)
    if len(names) < 2 or names[0] != "region_id" or names == ("region_id", "count"):
        message = "must have the column region_id first, then one column an attribute, and perhaps count, the last"
        raise InputError("no-header", message, Place(str(path)))
    return names


def _role(names: Sequence[str]) -> str | None:
    columns = set(names)
    if columns == {"entity_id", "group_id"}:
        return "entities"
    if columns == {"group_id", "region_id"}:
        return "groups"
    if tuple(names[-2:]) == ("size", "groups"):
        return "sizes"
    if names and names[0] == "region_id" and len(names) > 1:
        return "records" if names[-1] == "count" and len(names) > 2 else "hierarchy"
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


def _data_section(found: Found, folder: Path) -> str:
    """Return the [data] lines; names of tables that were not found are left to fill in."""
    if "sizes" in found and not all(role in found for role in _TABLES):
        path, names = found["sizes"]
        lines = [_line("sizes", _relative(path, folder), _NOTES["sizes"])]
        if len(names) == 2:
            lines.append('root = "all"                  # the table has no level columns: name its one region')
        return "\n".join(lines) + "\n"
    lines = []
    for role in _OF_RECORDS if "records" in found else _TABLES:
        name = _relative(found[role][0], folder) if role in found else f"{role}.csv"
        missing = "" if role in found else " (NOT FOUND: fill in)"
        lines.append(_line(role, name, _NOTES[role] + missing))
    return "\n".join(lines) + "\n"


def _topdown_section(found: Found) -> str:
    """Return the [topdown] lines: attributes by the header's names, their values left to fill in."""
    names = [name for name in found["records"][1][1:] if name != "count"]
    levels = found["hierarchy"][1][1:] if "hierarchy" in found else ("level",)
    lines = [f"{f'{_key(name)} = []':<30}# fill in, such as " + '["a", "b"]\n' for name in names]
    return _TOPDOWN.format(
        workload=_text(["total", *names]),
        crossed=_text(" * ".join(names[:2]) if len(names) > 1 else "sex * age"),
        level=_text(levels[0]),
        attributes="".join(lines),
    )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _line(key: str, value: str, note: str) -> str:
    return f"{f'{key} = {_text(value)}':<30}# {note}"


def _text(value: str | list[str]) -> str:
    # JSON strings and lists of them are TOML's too.
    return json.dumps(value, ensure_ascii=False)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
