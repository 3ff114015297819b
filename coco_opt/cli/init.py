"""``coco-opt init``: a commented configuration from the headers of the user's own files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.config_text import (
    Earlier,
    earlier_configs,
    level_lines,
    missing_columns,
    relative,
    text_of,
)
from coco_opt.cli.console import quoted, write, writing
from coco_opt.cli.file_roles import (
    Candidate,
    Header,
    candidates,
    person_columns,
    repeated_key,
    repeats_key,
    shares_no_column,
    with_stated_names,
)
from coco_opt.cli.options import Version
from coco_opt.errors import InputError, Place
from coco_opt.files.inputs import SUFFIXES, Input

if TYPE_CHECKING:
    from coco_opt.config import Config
    from coco_opt.files.proposals import LevelProposal
    from coco_opt.releases.kind import AnyKind, ColumnNotes, Draft

_ALL = "all"  # of --values: every attribute
_MOST_VALUES = 100
_SHOWN_IDS = 3
_UNLINKED = (
    "shares no column with the other files. Where a key has several names, list them, such as "
    "--columns group_id=household,household_id or --columns region_id=area,code"
)
_PERSONS = "a table of persons is named as such, --data records=FILE"
_OTHER_NAMES = "if a column has another name in your file, say which, such as --columns value=NAME"
_TOGETHER = "name the files that belong together, as in  coco-opt init FILE FILE FILE, or what each is: --data KEY=FILE"


def init(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="Your tables (CSV, TSV or Parquet); none: those in this folder."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="Where to write the config.")] = Path(
        "coco-opt.toml"
    ),
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="KEY=FILE", help="Use a file as this key of [data], if its header does not show that."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="groups, tables or ranges, if headers do not show it.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="COLUMN=NAME[,NAME]",
            help="What a column is called in your files: value=days; several names if files differ: group_id=hh,hh_id.",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--ranges",
            metavar="COLUMN=RANGES",
            help="Count a column of integers by ranges: age=0..17,18..64,65.. (or 0..115: every integer).",
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--values",
            metavar="COLUMN[=VALUES]",
            help="The closed list of a column's values: sex=female,male. Without =VALUES they are read from the "
            "private table and become public: only for lists that are public anyway. all: of every attribute.",
        ),
    ] = None,
    version: Version = False,
) -> int:
    """Write a commented config for your tables, recognised by their headers; overwrites nothing.

    Of a private table no value is read unless you ask for it with --values. Where headers do not show which of two
    tables lists the regions, init reads whether the column that they share repeats a value, and whether the only
    attribute of persons repeats one, or identifies them.
    """
    if os.path.lexists(out):
        raise InputError("file-exists", "exists already: give another --out", Place(str(out)))
    stated_ranges = _listed(ranges or (), "--ranges")
    named = _named_files(data or ())
    headers = [_header(path) for path in files or _tables_here()]
    kinds = _possible_kinds(kind, named)
    stated = _stated_columns(columns or (), kinds)
    if [each.name for each in kinds] == ["ranges"] and len(stated_ranges) == 1:
        stated = {"value": list(stated_ranges), **stated}
    files_there = [*named.values(), *headers]
    recognised = _recognised(kinds, named, headers, stated)
    earlier, beside = earlier_configs(recognised[0][0], files_there, stated, out)
    if earlier is not None and earlier.carried:  # its columns may show more than the headers
        stated = {**_columns_of(earlier.config, files_there), **stated}
        recognised = _recognised(kinds, named, headers, stated)
    (chosen, *others), named, headers = recognised
    _check_named(chosen, named)
    _check_unused(chosen, kinds, headers, explicit=bool(files), complete=bool(named))
    notes = _notes(chosen, stated_ranges, _listed(values or (), "--values"))
    if earlier is not None and notes.values:  # what the user states of columns comes before what was stated earlier
        earlier = earlier._replace(restated=True)
    carried = earlier.config if earlier is not None and earlier.carried else None
    proposal = _levels(chosen, carried)
    levels = () if proposal is None else proposal.levels
    draft = chosen.draft(notes, levels)
    if earlier is not None and earlier.carried and not earlier.restated:
        draft = replace(draft, left="check what this year changes", taken=())
    lines = [] if proposal is None else level_lines(proposal)
    text = text_of(chosen, draft, stated, lines, out, earlier, beside)
    with writing(out), out.open("x", encoding="utf-8") as file:
        file.write(text)
    _say_taken(chosen, draft, proposal)
    _say_earlier(earlier, beside, levels, out)
    _say_whose(chosen)
    _say_unlinked(chosen, [*named.values(), *headers])
    _say_other(chosen, others)
    _say_next(chosen, draft, out, another_year=carried is not None)
    return 0


def _possible_kinds(name: str | None, named: Mapping[str, Header]) -> list[AnyKind]:
    """Return the possible kinds: the kind with the name, or all whose [data] has the named keys."""
    from coco_opt.kinds import kind_row, kind_rows

    kinds: list[AnyKind] = [row.load() for row in (kind_rows() if name is None else (kind_row(name),))]
    matching = [kind for kind in kinds if set(named) <= set(kind.data_model.model_fields)]
    if not matching:
        keys = "; ".join(f"{kind.name}: {', '.join(kind.draft({}).files)}" for kind in kinds)
        raise InputError("bad-option", f"no kind of release has [data] with {', '.join(named)}: the keys are {keys}")
    return matching


def _recognised(
    kinds: Sequence[AnyKind], named: Mapping[str, Header], headers: Sequence[Header], stated: Mapping[str, list[str]]
) -> tuple[list[Candidate], dict[str, Header], list[Header]]:
    """Return the possible uses of the files, best first, and the named files and the others with stated columns."""
    every = with_stated_names([*named.values(), *headers], stated)
    named, headers = dict(zip(named, every, strict=False)), every[len(named) :]
    return candidates(kinds, headers, named), named, headers


def _columns_of(config: Config, headers: Sequence[Header]) -> dict[str, list[str]]:
    """Return the columns that an earlier configuration states and that these files have, too."""
    there = {column for header in headers for column in header.columns}
    columns = getattr(config.data, "columns", {})
    names = {own: [name] if isinstance(name, str) else list(name) for own, name in columns.items()}
    found = {own: [name for name in some if name in there] for own, some in names.items()}
    return {own: some for own, some in found.items() if some}


def _check_named(chosen: Candidate, named: Mapping[str, Header]) -> None:
    """Refuse a file named by --data for which the configuration has no line."""
    keys = chosen.draft().files
    for key, header in named.items():
        if key not in keys:
            message = f"--data {key}={header.path}: init writes no line for it next to {', '.join(keys)}"
            raise InputError("bad-option", message)


def _check_unused(
    chosen: Candidate, kinds: Sequence[AnyKind], headers: Sequence[Header], *, explicit: bool, complete: bool
) -> None:
    """Refuse files that the configuration does not use: all that were named, or those that some release could use.

    Files of the folder are ignored if --data named the ``complete`` set.
    """
    for header in headers:
        if chosen.uses(header) or (complete and not explicit):
            continue
        key = next((key for key in (kind.file_key(header.columns) for kind in kinds) if key is not None), None)
        unlinked = shares_no_column(header, headers)
        if key is not None:
            code, message = (
                "two-tables",
                f"is a table of {key}, which does not go with {', '.join(chosen.draft().files)}",
            )
        elif not explicit and (unlinked or len(headers) == 1 or not chosen.missing):
            continue
        else:
            code, message = _unused_reason(chosen, kinds, header, headers)
        raise InputError(code, f"{message}; {_TOGETHER}" if len(headers) > 1 else message, Place(str(header.path)))


def _unused_reason(
    chosen: Candidate, kinds: Sequence[AnyKind], header: Header, headers: Sequence[Header]
) -> tuple[str, str]:
    """Return the code and the message of a file that was not recognised by its header."""
    if shares_no_column(header, headers):
        return "no-header", _UNLINKED
    repeated = repeated_key(header, headers) or repeats_key(header)
    if repeated is not None:
        return "no-header", _repeats_words(header, repeated)
    if chosen.missing and len(headers) > 1:
        others = ", ".join(file.path.name for file in headers if file is not header)
        return "two-tables", f"and {others} fit in no single way"
    columns = ", ".join(map(repr, map(header.name_in_file, header.columns)))
    return "no-header", f"has none of the headers {_headers(kinds)}; its columns are {columns}; {_OTHER_NAMES}"


def _repeats_words(header: Header, column: str) -> str:
    """Return that a file repeats ids, with those of regions; other ids may be private."""
    from coco_opt.files.proposals import repeated_values

    most = _SHOWN_IDS + 1 if header.column_called(column) == "region_id" else 0
    values = repeated_values(Input(header.path), column, most)
    such = f" ({', '.join(values[:_SHOWN_IDS])}{', ...' if len(values) > _SHOWN_IDS else ''})" if values else ""
    return f"repeats values of {column!r}{such}, and the table that lists these has one row for each; {_PERSONS}"


def _headers(kinds: Sequence[AnyKind]) -> str:
    """Return what tables of all kinds have as columns, in each form that a table may have."""
    forms = [(kind, form) for kind in kinds for form in ({}, *({key: ()} for key in kind.data_model.model_fields))]
    return " | ".join(dict.fromkeys(note for kind, form in forms for note in kind.draft(form).files.values()))


def _say_taken(chosen: Candidate, draft: Draft, proposal: LevelProposal | None) -> None:
    """Say which files and columns were recognised as what."""
    for key in draft.files:
        if key in chosen.files:
            write(f"Taken as {key}: {chosen.files[key].path}")
    for name, there in chosen.names.items():
        columns = (
            f"{column!r} of {', '.join(file for file, other in there.items() if other == column)}"
            for column in dict.fromkeys(there.values())
        )
        write(f"Taken as {name}: column {', '.join(columns)}")
    if proposal is not None:
        write(f"Taken as levels, root first: {', '.join(map(repr, proposal.levels))}")
        *above, last = proposal.levels
        if above and last == chosen.files["hierarchy"].name_in_file("region_id"):
            write(f"The last level is the id {last!r}: some regions have the same names at all other levels")
        if proposal.root:
            write(f"The levels have no root: {proposal.root!r} names it in the config, and you may choose another name")
        for name, reason in proposal.left_out.items():
            write(f"Left out of the levels: {name!r}, because {reason}")
    for line in draft.taken:
        write(line)


def _say_earlier(earlier: Earlier | None, beside: Mapping[Path, Config], levels: Sequence[str], out: Path) -> None:
    """Say what is taken of an earlier year, or which configurations beside may be of the same persons."""
    if earlier is not None:
        name = relative(earlier.path, out)
        write(
            f"Taken as dataset: {earlier.config.privacy.dataset!r} of {name}, so that its ledger adds up what is "
            "measured of the same persons"
        )
        if earlier.carried:
            what = "its budget and all but [data] and [output], so that both can be compared"
            if earlier.restated:
                what = "its budget; without --ranges and --values its queries and method, too"
            write(f"Taken from {name}: {what}")
            before = getattr(earlier.config.data, "levels", None)
            if before and tuple(before) != tuple(levels):
                write(
                    f"Its levels {', '.join(map(repr, before))} are not columns here: regions of both years have other "
                    "paths, and coco-opt diff needs to be told which belong together (--renamed)"
                )
    for path, config in beside.items():
        write(
            f"If these are persons of {path.name}, too, state its dataset {config.privacy.dataset!r} in [privacy]: "
            "losses of the same persons add up in one account"
        )


def _say_whose(chosen: Candidate) -> None:
    """Say what tells persons apart, and which region counts where records and groups both state a region."""
    if chosen.persons is None:
        return
    own, header = chosen.persons
    if own == "person_id" and own in header.columns:
        write("A person_id that occurs twice is refused; delete it from columns if it does not identify persons")
    elif own == "person_id" and "count" not in header.columns:
        fitting = [header.name_in_file(name) for name in person_columns(header)]
        write(
            "No person_id: persons who occur twice are not found. If a column identifies persons and does not count "
            f"those of each household, say --columns person_id={fitting[0] if fitting else 'NAME'}"
        )
    groups = chosen.files.get("groups")
    if groups is None or not {"region_id"} <= set(header.columns) & set(groups.columns):
        return
    if header.name_in_file("region_id") == groups.name_in_file("region_id"):
        write(
            f"Both {header.path.name} and {groups.path.name} state a region: that of {groups.path.name} counts, and "
            "rows that state another are refused"
        )


def _say_unlinked(chosen: Candidate, headers: Sequence[Header]) -> None:
    """Name the files that no column links to the others: those that are not used, or all while a table is missing."""
    for header in {header.path.resolve(): header for header in headers}.values():
        if shares_no_column(header, headers) and (chosen.missing or not chosen.uses(header)):
            write(f"{header.path} {_UNLINKED}, if it belongs to them")


def _say_other(chosen: Candidate, others: Sequence[Candidate]) -> None:
    """Say what else the same files could be used for."""
    from coco_opt.kinds import kind_row

    paths = {header.path for header in chosen.files.values()}
    for other in others:
        same = {header.path for header in other.files.values()} == paths and len(paths) > 1
        if same and not other.missing and other.draft().attributes != ():
            both = f"These files fit two kinds of release. This kind is {kind_row(chosen.kind.name).summary}"
            name = other.kind.name
            write(f"{both}. For {kind_row(name).summary}, call init again with  --kind {name}")


def _say_next(chosen: Candidate, draft: Draft, out: Path, *, another_year: bool) -> None:
    missing = [key for key in draft.files if key not in chosen.files]
    first = f"fill in the tables not found ({', '.join(missing)}), " if missing else ""
    for own, file, what in missing_columns(chosen):
        first += f"say which column of {file.path.name} holds {what} (--columns {own}=NAME), "
    *others, last = (f"coco-opt {verb} {quoted(out)}" for verb in ("check", "plan", "release"))
    write(f"Wrote {out}: {first}{draft.left}, then run  {',  '.join(others)}  and  {last}")
    if another_year:
        again = f"coco-opt measure --again {quoted(out)}"
        write(f"Where check says that these queries were measured on other data,  {again}  pays for this year's first")


def _named_files(entries: Iterable[str]) -> dict[str, Header]:
    """Return the files that --data names, by their keys of [data]."""
    named: dict[str, Header] = {}
    for entry in entries:
        key, equals, path = entry.partition("=")
        if not equals or not path:
            raise InputError("bad-option", f"--data {entry}: write --data KEY=FILE, such as --data records=persons.csv")
        if key in named:
            raise InputError("bad-option", f"--data {entry}: {key} is {named[key].path} already; name one file for it")
        named[key] = _header(Path(path))
    return named


def _stated_columns(entries: Iterable[str], kinds: Sequence[AnyKind]) -> dict[str, list[str]]:
    """Return the names of columns in the files that --columns states, by their names here."""
    tables = [table for kind in kinds for table in kind.data_model.tables]
    known = list(dict.fromkeys(name for table in tables for name in (*table.required, *table.optional)))
    stated: dict[str, list[str]] = {}
    for entry in entries:
        own, equals, names = entry.partition("=")
        listed = [name.strip() for name in names.split(",") if name.strip()]
        if not equals or not listed:
            raise InputError("bad-option", f"--columns {entry}: write --columns COLUMN=NAME, such as value=days")
        if own.strip() not in known:
            message = f"--columns {entry}: the columns that may have other names are {', '.join(known)}"
            raise InputError("bad-option", message)
        stated.setdefault(own.strip(), []).extend(listed)
    return stated


def _listed(entries: Iterable[str], option: str) -> dict[str, list[str]]:
    """Return the lists of an option by column; an empty list for a column without a list."""
    lists: dict[str, list[str]] = {}
    for entry in entries:
        column, equals, text = entry.partition("=")
        if equals:
            lists[column.strip()] = [value.strip() for value in text.split(",") if value.strip()]
            continue
        if option == "--ranges":
            raise InputError("bad-option", f"--ranges {entry}: write --ranges COLUMN=RANGES, such as age=0..17,18..")
        lists |= {name.strip(): [] for name in entry.split(",") if name.strip()}
    return lists


def _notes(chosen: Candidate, ranges: Mapping[str, list[str]], values: Mapping[str, list[str]]) -> ColumnNotes:
    """Return the values of attributes that the user states or lets be read, and why columns of no use are left out."""
    from coco_opt.files.source import unfit_columns
    from coco_opt.releases.kind import ColumnNotes

    key = next(iter(chosen.private), None)
    header = None if key is None else chosen.files[key]
    unfit = {} if header is None else unfit_columns(header.path)
    draft = chosen.draft(ColumnNotes(left_out=unfit))
    attributes = draft.attributes
    stated = {**ranges, **{name: listed for name, listed in values.items() if listed}}
    read = [name for name, listed in values.items() if not listed]
    if header is not None and draft.ranged and not values:
        stated = {header.column_called(name): listed for name, listed in stated.items()}
        attributes = draft.ranged
    for name in (*stated, *read):
        _check_column(name, _holder(chosen, name), attributes, chosen)
    if draft.ranged and attributes:
        return ColumnNotes(stated)
    if header is None or attributes is None:
        return ColumnNotes()
    names = [name for name in attributes if name not in stated] if _ALL in read else read
    values_by_name, many = _read_values(chosen, names, strict=_ALL not in read)
    return ColumnNotes({**values_by_name, **stated}, {**unfit, **many})


def _holder(chosen: Candidate, column: str) -> Header | None:
    """Return the first private table that has a column, that of persons for all columns; None without any."""
    headers = [chosen.files[key] for key in chosen.private]
    return next((header for header in headers if column == _ALL or column in header.columns), None)


def _check_column(name: str, header: Header | None, attributes: Sequence[str] | None, chosen: Candidate) -> None:
    """Raise InputError unless an option names a column of the private table whose values can be listed."""
    if attributes is None:
        message = (
            f"releases of the kind {chosen.kind.name!r} list no values: --values is for --kind tables, and --ranges is "
            "for --kind tables or ranges"
        )
        raise InputError("bad-option", message)
    if name not in attributes and name in chosen.keys:
        raise InputError("bad-option", f"--ranges and --values: {name!r} is an id or links the tables")
    if header is None or (name != _ALL and name not in header.columns):
        raise InputError("bad-option", f"--ranges and --values: the table has no column {name!r}")


def _read_values(
    chosen: Candidate, names: Iterable[str], *, strict: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the values of columns with few, and why others have none; with ``strict`` these are an error."""
    from coco_opt.files.proposals import looks_like_free_text, values_of

    values_by_name, many, where = {}, {}, dict[str, list[str]]()
    for name, header in ((name, _holder(chosen, name)) for name in names):
        assert header is not None  # checked before
        path = header.path
        values = values_of(Input(path), name, _MOST_VALUES)
        free = not strict and values is not None and looks_like_free_text(values)
        if values and not free:
            values_by_name[name] = values
            where.setdefault(path.name, []).append(repr(name))
            continue
        many[name] = "a column without values" if values is not None else f"a column of more than {_MOST_VALUES} values"
        many[name] = "by its values a free text" if free else many[name]
        if strict:
            message = f"is {many[name]}: a closed list has few. For integers give --ranges"
            raise InputError("not-a-list", message, Place(path.name, None, name))
    if values_by_name:
        columns = ", ".join(f"{', '.join(names)} of {file}" for file, names in where.items())
        write(
            f"Read the values of {columns}. They stand in the config and become "
            "public with a release: keep them only where the list is public anyway, and add values that could occur"
        )
    return values_by_name, many


def _levels(chosen: Candidate, earlier: Config | None) -> LevelProposal | None:
    """Return the levels of the hierarchy, as earlier where it has those columns.

    None without a hierarchy, or where the kind's [data] names no levels.
    """
    from coco_opt.files.proposals import LevelProposal, propose_levels

    header = chosen.files.get("hierarchy")
    named = "levels" in chosen.kind.data_model.model_fields
    if header is None or not named or "region_id" not in header.columns:
        return None
    if len(chosen.files) == 1 and repeats_key(header):
        raise InputError("no-header", _repeats_words(header, header.name_in_file("region_id")), Place(str(header.path)))
    own, names = header.name_in_file("region_id"), [header.name_in_file(name) for name in header.columns]
    before = getattr(earlier and earlier.data, "levels", None) or ()
    if before and set(before) <= set(names):
        return LevelProposal(tuple(before), root=getattr(earlier and earlier.data, "root", None) or "")
    return propose_levels(Input(header.path, {"region_id": own}), names, own)


def _tables_here() -> list[Path]:
    return sorted(path for path in Path().iterdir() if path.suffix.lower() in SUFFIXES)


def _header(path: Path) -> Header:
    from coco_opt.files.source import names_of

    return Header(path, names_of(Input(path)))
