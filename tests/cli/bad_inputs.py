"""A generator of bad inputs: classes of mistakes in tables and configurations, drawn with their places and values."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.cli.helpers import CANARY, KINDS, SECURE

Rng = np.random.Generator
Table = bytes | None  # None: a folder of that name


@dataclass(frozen=True)
class BadInput:
    """Files of a kind, some replaced, and what is done to the configuration; ``codes`` are those that may be said."""

    kind: str
    codes: tuple[str, ...]
    files: Mapping[str, Table] = field(default_factory=dict)
    config: Callable[[bytes], bytes] = bytes

    def write(self, folder: Path) -> Path:
        """Write the input and return its configuration."""
        path = KINDS[self.kind].write(folder, privacy=SECURE)
        for key, content in self.files.items():
            place = folder / f"{key}.csv"
            place.unlink()
            if content is None:
                place.mkdir()
            else:
                place.write_bytes(content)
        path.write_bytes(self.config(path.read_bytes()))
        return path


Make = Callable[[Rng], BadInput]
CLASSES: dict[str, Make] = {}


def bad(function: Make) -> Make:
    """Enter a class under its function's name."""
    CLASSES[function.__name__] = function
    return function


def draws(each: int, seed: int = 16) -> Iterator[tuple[str, BadInput]]:
    """Yield so many inputs of every class."""
    for number, (name, make) in enumerate(CLASSES.items()):
        rng = np.random.default_rng([seed, number])
        for _ in range(each):
            yield name, make(rng)


def text_of(kind: str, key: str) -> str:
    return KINDS[kind].files[key]


def pick(rng: Rng, *values: str) -> str:
    return values[rng.integers(len(values))]


def any_table(rng: Rng) -> tuple[str, str, list[str]]:
    """Return a kind, a key of [data] and the lines of its good table."""
    kind = pick(rng, *KINDS)
    key = pick(rng, *KINDS[kind].files)
    return kind, key, text_of(kind, key).splitlines()


def joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def row_of(rng: Rng, lines: list[str]) -> int:
    return int(rng.integers(1, len(lines)))


def in_id(rng: Rng, hidden: str) -> BadInput:
    """Put characters into the middle of an id or a level's name."""
    key = pick(rng, "entities", "groups", "hierarchy")
    lines = text_of("groups", key).splitlines()
    row = row_of(rng, lines)
    fields = lines[row].split(",")
    place = int(rng.integers(len(fields)))
    fields[place] = fields[place][:1] + hidden + fields[place][1:]
    lines[row] = ",".join(fields)
    codes = ("control-in-id", "unknown-group", "unknown-region", "malformed-row", "unreadable-file", "two-parents")
    return BadInput("groups", codes, {key: joined(lines)})


@bad
def empty_file(rng: Rng) -> BadInput:
    kind, key, _ = any_table(rng)
    return BadInput(kind, ("empty-file",), {key: b""})


