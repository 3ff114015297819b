"""``coco-opt init``: a commented configuration from the headers of the user's own files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import quoted, write
from coco_opt.cli.options import Version
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.releases.kind import AnyKind, Draft

_CONFIG = """\
# A coco-opt release. Check it, then run:  coco-opt plan {name}  and  coco-opt release {name}
[data]
{data}

[privacy]
{dataset}
epsilon = "1"                 # the whole budget, an exact decimal or fraction; smaller is more private
# mechanism = "discrete_gaussian" takes rho = "1/2", or epsilon and delta = "1/1000000", in place of epsilon alone
# split = "uniform"           # how the budget is allocated: or "leaves", or one share a level, root first
noise = "secure"              # cryptographic noise that cannot be repeated
neighbours = "add_remove"     # or "replace": {replaced}

{section}
[output]
directory = "releases"        # public results
private = "private"           # ledger, measurements and records for your eyes only, mode 0700
"""
_MOST_FILES = 8  # with more, not every order is tried
_DATASET = "the ledger's name of these data: one budget for all that is measured of them"


@dataclass(frozen=True, eq=False, slots=True)
class _Header:
    """One of the user's files, and the names of its columns."""

    path: Path
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class _Candidate:
    """How a kind of release would use the files: one for each key of [data], and rivals for the same keys."""

    kind: AnyKind
    files: Mapping[str, _Header]
    rivals: Mapping[str, _Header]
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def draft(self) -> Draft:
        """Return the kind's configuration of these files."""
        return self.kind.draft({key: header.columns for key, header in self.files.items()})

    @property
    def private(self) -> list[str]:
        """Return the keys of its private files."""
        return [key for key in self.files if key in self.kind.data_model.hidden]

    def with_column(self, column: str) -> list[str]:
        """Return the names of the files that have a column."""
        return [header.path.name for header in self.files.values() if column in header.columns]

    def uses(self, header: _Header) -> bool:
        """Return whether the configuration names a file."""
        return any(self.files.get(key) is header for key in self.draft.files)


def init(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Your tables (CSV or Parquet); none: those in this folder."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the config.")] = Path("coco-opt.toml"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="KEY=FILE", help="Use a file as this key of [data], if its header does not show that."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="The kind of release, if headers do not show it.")
    ] = None,
    version: Version = False,
) -> int:
    """Write a commented config for your tables, recognised by their headers alone; overwrites nothing."""
    if os.path.lexists(out):
        raise InputError("file-exists", "exists already: give another --out", Place(str(out)))
    named = dict(_named_file(entry) for entry in data or ())
    headers = [_header(path) for path in files or _tables_here()]
    kinds = _kinds(kind, named)
    chosen = _best_candidate(kinds, headers, named)
    if not named:
        _check_left(chosen, kinds, headers, strict=bool(files))
    draft = chosen.draft
    _write_new(out, _text_of(chosen, draft, out))
    for key, column in chosen.columns.items():
        write(f"Taken as {key}: column {column!r} of {', '.join(chosen.with_column(column))}")
    for line in draft.taken:
        write(f"Taken as {line}")
    missing = [key for key in draft.files if key not in chosen.files]
    first = f"fill in the tables not found ({', '.join(missing)}), " if missing else ""
    write(
        f"Wrote {out}: {first}{draft.left}, then run  coco-opt plan {quoted(out)}  and  coco-opt release {quoted(out)}"
    )
    return 0


def _named_file(entry: str) -> tuple[str, _Header]:
    key, equals, path = entry.partition("=")
    if not equals or not path:
        raise InputError("bad-option", f"--data {entry}: write --data KEY=FILE, such as --data records=persons.csv")
    return key, _header(Path(path))


def _kinds(name: str | None, named: Mapping[str, _Header]) -> list[AnyKind]:
    """Return the possible kinds: the one with the name, or all whose [data] has the named keys."""
    from coco_opt.kinds import kind_row, kind_rows

    kinds: list[AnyKind] = [row.load() for row in (kind_rows() if name is None else (kind_row(name),))]
    matching = [kind for kind in kinds if set(named) <= set(kind.data_model.model_fields)]
    if not matching:
        keys = "; ".join(f"{kind.name}: {', '.join(kind.draft({}).files)}" for kind in kinds)
        raise InputError("bad-option", f"no kind of release has [data] with {', '.join(named)}: the keys are {keys}")
    return matching


