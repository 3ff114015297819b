"""The checks of single columns and keys, each one query over a loaded table and one typed error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coco_opt.errors import HierarchyError, InputError
from coco_opt.files.source import Loaded

MAX_DIGITS = 18
MAX_TOTAL = 4 * 10**18

_OUTER_SPACE = r"'^[\s\p{Z}]|[\s\p{Z}]$'"
_HIDDEN = r"'[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]'"
_PLAIN = "'[!-~]([ -~]*[!-~])?'"
_INTEGER = "'0|[1-9][0-9]*'"
_SIGNED = "'0|-?[1-9][0-9]*'"


def check_rows(table: Loaded) -> None:
    """Raise InputError empty-file where there is no row below the header."""
    if table.rows() == 0:
        raise InputError("empty-file", "holds no row below its header", table.place())


def check_ids(table: Loaded, columns: Iterable[int]) -> None:
    """Raise InputError null-id, space-in-id or control-in-id unless every entry is a string of seen characters."""
    for k in columns:
        check_present(table, k)
        check_spaces(table, k)


def check_present(table: Loaded, column: int) -> None:
    """Raise InputError null-id where an entry is missing or empty."""
    row = table.first_row(f"c{column} IS NULL OR c{column} = ''")
    if row is not None:
        raise InputError("null-id", "is empty", table.place(row, column))


def check_spaces(table: Loaded, column: int) -> None:
    """Raise InputError where ids would only look equal: space-in-id (at an end), control-in-id (seen by nobody)."""
    row = table.first_row(_unplain(f"c{column}"))
    if row is not None:
        raise _unplain_id(table, row, column)


def check_listed(
    table: Loaded, column: int, listed: str, code: str, message: str, where: str = "the ids that are known"
) -> None:
    """Raise InputError ``code`` (or of ``check_spaces``) at the first entry that ``known`` (table.column) lacks.

    ``where`` says in words what ``known`` is, such as "'area' of areas.csv".
    """
    listed_table, _, key = listed.partition(".")
    row = table.first_row(f"{listed} IS NULL", f"{{t}} LEFT JOIN {listed_table} ON c{column} = {listed_table}.{key}")
    if row is None:
        return
    if table.value(f"SELECT {_unplain(f'c{column}')} FROM {{t}} WHERE rowid = {row}"):
        raise _unplain_id(table, row, column)
    same = f"ltrim({listed}, '0') = ltrim(c{column}, '0')"
    if table.value(f"SELECT count(*) FROM {{t}}, {listed_table} WHERE {{t}}.rowid = {row} AND {same}"):
        message += (
            f", but one that differs only in leading zeros is: {table.shown[column]!r} of {table.source.name} and "
            f"{where} were written differently, often as numbers in one and as text in the other. "
            "Write both as text, with all their zeros"
        )
    raise InputError(code, message, table.place(row, column))


def _unplain(c: str) -> str:
    """Return the condition for a space at either end or a hidden character; most ids are plain at the first look."""
    odd = f"(regexp_matches({c}, {_OUTER_SPACE}) OR regexp_matches({c}, {_HIDDEN}))"
    return f"NOT regexp_full_match({c}, {_PLAIN}) AND {odd}"


def _unplain_id(table: Loaded, row: int, column: int) -> InputError:
    if table.value(f"SELECT regexp_matches(c{column}, {_OUTER_SPACE}) FROM {{t}} WHERE rowid = {row}"):
        return InputError("space-in-id", "starts or ends with a space", table.place(row, column))
    message = "holds a character that nobody sees: a control character, a zero-width one or a byte order mark"
    return InputError("control-in-id", message, table.place(row, column))


def check_levels(table: Loaded, columns: Iterable[int]) -> None:
    """Raise HierarchyError uneven-depth or InputError space-in-id, control-in-id unless every row names every level."""
    for k in columns:
        row = table.first_row(f"c{k} IS NULL OR c{k} = ''")
        if row is not None:
            message = "is empty: repeat the name of a region that has no deeper ones"
            raise HierarchyError("uneven-depth", message, table.place(row, k))
        check_spaces(table, k)


def plain_texts(texts: Any) -> Any:
    """Return Arrow strings in NFC; None where one would be refused: missing, empty, or as in ``check_ids``."""
    import pyarrow.compute as pc

    if texts.null_count:
        return None
    if pc.match_substring_regex(texts, f"^(?:{_PLAIN[1:-1]})$").true_count == len(texts):
        return texts
    texts = pc.utf8_normalize(texts, form="NFC")
    wrong = ("^$", _OUTER_SPACE[1:-1], _HIDDEN[1:-1])
    return None if any(pc.match_substring_regex(texts, pattern).true_count for pattern in wrong) else texts


def check_count(table: Loaded, column: int, negative: str) -> None:
    """Raise InputError unless every entry is an integer 0, 1, 2, ... written plainly, of 18 digits at most.

    Codes: not-an-integer (missing, fractional, 1e3, 007, +7, spaces, text), ``negative``, too-large.
    """
    c = f"c{column}"
    row = table.first_row(f"{c} IS NULL OR NOT regexp_full_match({c}, {_INTEGER})")
    if row is not None:
        pattern = f"coalesce(regexp_full_match({c}, '-[1-9][0-9]*'), false)"
        if table.value(f"SELECT {pattern} FROM {{t}} WHERE rowid = {row}"):
            raise InputError(negative, "must not be negative", table.place(row, column))
        message = "must be an integer written plainly, such as 0 or 12"
        raise InputError("not-an-integer", message, table.place(row, column))
    _check_digits(table, column)


def check_integer(table: Loaded, column: int) -> None:
    """Raise InputError (not-an-integer, too-large) unless every entry is an integer written plainly, maybe negative."""
    row = table.first_row(f"c{column} IS NULL OR NOT regexp_full_match(c{column}, {_SIGNED})")
    if row is not None:
        message = "must be an integer written plainly, such as -3, 0 or 12"
        raise InputError("not-an-integer", message, table.place(row, column))
    _check_digits(table, column)


def _check_digits(table: Loaded, column: int) -> None:
    row = table.first_row(f"length(ltrim(c{column}, '-')) > {MAX_DIGITS}")
    if row is not None:
        raise InputError("too-large", f"has more than {MAX_DIGITS} digits", table.place(row, column))


def check_totals(table: Loaded, size: int, groups: int) -> None:
    """Raise InputError too-large where all groups, or all their entities, come near the int64 range."""
    query = f"SELECT coalesce(sum(greatest(c{size}::DOUBLE, 1) * c{groups}::DOUBLE), 0) FROM {{t}}"
    if table.value(query) > MAX_TOTAL:
        raise InputError("too-large", "all groups together hold too many entities", table.place())


def check_unique(table: Loaded, columns: tuple[int, ...], code: str, message: str, shown: int | None) -> None:
    """Raise InputError ``code`` at the first row that repeats an earlier one in ``columns``."""
    keys = ", ".join(f"c{k}" for k in columns)
    if repeats(table, keys):
        raise InputError(code, message, table.place(second_row(table, keys)[0], shown))


def repeats(table: Loaded, keys: str) -> bool:
    """Return whether two rows have the same keys; keys are compared only where their 8-byte hashes repeat."""
    if not table.value(f"SELECT count(*) - count(DISTINCT hash({keys})) FROM {{t}}"):
        return False
    return bool(table.value(f"SELECT count(*) FROM (SELECT 1 FROM {{t}} GROUP BY {keys} HAVING count(*) > 1)"))


def second_row(table: Loaded, keys: str, expression: str = "0", times: int = 1) -> tuple[int, bool]:
    """Return the first row that repeats ``keys`` for more than so many times, and whether ``other`` has changed there.

    Changed is what differs from the first occurrence. No key may be missing. Rows that repeat are looked for among
    those whose keys do: numbering all rows would need them in memory.
    """
    query = f"""
        WITH often AS (SELECT {keys} FROM {{t}} GROUP BY {keys} HAVING count(*) > {times})
        SELECT row, changed FROM (
            SELECT rowid AS row, row_number() OVER same AS nth,
                   ({expression}) <> first_value({expression}) OVER same AS changed
            FROM {{t}} SEMI JOIN often USING ({keys}) WINDOW same AS (PARTITION BY {keys} ORDER BY rowid)
        ) WHERE nth > {times} ORDER BY row LIMIT 1"""
    first = table.fetch(query)[0]
    return int(first[0]), bool(first[1])