@bad
def header_only(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    return BadInput(kind, ("empty-file",), {key: joined(lines[:1])})


@bad
def no_header(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    return BadInput(kind, ("no-header", "missing-column"), {key: joined(lines[1:])})


@bad
def missing_column(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    names = lines[0].split(",")
    required = 0 if key == "hierarchy" else int(rng.integers(len(names) - ("count" in names)))
    lines[0] = ",".join(f"x{name}" if k == required else name for k, name in enumerate(names))
    return BadInput(kind, ("no-header", "missing-column"), {key: joined(lines)})


@bad
def duplicate_column(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    name = lines[0].split(",")[0]
    return BadInput(kind, ("duplicate-column",), {key: joined([f"{line},{name}" for line in lines])})


@bad
def short_row(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups", "hierarchy")
    lines = text_of("groups", key).splitlines()
    row = row_of(rng, lines)
    lines[row] = lines[row].rpartition(",")[0]
    return BadInput("groups", ("malformed-row",), {key: joined(lines)})


@bad
def a_field_too_many(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    row = row_of(rng, lines)
    lines[row] += "," * int(rng.integers(1, 4)) + CANARY
    return BadInput(kind, ("malformed-row",), {key: joined(lines)})


@bad
def trailing_comma_in_the_header(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    lines[0] += ","
    return BadInput(kind, ("malformed-row", "unexpected-column"), {key: joined(lines)})


@bad
def unclosed_quote(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    row = row_of(rng, lines)
    lines[row] = '"' + lines[row]
    return BadInput(kind, ("malformed-row",), {key: joined(lines)})


@bad
def misplaced_quote(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    row = row_of(rng, lines)
    lines[row] = f'"{CANARY}"{CANARY}{lines[row]}'
    return BadInput(kind, ("malformed-row",), {key: joined(lines)})


@bad
def unclosed_quote_in_the_header(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    lines[0] = '"' + lines[0]
    return BadInput(kind, ("no-header", "malformed-row", "missing-column"), {key: joined(lines)})


@bad
def not_utf8(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    content = joined(lines)
    place = int(rng.integers(len(lines[0]) + 1, len(content) - 1))
    byte = bytes([int(rng.integers(0x80, 0xC0))])
    return BadInput(kind, ("unreadable-file", "malformed-row"), {key: content[:place] + byte + content[place:]})


@bad
def utf16(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    return BadInput(kind, ("unreadable-file", "no-header"), {key: joined(lines).decode().encode("utf-16")})


@bad
def latin1(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups")
    lines = text_of("groups", key).splitlines()
    lines[row_of(rng, lines)] += "é"
    return BadInput("groups", ("unreadable-file",), {key: ("\n".join(lines) + "\n").encode("latin-1")})


@bad
def nul_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, "\0")


@bad
def control_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, chr(int(pick(rng, "1", "7", "8", "11", "27", "31", "127", "133"))))


@bad
def zero_width_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, pick(rng, "\u200b", "\u200c", "\u200d", "\u2060"))


@bad
def byte_order_mark_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, "\ufeff")


@bad
def direction_mark_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, pick(rng, "\u200e", "\u202e", "\u2066", "\u00ad"))


@bad
def line_separator_in_an_id(rng: Rng) -> BadInput:
    return in_id(rng, pick(rng, "\u2028", "\u2029"))


@bad
def space_at_an_end(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups", "hierarchy")
    lines = text_of("groups", key).splitlines()
    row, space = row_of(rng, lines), pick(rng, " ", "\u00a0", "\u3000", "\t")
    lines[row] = space + lines[row] if rng.integers(2) else lines[row] + space
    return BadInput("groups", ("space-in-id", "control-in-id"), {key: joined(lines)})


@bad
def empty_id(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups", "hierarchy")
    lines = text_of("groups", key).splitlines()
    row = row_of(rng, lines)
    fields = lines[row].split(",")
    fields[int(rng.integers(len(fields)))] = ""
    lines[row] = ",".join(fields)
    return BadInput("groups", ("null-id", "uneven-depth"), {key: joined(lines)})


@bad
def same_id_in_two_unicode_forms(rng: Rng) -> BadInput:
    name = pick(rng, "é", "Ångström", "ñandú", "한")
    rows = [f"{form},g{rng.integers(1, 6)}" for form in (name, unicodedata.normalize("NFD", name))]
    text = text_of("groups", "entities").splitlines()
    return BadInput("groups", ("duplicate-entity",), {"entities": joined([*text, *rows])})


@bad
def duplicate_entity(rng: Rng) -> BadInput:
    lines = text_of("groups", "entities").splitlines()
    again = lines[row_of(rng, lines)].split(",")[0]
    return BadInput("groups", ("duplicate-entity",), {"entities": joined([*lines, f"{again},g{rng.integers(1, 6)}"])})


@bad
def unknown_group(rng: Rng) -> BadInput:
    lines = text_of("groups", "entities").splitlines()
    lines.insert(row_of(rng, lines), f"new,{CANARY}{rng.integers(100)}")
    return BadInput("groups", ("unknown-group",), {"entities": joined(lines)})


@bad
def unknown_region_of_a_group(rng: Rng) -> BadInput:
    lines = text_of("groups", "groups").splitlines()
    lines.insert(row_of(rng, lines), f"g{rng.integers(10, 99)},elsewhere")
    return BadInput("groups", ("unknown-region",), {"groups": joined(lines)})


@bad
def group_in_two_leaves(rng: Rng) -> BadInput:
    lines = text_of("groups", "groups").splitlines()
    group, region = lines[row_of(rng, lines)].split(",")
    return BadInput(
        "groups", ("group-in-two-leaves",), {"groups": joined([*lines, f"{group},{'r2' if region == 'r1' else 'r1'}"])}
    )


@bad
def duplicate_group(rng: Rng) -> BadInput:
    lines = text_of("groups", "groups").splitlines()
    return BadInput("groups", ("duplicate-group",), {"groups": joined([*lines, lines[row_of(rng, lines)]])})


@bad
def duplicate_region(rng: Rng) -> BadInput:
    lines = text_of("groups", "hierarchy").splitlines()
    return BadInput("groups", ("duplicate-region",), {"hierarchy": joined([*lines, lines[row_of(rng, lines)]])})


@bad
def two_parents(rng: Rng) -> BadInput:
    lines = text_of("groups", "hierarchy").splitlines()
    region = lines[row_of(rng, lines)].split(",")[0]
    return BadInput("groups", ("two-parents",), {"hierarchy": joined([*lines, f"{region},land,new{rng.integers(99)}"])})


@bad
def two_roots(rng: Rng) -> BadInput:
    lines = text_of("groups", "hierarchy").splitlines()
    extra = f"r{rng.integers(7, 99)},other,north"
    return BadInput("groups", ("several-roots", "two-roots", "two-parents"), {"hierarchy": joined([*lines, extra])})


@bad
def uneven_depth(rng: Rng) -> BadInput:
    lines = text_of("groups", "hierarchy").splitlines()
    return BadInput("groups", ("uneven-depth",), {"hierarchy": joined([*lines, f"r{rng.integers(7, 99)},land,"])})


@bad
def field_over_131072_characters(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups")
    lines = text_of("groups", key).splitlines()
    long = CANARY * int(rng.integers(15_000, 30_000))
    lines.insert(row_of(rng, lines), f"new{rng.integers(99)},{long}")
    return BadInput("groups", ("unknown-group", "unknown-region"), {key: joined(lines)})


@bad
def header_over_131072_characters(rng: Rng) -> BadInput:
    kind, key, lines = any_table(rng)
    lines[0] = f"{'x' * int(rng.integers(131_073, 400_000))},{lines[0]}"
    return BadInput(kind, ("malformed-row", "missing-column", "swapped-columns", "no-header"), {key: joined(lines)})


@bad
def line_over_two_megabytes(rng: Rng) -> BadInput:
    key = pick(rng, "entities", "groups")
    lines = text_of("groups", key).splitlines()
    lines.insert(row_of(rng, lines), f"new,{'y' * int(rng.integers(2_100_000, 2_300_000))}")
    return BadInput("groups", ("malformed-row",), {key: joined(lines)})


@bad
def mixed_line_ends(rng: Rng) -> BadInput:
    lines = text_of("groups", "entities").splitlines()
    row = row_of(rng, lines[:-1])
    content = "\n".join(lines[:row]) + "\n" + lines[row] + "\r" + "\r".join(lines[row + 1 :]) + "\r"
    return BadInput(
        "groups", ("malformed-row", "unknown-group", "control-in-id", "space-in-id"), {"entities": content.encode()}
    )


def bad_number(rng: Rng, *texts: str, codes: tuple[str, ...]) -> BadInput:
    """Put a text in the place of a count of persons, or of a value."""
    kind, key = ("tables", "records") if rng.integers(2) else ("ranges", "values")
    lines = text_of(kind, key).splitlines()
    row = row_of(rng, lines)
    lines[row] = ",".join([*lines[row].split(",")[:-1], pick(rng, *texts)])
    return BadInput(kind, codes, {key: joined(lines)})


@bad
def negative_number(rng: Rng) -> BadInput:
    codes = ("negative-count", "outside-domain")
    return bad_number(rng, f"-{rng.integers(1, 10**6)}", codes=codes)


@bad
def fraction(rng: Rng) -> BadInput:
    return bad_number(rng, f"{rng.integers(9)}.{rng.integers(10)}", "1/2", codes=("not-an-integer",))


@bad
def exponent(rng: Rng) -> BadInput:
    return bad_number(rng, f"{rng.integers(1, 9)}e{rng.integers(9)}", "1E3", "0x10", codes=("not-an-integer",))


@bad
def no_number(rng: Rng) -> BadInput:
    return bad_number(
        rng, "NaN", "inf", "-inf", "null", "NA", "-", "", CANARY, codes=("not-an-integer", "malformed-row")
    )


@bad
def padded_number(rng: Rng) -> BadInput:
    return bad_number(rng, "007", "+7", " 7", "7 ", "1_000", "1 000", "٣", codes=("not-an-integer",))


@bad
def number_of_many_digits(rng: Rng) -> BadInput:
    return bad_number(rng, "9" * int(rng.integers(19, 5000)), codes=("too-large", "outside-domain"))


@bad
def outside_the_domain(rng: Rng) -> BadInput:
    lines = [*text_of("ranges", "values").splitlines(), str(rng.integers(1000, 10**9))]
    return BadInput("ranges", ("outside-domain",), {"values": joined(lines)})


@bad
def unknown_value(rng: Rng) -> BadInput:
    lines = text_of("tables", "records").splitlines()
    lines.insert(row_of(rng, lines), f"r1,{pick(rng, CANARY, 'Male', 'FEMALE', 'femal')},old,1")
    return BadInput("tables", ("unknown-value",), {"records": joined(lines)})


@bad
def unknown_region_of_a_record(rng: Rng) -> BadInput:
    lines = text_of("tables", "records").splitlines()
    lines.insert(row_of(rng, lines), f"R{rng.integers(3)},male,old,1")
    return BadInput("tables", ("unknown-region",), {"records": joined(lines)})


@bad
def structural_zero(rng: Rng) -> BadInput:
    rule = pick(rng, "sex = male, age = old", "age = child", "sex = female, age = adult")
    line = f'structural_zeros = ["{rule}"]\n'.encode()
    codes = ("structural-zero", "bad-config")
    return BadInput("tables", codes, config=lambda text: text.replace(b"[topdown]\n", b"[topdown]\n" + line))


@bad
def a_folder_in_the_place_of_a_file(rng: Rng) -> BadInput:
    kind, key, _ = any_table(rng)
    return BadInput(kind, ("empty-file",), {key: None})


def renamed(rng: Rng, suffix: str, codes: tuple[str, ...]) -> BadInput:
    kind, key, _ = any_table(rng)
    old, new = f'"{key}.csv"'.encode(), f'"{key}{rng.integers(10)}{suffix}"'.encode()
    return BadInput(kind, codes, config=lambda text: text.replace(old, new))


@bad
def no_such_file(rng: Rng) -> BadInput:
    return renamed(rng, ".csv", ("file-not-found",))


@bad
def no_such_parquet_file(rng: Rng) -> BadInput:
    return renamed(rng, ".parquet", ("file-not-found",))


@bad
def unknown_format(rng: Rng) -> BadInput:
    return renamed(rng, pick(rng, ".xlsx", ".txt", ".csv.gz", ".json", ""), ("unknown-format",))


def replaced(rng: Rng, old: str, *new: str, kind: str = "", code: str = "bad-config") -> BadInput:
    """Replace a text of the configuration by one of several."""
    other = pick(rng, *new).encode()
    chosen = kind or pick(rng, *KINDS)
    return BadInput(chosen, (code,), config=lambda text: text.replace(old.encode(), other, 1))


@bad
def misspelt_key(rng: Rng) -> BadInput:
    return replaced(rng, "epsilon", "epsilom", "Epsilon", "eps", "epsilon_")


@bad
def misspelt_section(rng: Rng) -> BadInput:
    return replaced(rng, "[privacy]", "[privcy]", "[Privacy]", "[privacy.more]")


@bad
def unknown_section(rng: Rng) -> BadInput:
    return replaced(rng, "[data]", f"[new{rng.integers(99)}]\nx = 1\n[data]")


@bad
def no_budget(rng: Rng) -> BadInput:
    return replaced(rng, 'epsilon = "1"', "")


@bad
def budget_that_is_none(rng: Rng) -> BadInput:
    values = ('"0"', '"-1"', "-2", '"one"', '"1/0"', '"0/5"', '"1e3"', '" 1"', '""', "true", "[]", "{}", '"1/2/3"')
    return replaced(rng, '"1"', *values)


@bad
def budget_as_a_float(rng: Rng) -> BadInput:
    return replaced(rng, '"1"', f"{rng.random():.6f}", "inf", "nan", "1e400")


@bad
def budget_of_thousands_of_digits(rng: Rng) -> BadInput:
    digits = "1" * int(rng.integers(100, 9000))
    return replaced(rng, '"1"', digits, f'"{digits}"', f'"1/{digits}"')


@bad
def shares_that_do_not_sum(rng: Rng) -> BadInput:
    shares = ", ".join(f'"{rng.integers(1, 9)}/10"' for _ in range(2))
    return replaced(rng, 'epsilon = "1"', f'epsilon = "1"\nsplit = [{shares}, "1"]')


@bad
def shares_for_other_levels(rng: Rng) -> BadInput:
    many = int(rng.integers(4, 400))
    return replaced(
        rng, 'epsilon = "1"', f'epsilon = "1"\nsplit = [{", ".join([f"{chr(34)}1/{many}{chr(34)}"] * many)}]'
    )


@bad
def a_seed_beside_secure_noise(rng: Rng) -> BadInput:
    return replaced(rng, 'epsilon = "1"', f'epsilon = "1"\nseed = {rng.integers(99)}')


@bad
def a_choice_that_there_is_not(rng: Rng) -> BadInput:
    key = pick(rng, "noise", "mechanism", "neighbours", "split")
    return replaced(rng, 'epsilon = "1"', f'epsilon = "1"\n{key} = "{pick(rng, "secur", "gauss", "both", "")}"')


@bad
def dataset_that_is_no_name(rng: Rng) -> BadInput:
    return replaced(rng, '"land"', '""', '" land"', '"a\\nb"', '"a\\u0007"', '"\\u200b"', "7", '["land"]')


@bad
def no_dataset(rng: Rng) -> BadInput:
    return replaced(rng, 'dataset = "land"', "")


@bad
def deep_arrays(rng: Rng) -> BadInput:
    depth = int(rng.integers(200, 20_000))
    return replaced(rng, 'epsilon = "1"', f"epsilon = {'[' * depth}{']' * depth}")


@bad
def deep_tables(rng: Rng) -> BadInput:
    depth = int(rng.integers(100, 5_000))
    return replaced(rng, 'epsilon = "1"', f"epsilon = {'{a = ' * depth}1{'}' * depth}")


@bad
def deep_keys(rng: Rng) -> BadInput:
    return replaced(rng, 'epsilon = "1"', f"epsilon{'.a' * int(rng.integers(100, 5_000))} = 1")


@bad
def no_toml(rng: Rng) -> BadInput:
    return replaced(rng, "[data]", "[data", "data]", "= 3\n[data]", '"', "[data]\n[data]", "[[data]]", "\0", "a = \n")


@bad
def config_that_is_not_utf8(rng: Rng) -> BadInput:
    byte = bytes([int(rng.integers(0x80, 0xFF))])
    return BadInput(pick(rng, *KINDS), ("bad-config",), config=lambda text: text + b"# " + byte + b"\n")


@bad
def two_kinds(rng: Rng) -> BadInput:
    kind = pick(rng, *KINDS)
    sections = {"groups": "[ranges]", "tables": "[groups]", "ranges": "[topdown]"}
    return BadInput(kind, ("bad-config",), config=lambda text: text + sections[kind].encode() + b"\n")


@bad
def a_solver_that_there_is_not(rng: Rng) -> BadInput:
    name = pick(rng, "hihgs", "gurobi", "auto:x", "cvxpy:NOPE")
    text = f'\n[solvers]\nisotonic_l1 = "{name}"\n'.encode()
    return BadInput("groups", ("bad-config",), config=lambda config: config + text)


@bad
def an_option_that_is_none(rng: Rng) -> BadInput:
    option = pick(rng, "tolerence = 1", "tolerance = nan", "tolerance = []", 'name = "x"', "tolerance = 1979-05-27")
    text = f'\n[solvers]\nisotonic_l1 = {{ name = "highs", {option} }}\n'.encode()
    return BadInput("groups", ("bad-config",), config=lambda config: config + text)


@bad
def a_bound_that_is_none(rng: Rng) -> BadInput:
    values = ("0", "-5", '"20"', "2.5", "true", "[20]", str(2**70), "1" * 5000)
    return replaced(rng, "max_size = 20", *(f"max_size = {value}" for value in values), kind="groups")


@bad
def a_file_name_that_is_none(rng: Rng) -> BadInput:
    return replaced(rng, '.csv"', '.csv\\u0000"', kind=pick(rng, *KINDS))