def _best_candidate(kinds: Sequence[AnyKind], headers: Sequence[_Header], named: Mapping[str, _Header]) -> _Candidate:
    """Return the kind whose private table was found, else the one that can use most of the files."""
    candidates = [_candidate(kind, headers, named) for kind in kinds]
    certain = [candidate for candidate in candidates if candidate.private]
    if not certain and not named:
        certain = [
            candidate for candidate in (_linked_candidate(kind, headers) for kind in kinds) if candidate is not None
        ]
    if len(certain) > 1:
        first, second = (candidate.files[candidate.private[0]].path for candidate in certain[:2])
        message = (
            f"is a private table, and so is {second.name} for another kind of release: name the files to use, or the "
            f"kind with --kind: {' or '.join(candidate.kind.name for candidate in certain)}"
        )
        raise InputError("two-tables", message, Place(str(first)))
    chosen = certain[0] if certain else max(candidates, key=lambda candidate: len(candidate.files))
    for key, rival in chosen.rivals.items():
        message = (
            f"is a table of {key}, and so is {chosen.files[key].path.name}: name the files to use, or what each is "
            f"with --data KEY=FILE, where KEY is {' or '.join(chosen.kind.draft({}).files)}"
        )
        raise InputError("two-tables", message, Place(str(rival.path)))
    return chosen


def _candidate(kind: AnyKind, headers: Sequence[_Header], named: Mapping[str, _Header]) -> _Candidate:
    files, rivals = dict(named), {}
    taken = {header.path.resolve() for header in named.values()}
    for header in headers:
        key = kind.file_key(header.columns)
        if key is None or header.path.resolve() in taken:
            continue
        if key in named:
            continue
        if key in files:
            rivals[key] = header
        files.setdefault(key, header)
    return _Candidate(kind, files, rivals)


def _linked_candidate(kind: AnyKind, headers: Sequence[_Header]) -> _Candidate | None:
    """Match files with other column names to a kind's tables by the columns they share, if one way fits.

    A table's own id stands first in it, and in the table before it: persons (pid, home), homes (home, area), areas
    (area, state, county).
    """
    ids = kind.data_model.ids
    matches = []
    for files in permutations(headers, len(ids)) if 1 < len(ids) <= len(headers) <= _MOST_FILES else ():
        columns = [file.columns for file in files]
        linked = all(below[0] in above and above[0] not in below for above, below in pairwise(columns))
        if linked and all(len(names) > 1 for names in columns):
            matches.append(files)
    if len(matches) != 1:
        return None
    tables = [(key, own, header) for (key, own), header in zip(ids, matches[0], strict=True)]
    columns_used = {own: header.columns[0] for _, own, header in tables if own != header.columns[0]}
    return _Candidate(kind, {key: header for key, _, header in tables}, {}, columns_used)


def _check_left(chosen: _Candidate, kinds: Sequence[AnyKind], headers: Sequence[_Header], *, strict: bool) -> None:
    """Refuse unused files: all of them with ``strict``, else those that some release could use."""
    for header in headers:
        if chosen.uses(header):
            continue
        keys = [key for key in (kind.file_key(header.columns) for kind in kinds) if key is not None]
        if not keys and strict:
            expected = " | ".join(dict.fromkeys(note for kind in kinds for note in kind.draft({}).files.values()))
            raise InputError("no-header", f"has none of the headers {expected}", Place(str(header.path)))
        if keys:
            others = ", ".join(chosen.draft.files)
            message = f"is a table of {keys[0]}, which does not go with {others}: name the files to use"
            raise InputError("two-tables", message, Place(str(header.path)))


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


def _header(path: Path) -> _Header:
    from coco_opt.files.source import header

    return _Header(path, header(path))


def _text_of(candidate: _Candidate, draft: Draft, out: Path) -> str:
    """Return the configuration; names of tables that were not found are left to fill in."""
    lines = []
    for key, note in draft.files.items():
        header = candidate.files.get(key)
        name, missing = (f"{key}.csv", " (NOT FOUND: fill in)") if header is None else (_relative(header.path, out), "")
        lines.append(_line(key, name, note + missing))
    private = [candidate.files[key].path.stem for key in draft.files if key in candidate.private]
    dataset = private[0].strip() if private and private[0].isprintable() else ""
    return _CONFIG.format(
        name=out.name,
        data="\n".join((*lines, *_columns(candidate), *draft.data)),
        dataset=_line("dataset", dataset or "data", _DATASET),
        replaced=draft.replaced,
        section=draft.section,
    )


def _columns(candidate: _Candidate) -> list[str]:
    """Return the line with the files' own names of columns, where these differ."""
    if not candidate.columns:
        return []
    names = ", ".join(f"{own} = {json.dumps(name, ensure_ascii=False)}" for own, name in candidate.columns.items())
    return [f"columns = {{ {names} }}   # inferred from the columns that the files share: check them"]


def _line(key: str, value: str, note: str) -> str:
    # A JSON string is a TOML string too.
    return f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<30}# {note}"


def _relative(path: Path, out: Path) -> str:
    return Path(os.path.relpath(path.resolve(), out.parent.resolve())).as_posix()
