"""The checks of single columns and keys, each one query over a loaded table and one typed error.

How often the ids of a column of Parquet files or a frame occur, by their hashes.

The checks of a table of groups that lie in regions, such as households: group_id, region_id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import HierarchyError, InputError
from coco_opt.files.batches import Batches
from coco_opt.files.csv_text import Rows
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Input
from coco_opt.files.source import Faults, Loaded, isolated, names_of, streamed
from coco_opt.histograms.texts import HIDDEN

MAX_DIGITS = 18
MAX_TOTAL = 4 * 10**18

_OUTER_SPACE = r"'^[\s\p{Z}]|[\s\p{Z}]$'"
_HIDDEN = f"'{HIDDEN}'"
_PLAIN = "'[!-~]([ -~]*[!-~])?'"
_INTEGER = "'0|[1-9][0-9]*'"
_SIGNED = "'0|-?[1-9][0-9]*'"


def check_rows(table: Loaded) -> None:
    """Raise InputError empty-file where there is no row below the header."""
    if table.rows() == 0:
        raise InputError("empty-file", "holds no row below its header", table.place())


def check_ids(table: Loaded, columns: Iterable[int]) -> None:
    """Raise InputError null-id, space-in-id or control-in-id unless every entry is a string of seen characters."""
    faults = Faults()
    for k in columns:
        with faults:
            check_present(table, k)
        with faults:
            check_spaces(table, k)
    faults.check()


def check_present(table: Loaded, column: int, advice: str = "") -> None:
    """Raise InputError null-id where an entry is missing or empty; ``advice`` says what to write there."""
    rows = table.rows_where(_absent(f"c{column}"))
    if rows:
        raise InputError("null-id", f"is empty{advice}", table.place(rows, column))


def absent_entries(table: Loaded, columns: Iterable[int]) -> Faults:
    """Return the missing and empty entries of some columns. Raises InputError empty-file where there is no row."""
    check_rows(table)
    faults = Faults()
    for column in columns:
        with faults:
            check_present(table, column)
    return faults


def check_spaces(table: Loaded, column: int) -> None:
    """Raise InputError where ids would only look equal: space-in-id (at an end), control-in-id (seen by nobody)."""
    _check_plain(table, column, _unplain(f"c{column}"))


def check_listed(
    table: Loaded, column: int, listed: str, code: str, message: str, where: str = "the ids that are known"
) -> None:
    """Raise InputError ``code`` (or of ``check_spaces``) at the entries that ``listed`` (table.column) lacks.

    ``where`` says in words what ``listed`` is, such as "'area' of areas.csv". Missing entries are left to
    ``check_present``.
    """
    c, (listed_table, _, key) = f"c{column}", listed.partition(".")
    unknown = f"{listed} IS NULL AND NOT ({_absent(c)})"
    source = f"{{t}} LEFT JOIN {listed_table} ON {c} = {listed_table}.{key}"
    if not table.rows_where(unknown, source):
        return
    faults = Faults()
    with faults:
        _check_plain(table, column, f"{unknown} AND {_unplain(c)}", source)
    if rows := table.rows_where(f"{unknown} AND NOT ({_unplain(c)})", source):
        note = _rewritten_note(table, column, rows.first[0], listed, where)
        faults.note(table, rows, column, code, message + note)
    faults.check()


def check_known(table: Loaded, column: int, listed: str, code: str, message: str, where: str, advice: str = "") -> None:
    """Raise InputError for the rows of a column that are empty, with ``advice``, and for those that are not listed."""
    faults = Faults()
    with faults:
        check_present(table, column, advice)
    with faults:
        check_listed(table, column, listed, code, message, where)
    faults.check()


def check_members(table: Loaded) -> Faults:
    """Return what is wrong with the ids of rows (column 0) and with missing entries of what they lie in (column 1).

    Raises InputError empty-file where there is no row.
    """
    faults = absent_entries(table, (1,))
    with faults:
        check_ids(table, (0,))
    return faults


ALPHABETS = "αβεζηικμνορτυχςавекмнорстухіјѕ", "abezhikmnoptyxσabekmhopctyxijs"  # noqa: RUF001
"""Greek and Cyrillic letters, and the Latin ones that they, or their capitals, look like; of sigma one form."""
_LETTERS = ", ".join(f"'{letters}{letters.upper()}'" for letters in ALPHABETS)
_NUMBERS = "Often one file has numbers and the other text: write both as text,"
_REWRITINGS = (
    ("leading zeros", "ltrim({x}, '0')", f"{_NUMBERS} with all their zeros"),
    ("a decimal part of zeros", "regexp_replace({x}, '[.]0+$', '')", f"{_NUMBERS} without a decimal part"),
    ("how a number is written", "TRY_CAST(replace({x}, ',', '') AS DOUBLE)", f"{_NUMBERS} with all their digits"),
    ("the case of letters", "lower(replace({x}, 'ς', 'σ'))", "Write both in the same case"),  # noqa: RUF001
    ("blanks", "regexp_replace({x}, '\\s', '', 'g')", "Write both with the same blanks"),
    ("accents", "strip_accents({x})", "Write both with their accents"),
    ("punctuation", "regexp_replace({x}, '[^\\pL\\pN]', '', 'g')", "Write both with the same signs"),
    ("letters of another alphabet", f"translate({{x}}, {_LETTERS})", "Write both in one alphabet"),
    (
        "several ways of writing",
        f"ltrim(translate(lower(strip_accents(regexp_replace({{x}}, '[^\\pL\\pN]', '', 'g'))), {_LETTERS}), '0')",
        "Write both alike: case, blanks, accents, alphabet, signs and leading zeros count",
    ),
)
"""What programs change of ids: in words, the expression in which such ids are equal, and what to do."""


def _rewritten_note(table: Loaded, column: int, row: int, listed: str, where: str) -> str:
    """Return what to add about an entry that is listed, but written differently."""
    equal = ", ".join(
        f"bool_or({form.format(x=listed)} = {form.format(x=f'c{column}')} AND length(c{column}) > 0)"
        for _, form, _ in _REWRITINGS
    )
    source = f"{{t}}, {listed.partition('.')[0]} WHERE {{t}}.rowid = {row}"
    first = table.value(f"SELECT list_position([{equal}], true) FROM {source}")
    if not first:
        return ""
    words, _, advice = _REWRITINGS[int(first) - 1]
    return (
        f", but one that differs only in {words} is: {table.shown[column]!r} of {table.source.name} and {where} were "
        f"written differently. {advice}"
    )


def _absent(c: str) -> str:
    return f"{c} IS NULL OR {c} = ''"


def _unplain(c: str) -> str:
    """Return the condition for a space at either end or a hidden character; most ids are plain at the first look."""
    odd = f"(regexp_matches({c}, {_OUTER_SPACE}) OR regexp_matches({c}, {_HIDDEN}))"
    return f"NOT regexp_full_match({c}, {_PLAIN}) AND {odd}"


def _check_plain(table: Loaded, column: int, unplain: str, source: str = "{t}") -> None:
    """Raise InputError for the rows that meet ``unplain``: with a space at an end, or with hidden characters."""
    if not table.rows_where(unplain, source):
        return
    spaces = f"regexp_matches(c{column}, {_OUTER_SPACE})"
    faults = Faults()
    rows = table.rows_where(f"{unplain} AND {spaces}", source)
    faults.note(table, rows, column, "space-in-id", "starts or ends with a space")
    rows = table.rows_where(f"{unplain} AND NOT {spaces}", source)
    message = "holds a character that nobody sees, such as a filler, a zero-width one or an odd blank"
    faults.note(table, rows, column, "control-in-id", message)
    faults.check()


def check_levels(table: Loaded, columns: Iterable[int]) -> None:
    """Raise HierarchyError uneven-depth or InputError space-in-id, control-in-id unless every row names every level."""
    faults, levels = Faults(), list(columns)
    for depth, k in enumerate(levels):
        _check_named(table, k, levels[depth + 1 :], faults, first=depth == 0)
        with faults:
            check_spaces(table, k)
    faults.check()


def _check_named(table: Loaded, column: int, deeper: Sequence[int], faults: Faults, *, first: bool) -> None:
    """Note the rows without a name in a level: a name may be missing, or the region has no ``deeper`` subregions."""
    absent = f"({_absent(f'c{column}')})"
    filled = " OR ".join(["false", *(f"NOT ({_absent(f'c{k}')})" for k in deeper)])
    inner = absent if first else f"{absent} AND ({filled})"
    message = "is empty: name the region of this level in which the row lies"
    faults.note(table, table.rows_where(inner), column, "uneven-depth", message, HierarchyError)
    if not first:
        rows = table.rows_where(f"{absent} AND NOT ({filled})")
        message = "is empty: repeat the name of a region that has no subregions"
        faults.note(table, rows, column, "uneven-depth", message, HierarchyError)


def surely_plain(texts: Any) -> bool:
    """Return whether Arrow strings are all printable ASCII without a space at either end; others may be plain, too."""
    import pyarrow.compute as pc

    if texts.null_count or pc.ascii_is_printable(texts).true_count < len(texts):
        return False
    return not any(
        test.true_count for test in (pc.equal(texts, ""), pc.starts_with(texts, " "), pc.ends_with(texts, " "))
    )


def plain_texts(texts: Any) -> Any:
    """Return Arrow strings in NFC; None where one would be refused: missing, empty, or as in ``check_ids``."""
    import pyarrow.compute as pc

    if texts.null_count:
        return None
    if surely_plain(texts):
        return texts
    texts = pc.utf8_normalize(texts, form="NFC")
    wrong = ("^$", _OUTER_SPACE[1:-1], _HIDDEN[1:-1])
    return None if any(pc.match_substring_regex(texts, pattern).true_count for pattern in wrong) else texts


def check_count(table: Loaded, column: int, negative: str = "") -> None:
    """Raise InputError unless every entry is an integer 0, 1, 2, ... written plainly, of 18 digits at most.

    Codes: not-an-integer (missing, fractional, 1e3, 007, +7, spaces, text), ``negative``, too-large. Without a code for
    negative integers these may stand there, too.
    """
    c, faults, integer = f"c{column}", Faults(), _INTEGER if negative else _SIGNED
    minus = f"coalesce(regexp_full_match({c}, '-[1-9][0-9]*'), false)"
    if negative:
        faults.note(table, table.rows_where(minus), column, negative, "must not be negative")
    message = "is empty: write an integer, or leave out the rows of those who are not to be counted"
    faults.note(table, table.rows_where(f"{c} IS NULL"), column, "not-an-integer", message)
    rows = table.rows_where(f"NOT {minus} AND NOT regexp_full_match({c}, {integer})")
    example = "0 or 12" if negative else "-3, 0 or 12: round decimals, or count in smaller units"
    message = f"must be an integer written plainly, such as {example}"
    faults.note(table, rows, column, "not-an-integer", message)
    rows = table.rows_where(f"regexp_full_match({c}, {integer}) AND length(ltrim({c}, '-')) > {MAX_DIGITS}")
    faults.note(table, rows, column, "too-large", f"has more than {MAX_DIGITS} digits")
    faults.check()


def check_totals(table: Loaded, size: int, groups: int) -> None:
    """Raise InputError too-large where all groups, or all their entities, come near the int64 range."""
    query = f"SELECT coalesce(sum(greatest(c{size}::DOUBLE, 1) * c{groups}::DOUBLE), 0) FROM {{t}}"
    if table.value(query) > MAX_TOTAL:
        raise InputError("too-large", "all groups together hold too many entities", table.place())


def check_unique(table: Loaded, columns: tuple[int, ...], code: str, message: str, shown: int | None) -> None:
    """Raise InputError ``code`` at the rows that repeat an earlier row in ``columns``; missing keys repeat none."""
    keys = ", ".join(f"c{k}" for k in columns)
    if repeats(table, keys) and (rows := repeated_rows(table, keys)):
        raise InputError(code, message, table.place(rows, shown))


def repeats(table: Loaded, keys: str) -> bool:
    """Return whether two rows have the same keys; keys are compared only where their 8-byte hashes repeat."""
    if not table.value(f"SELECT count(*) - count(DISTINCT hash({keys})) FROM {{t}}"):
        return False
    return bool(table.value(f"SELECT count(*) FROM (SELECT 1 FROM {{t}} GROUP BY {keys} HAVING count(*) > 1)"))


def repeated_rows(table: Loaded, keys: str, expression: str = "0", times: int = 1, *, changed: bool = False) -> Rows:
    """Return the rows that repeat ``keys`` for more than so many times, and whose ``expression`` has changed, or not.

    Changed is what differs from the first occurrence. Rows with a missing key are left out. Rows that repeat are looked
    for among those whose keys do: numbering all rows would need them in memory.
    """
    compare = "IS DISTINCT FROM" if changed else "IS NOT DISTINCT FROM"
    return table.listed_rows(f"""
        WITH often AS (SELECT {keys} FROM {{t}} GROUP BY {keys} HAVING count(*) > {times})
        SELECT row FROM (
            SELECT rowid AS row, row_number() OVER same AS nth,
                   ({expression}) {compare} first_value({expression}) OVER same AS asked
            FROM {{t}} SEMI JOIN often USING ({keys}) WINDOW same AS (PARTITION BY {keys} ORDER BY rowid)
        ) WHERE nth > {times} AND asked""")


UInt64Array = NDArray[np.uint64]
MEMORY = 13 * 10**8
"""The bytes that hashes may take: a process then stays below 2 GB."""

_AT_ONCE = 1 << 17  # rows
_SPREAD = 8  # times as many marks as rows: as much memory as hashes take


class _OddTextError(Exception):
    """A text that is missing or may not be plain: checks of loaded tables say what is wrong with it, if anything is."""


def occur_at_most(opened: Batches, times: int = 1) -> bool:
    """Return whether the ids of the only column are integers or plain texts, none of which occurs more often.

    False also where more often a hash occurs, for different ids, where an id is missing or may not be plain, and where
    there are too many rows: then nothing is known. O(rows log rows); memory is 8 bytes a row.
    """
    if times == 1 and opened.is_integer(0):
        distinct = quietly(opened.source, partial(_integers_differ, opened))
        if distinct is not None:
            return distinct
    if 8 * opened.rows() > MEMORY:
        return False
    try:
        hashes = quietly(opened.source, partial(_hashes, opened))
    except _OddTextError:
        return False
    hashes.sort()  # in place, so that there is no second copy
    # Of more equal hashes than ``times``, the first and one so many places behind it are equal.
    return bool((hashes[times:] != hashes[:-times]).all())


def _integers_differ(opened: Batches) -> bool | None:
    """Return whether integers are all there and differ, by a mark for each; None where they are too far apart."""
    import pyarrow.compute as pc

    ends = [pc.min_max(array) for (array,) in opened if len(array)]
    if any(array.null_count for (array,) in opened):
        return False
    least, most = (pick((end[name].as_py() for end in ends), default=0) for name, pick in (("min", min), ("max", max)))
    if most - least >= min(_SPREAD * opened.rows(), MEMORY):
        return None
    marks, rows = np.zeros(most - least + 1, np.bool_), 0
    for (array,) in opened:
        marks[np.asarray(array.to_numpy(zero_copy_only=False), np.int64) - least] = True
        rows += len(array)
    return int(np.count_nonzero(marks)) == rows


def _hashes(opened: Batches) -> UInt64Array:
    """Return the hash of each id. Raises _OddTextError."""
    schema, arrays = opened.stream()
    hashes = np.empty(opened.rows(), np.uint64)
    with isolated(()) as con:
        sound = _sound(arrays, texts=not opened.is_integer(0))
        streamed(con, "ids", schema, sound, lambda: _fill(hashes, con.sql("SELECT hash(c0) FROM ids")))
    return hashes


def _fill(hashes: UInt64Array, query: Any) -> None:
    begin = 0
    for batch in query.to_arrow_reader(_AT_ONCE):
        some = batch.column(0).to_numpy()
        hashes[begin : begin + some.size] = some
        begin += some.size


def _sound(arrays: Iterable[tuple[Any, ...]], *, texts: bool) -> Iterator[tuple[Any, ...]]:
    for (array,) in arrays:
        if array.null_count or (texts and not surely_plain(array)):
            raise _OddTextError
        yield (array,)


UNKNOWN_REGION = ("unknown-region", "this region is not in the hierarchy")
UNKNOWN_GROUP = ("unknown-group", "this group is not in the groups table")
REGION = "region_id"


def check_groups(table: Loaded, where: str) -> None:
    """Raise InputError unless each row names another group and a region of the relation ``leaves``.

    ``where`` says in words where regions are listed. Codes: empty-file, null-id, space-in-id, control-in-id,
    unknown-region, group-in-two-leaves, duplicate-group.
    """
    faults = check_members(table)
    with faults:
        check_listed(table, 1, "leaves.region", *UNKNOWN_REGION, where)
    if repeats(table, "c0"):
        message = (
            "this group lies in another leaf in an earlier row. If its id is unique only within a region, join region "
            "and id to one id in both files, such as 06001-17"
        )
        faults.note(table, repeated_rows(table, "c0", "c1", changed=True), 0, "group-in-two-leaves", message)
        message = "this group occurs in an earlier row"
        faults.note(table, repeated_rows(table, "c0", "c1"), 0, "duplicate-group", message)
    faults.check()


def states_regions(members: Input, groups: Input) -> bool:
    """Return whether a table of members of groups states their regions: a column that the groups call alike."""
    names, listed = names_of(members), names_of(groups)
    own, shared = members.called(names).get(REGION, REGION), groups.called(listed).get(REGION, REGION)
    return own in names and own == shared


def check_regions(table: Loaded, column: int, differs: str, source: str, groups: Input) -> None:
    """Raise InputError (region-differs) for the rows that state another region than that of their group.

    An empty entry states none. ``differs`` is the condition on ``source``, the table joined to its groups; ``leaves``
    are the regions.
    """
    if rows := table.rows_where(f"{{t}}.c{column} <> '' AND {differs}", source):
        message = (
            f"this region is not that of the row's group in {groups.name}, which counts: correct one of them. A column "
            "that means another region needs another name"
        )
        entry = f"SELECT bool_or(leaves.region = c{column}) FROM {{t}}, leaves WHERE {{t}}.rowid = {rows.first[0]}"
        if not table.value(entry):
            note = _rewritten_note(table, column, rows.first[0], "leaves.region", f"the regions of {groups.name}")
            message = f"is not a region of {groups.name}{note}" if note else message
        raise InputError("region-differs", message, table.place(rows, column))
