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
Text = str | Callable[[Rng], str]


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


def draws(each: int, seed: int = 16) -> Iterator[tuple[str, BadInput]]:
    """Yield so many inputs of every class."""
    for number, (name, make) in enumerate(CLASSES.items()):
        rng = np.random.default_rng([seed, number])
        for _ in range(each):
            yield name, make(rng)


def pick(rng: Rng, *texts: Text) -> str:
    """Return one of several texts, drawn where it has to be."""
    text = texts[rng.integers(len(texts))]
    return text if isinstance(text, str) else text(rng)


def joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


# --- tables: a change gets the lines of a good table and the number of a row, and returns what is in the file ---------

Change = Callable[[list[str], int, Rng], Table]


def in_table(change: Change, *codes: str, keys: tuple[str, ...] = (), kind: str = "groups") -> Make:
    """Return the class that changes one of some tables of a kind; without keys, any table of any kind."""

    def make(rng: Rng) -> BadInput:
        chosen = kind if keys else pick(rng, *KINDS)
        key = pick(rng, *(keys or KINDS[chosen].files))
        lines = KINDS[chosen].files[key].splitlines()
        return BadInput(chosen, codes, {key: change(lines, int(rng.integers(1, len(lines))), rng)})

    return make


def row(rewrite: Callable[[str, Rng], str]) -> Change:
    """Rewrite a row."""
    return lambda lines, at, rng: joined([*lines[:at], rewrite(lines[at], rng), *lines[at + 1 :]])


def header(rewrite: Callable[[str, Rng], str]) -> Change:
    """Rewrite the names of the columns."""
    return lambda lines, _, rng: joined([rewrite(lines[0], rng), *lines[1:]])


def inserted(line: Callable[[Rng], str]) -> Change:
    """Insert a line before a row."""
    return lambda lines, at, rng: joined([*lines[:at], line(rng), *lines[at:]])


def appended(line: Callable[[str, Rng], str]) -> Change:
    """Append a line that is made of a row."""
    return lambda lines, at, rng: joined([*lines, line(lines[at], rng)])


def in_fields(rewrite: Callable[[str, Rng], str], *, last: bool = False) -> Change:
    """Rewrite one field of a row, or its last one."""

    def rewritten(line: str, rng: Rng) -> str:
        fields = line.split(",")
        place = len(fields) - 1 if last else int(rng.integers(len(fields)))
        fields[place] = rewrite(fields[place], rng)
        return ",".join(fields)

    return row(rewritten)


IDS = ("entities", "groups", "hierarchy")
MISREAD = ("control-in-id", "unknown-group", "unknown-region", "malformed-row", "unreadable-file", "two-parents")


def hidden(*characters: str) -> Make:
    """Put a character that nobody sees into the middle of an id or a level's name."""
    return in_table(in_fields(lambda text, rng: text[:1] + pick(rng, *characters) + text[1:]), *MISREAD, keys=IDS)


def number(*texts: Text, codes: tuple[str, ...] = ("not-an-integer",)) -> Make:
    """Put a text in the place of a count of persons, or of a value."""
    change = in_fields(lambda _, rng: pick(rng, *texts), last=True)
    of_kind = {kind: in_table(change, *codes, keys=(key,), kind=kind) for kind, key in NUMBERS.items()}
    return lambda rng: of_kind[pick(rng, *NUMBERS)](rng)


NUMBERS = {"tables": "records", "ranges": "values"}


def without_a_name(names: str, rng: Rng) -> str:
    """Rename a column that is needed: the id of a table of regions, any column but a count elsewhere."""
    columns = names.split(",")
    needed = (
        0 if len(columns) == 3 and columns[0] == "region_id" else int(rng.integers(len(columns) - ("count" in columns)))
    )
    return ",".join(f"x{name}" if place == needed else name for place, name in enumerate(columns))


def not_utf8(lines: list[str], _: int, rng: Rng) -> bytes:
    content = joined(lines)
    place = int(rng.integers(len(lines[0]) + 1, len(content) - 1))
    return content[:place] + bytes([int(rng.integers(0x80, 0xC0))]) + content[place:]


def mixed_line_ends(lines: list[str], at: int, _: Rng) -> bytes:
    at = min(at, len(lines) - 2)
    return ("\n".join(lines[:at]) + "\n" + lines[at] + "\r" + "\r".join(lines[at + 1 :]) + "\r").encode()


def in_two_unicode_forms(lines: list[str], _: int, rng: Rng) -> bytes:
    name = pick(rng, "é", "Ångström", "ñandú", "한")
    forms = (name, unicodedata.normalize("NFD", name))
    return joined([*lines, *(f"{form},g{rng.integers(1, 6)}" for form in forms)])


def spaced(line: str, rng: Rng) -> str:
    space = pick(rng, " ", "\u00a0", "\u3000", "\t")
    return space + line if rng.integers(2) else line + space


def elsewhere(line: str, _: Rng) -> str:
    group, region = line.split(",")
    return f"{group},{'r2' if region == 'r1' else 'r1'}"


TABLES: dict[str, Make] = {
    "empty file": in_table(lambda *_: b"", "empty-file"),
    "header only": in_table(lambda lines, *_: joined(lines[:1]), "empty-file"),
    "a folder in the place of a file": in_table(lambda *_: None, "empty-file"),
    "no header": in_table(lambda lines, *_: joined(lines[1:]), "no-header", "missing-column"),
    "missing column": in_table(header(without_a_name), "no-header", "missing-column"),
    "duplicate column": in_table(
        lambda lines, *_: joined([f"{line},{lines[0].split(',')[0]}" for line in lines]), "duplicate-column"
    ),
    "trailing comma in the header": in_table(
        header(lambda names, _: f"{names},"), "malformed-row", "unexpected-column"
    ),
    "unclosed quote in the header": in_table(
        header(lambda names, _: f'"{names}'), "no-header", "malformed-row", "missing-column"
    ),
    "header over 131072 characters": in_table(
        header(lambda names, rng: f"{'x' * int(rng.integers(131_073, 400_000))},{names}"),
        "malformed-row",
        "missing-column",
        "swapped-columns",
        "no-header",
    ),
    "short row": in_table(row(lambda line, _: line.rpartition(",")[0]), "malformed-row", keys=IDS),
    "a field too many": in_table(row(lambda line, rng: line + "," * int(rng.integers(1, 4)) + CANARY), "malformed-row"),
    "unclosed quote": in_table(row(lambda line, _: f'"{line}'), "malformed-row"),
    "misplaced quote": in_table(row(lambda line, _: f'"{CANARY}"{CANARY}{line}'), "malformed-row"),
    "not UTF-8": in_table(not_utf8, "unreadable-file", "malformed-row"),
    "UTF-16": in_table(lambda lines, *_: joined(lines).decode().encode("utf-16"), "unreadable-file", "no-header"),
    "Latin-1": in_table(
        lambda lines, at, _: joined([*lines[:at], f"{lines[at]}é", *lines[at + 1 :]]).decode().encode("latin-1"),
        "unreadable-file",
        keys=IDS[:2],
    ),
    "mixed line ends": in_table(
        mixed_line_ends, "malformed-row", "unknown-group", "control-in-id", "space-in-id", keys=("entities",)
    ),
    "line over two megabytes": in_table(
        inserted(lambda rng: f"new,{'y' * int(rng.integers(2_100_000, 2_300_000))}"), "malformed-row", keys=IDS[:2]
    ),
    "field over 131072 characters": in_table(
        inserted(lambda rng: f"new{rng.integers(99)},{CANARY * int(rng.integers(15_000, 30_000))}"),
        "unknown-group",
        "unknown-region",
        keys=IDS[:2],
    ),
    "NUL in an id": hidden("\0"),
    "control in an id": hidden(*map(chr, (1, 7, 8, 11, 27, 31, 127, 133))),
    "zero width in an id": hidden("\u200b", "\u200c", "\u200d", "\u2060"),
    "byte order mark in an id": hidden("\ufeff"),
    "direction mark in an id": hidden("\u200e", "\u202e", "\u2066", "\u00ad"),
    "line separator in an id": hidden("\u2028", "\u2029"),
    "space at an end": in_table(row(spaced), "space-in-id", "control-in-id", keys=IDS),
    "empty id": in_table(in_fields(lambda *_: ""), "null-id", "uneven-depth", keys=IDS),
    "one id in two Unicode forms": in_table(in_two_unicode_forms, "duplicate-entity", keys=("entities",)),
    "duplicate entity": in_table(
        appended(lambda line, rng: f"{line.split(',')[0]},g{rng.integers(1, 6)}"),
        "duplicate-entity",
        keys=("entities",),
    ),
    "unknown group": in_table(
        inserted(lambda rng: f"new,{CANARY}{rng.integers(100)}"), "unknown-group", keys=("entities",)
    ),
    "unknown region of a group": in_table(
        inserted(lambda rng: f"g{rng.integers(10, 99)},elsewhere"), "unknown-region", keys=("groups",)
    ),
    "group in two leaves": in_table(appended(elsewhere), "group-in-two-leaves", keys=("groups",)),
    "duplicate group": in_table(appended(lambda line, _: line), "duplicate-group", keys=("groups",)),
    "duplicate region": in_table(appended(lambda line, _: line), "duplicate-region", keys=("hierarchy",)),
    "two parents": in_table(
        appended(lambda line, rng: f"{line.split(',')[0]},land,new{rng.integers(99)}"),
        "two-parents",
        keys=("hierarchy",),
    ),
    "two roots": in_table(
        appended(lambda _, rng: f"r{rng.integers(7, 99)},other,north"),
        "several-roots",
        "two-roots",
        "two-parents",
        keys=("hierarchy",),
    ),
    "uneven depth": in_table(
        appended(lambda _, rng: f"r{rng.integers(7, 99)},land,"), "uneven-depth", keys=("hierarchy",)
    ),
    "negative number": number(lambda rng: f"-{rng.integers(1, 10**6)}", codes=("negative-count", "outside-domain")),
    "fraction": number(lambda rng: f"{rng.integers(9)}.{rng.integers(10)}", "1/2"),
    "exponent": number(lambda rng: f"{rng.integers(1, 9)}e{rng.integers(9)}", "1E3", "0x10"),
    "no number": number("NaN", "inf", "-inf", "null", "NA", "-", "", CANARY, codes=("not-an-integer", "malformed-row")),
    "padded number": number("007", "+7", " 7", "7 ", "1_000", "1 000", "٣"),
    "number of many digits": number(
        lambda rng: "9" * int(rng.integers(19, 5000)), codes=("too-large", "outside-domain")
    ),
    "outside the domain": in_table(
        appended(lambda _, rng: str(rng.integers(1000, 10**9))), "outside-domain", keys=("values",), kind="ranges"
    ),
    "unknown value": in_table(
        inserted(lambda rng: f"r1,{pick(rng, CANARY, 'Male', 'FEMALE', 'femal')},old,1"),
        "unknown-value",
        keys=("records",),
        kind="tables",
    ),
    "unknown region of a record": in_table(
        inserted(lambda rng: f"R{rng.integers(3)},male,old,1"), "unknown-region", keys=("records",), kind="tables"
    ),
}


# --- configurations ---------------------------------------------------------------------------------------------------


def replaced(old: str, *new: Text, kind: str = "", codes: tuple[str, ...] = ("bad-config",)) -> Make:
    """Return the class that replaces a text of the configuration, of a kind or of any, by one of several."""

    def make(rng: Rng) -> BadInput:
        other = pick(rng, *new).encode()
        return BadInput(kind or pick(rng, *KINDS), codes, config=lambda text: text.replace(old.encode(), other, 1))

    return make


def more(*lines: Text) -> Make:
    """Return the class that adds a line to [privacy]."""
    return replaced(BUDGET, lambda rng: f"{BUDGET}\n{pick(rng, *lines)}")


def at_the_end(text: Callable[[str, Rng], bytes], kind: str = "") -> Make:
    """Return the class that appends a text to the configuration of a kind or of any."""

    def make(rng: Rng) -> BadInput:
        chosen = kind or pick(rng, *KINDS)
        added = text(chosen, rng)
        return BadInput(chosen, ("bad-config",), config=lambda config: config + added)

    return make


def solver(choice: Callable[[Rng], str]) -> Make:
    """Return the class that chooses a solver of a problem."""
    return at_the_end(lambda _, rng: f"\n[solvers]\nisotonic_l1 = {choice(rng)}\n".encode(), "groups")


def renamed(code: str, *suffixes: str) -> Make:
    """Return the class that names another file."""

    def make(rng: Rng) -> BadInput:
        kind = pick(rng, *KINDS)
        key = pick(rng, *KINDS[kind].files)
        old, new = f'"{key}.csv"'.encode(), f'"{key}{rng.integers(10)}{pick(rng, *suffixes)}"'.encode()
        return BadInput(kind, (code,), config=lambda text: text.replace(old, new))

    return make


BUDGET = 'epsilon = "1"'
OTHER_KIND = {"groups": b"[ranges]\n", "tables": b"[groups]\n", "ranges": b"[topdown]\n"}
NO_AMOUNTS = ('"0"', '"-1"', "-2", '"one"', '"1/0"', '"0/5"', '"1e3"', '" 1"', '""', "true", "[]", "{}", '"1/2/3"')
NO_SIZES = ("0", "-5", '"20"', "2.5", "true", "[20]", str(2**70), "1" * 5000)
NO_OPTIONS = ("tolerence = 1", "tolerance = nan", "tolerance = []", 'name = "x"', "tolerance = 1979-05-27")
ZEROS = ("sex = male, age = old", "age = child", "sex = female, age = adult")


def many_digits(form: str) -> Text:
    return lambda rng: form.format("1" * int(rng.integers(100, 9000)))


def shares(rng: Rng) -> str:
    return f'split = ["{rng.integers(1, 9)}/10", "{rng.integers(1, 9)}/10", "1"]'


def shares_of_many_levels(rng: Rng) -> str:
    many = int(rng.integers(4, 400))
    return f"split = {[f'1/{many}'] * many}"


def nested(key: str, begin: str, middle: str, end: str, most: int) -> Text:
    """Return a budget within many brackets."""

    def text(rng: Rng) -> str:
        depth = int(rng.integers(100, most))
        return f"{key}{begin * depth}{middle}{end * depth}"

    return text


CONFIGS: dict[str, Make] = {
    "misspelt key": replaced("epsilon", "epsilom", "Epsilon", "eps", "epsilon_"),
    "misspelt section": replaced("[privacy]", "[privcy]", "[Privacy]", "[privacy.more]"),
    "unknown section": replaced("[data]", lambda rng: f"[new{rng.integers(99)}]\nx = 1\n[data]"),
    "no budget": replaced(BUDGET, ""),
    "a budget that is none": replaced('"1"', *NO_AMOUNTS),
    "a budget as a float": replaced('"1"', lambda rng: f"{rng.random():.6f}", "inf", "nan", "1e400"),
    "a budget of thousands of digits": replaced('"1"', *map(many_digits, ("{}", '"{}"', '"1/{}"'))),
    "shares that do not sum": more(shares),
    "shares for other levels": more(shares_of_many_levels),
    "a seed next to secure noise": more(lambda rng: f"seed = {rng.integers(99)}"),
    "a choice that there is not": more(
        lambda rng: (
            f'{pick(rng, "noise", "mechanism", "neighbours", "split")} = "{pick(rng, "secur", "gauss", "both", "")}"'
        )
    ),
    "a dataset that is no name": replaced(
        'dataset = "land"',
        *(f"dataset = {name}" for name in ('""', '" land"', r'"a\nb"', r'"a\u0007"', r'"\u200b"', "7", '["land"]')),
    ),
    "no dataset": replaced('dataset = "land"', ""),
    "deep arrays": replaced(BUDGET, nested("epsilon = ", "[", "", "]", 20_000)),
    "deep tables": replaced(BUDGET, nested("epsilon = ", "{a = ", "1", "}", 5_000)),
    "deep keys": replaced(BUDGET, nested("epsilon", ".a", " = 1", "", 5_000)),
    "no TOML": replaced("[data]", "[data", "data]", "= 3\n[data]", '"', "[data]\n[data]", "[[data]]", "\0", "a = \n"),
    "a configuration that is not UTF-8": at_the_end(lambda _, rng: bytes([35, int(rng.integers(0x80, 0xFF)), 10])),
    "two kinds": at_the_end(lambda kind, _: OTHER_KIND[kind]),
    "a solver that there is not": solver(lambda rng: f'"{pick(rng, "hihgs", "gurobi", "auto:x", "cvxpy:NOPE")}"'),
    "an option that is none": solver(lambda rng: f'{{ name = "highs", {pick(rng, *NO_OPTIONS)} }}'),
    "a bound that is none": replaced("max_size = 20", *(f"max_size = {size}" for size in NO_SIZES), kind="groups"),
    "a file name that is none": replaced('.csv"', r'.csv\u0000"'),
    "a structural zero": replaced(
        "[topdown]\n",
        lambda rng: f'[topdown]\nstructural_zeros = ["{pick(rng, *ZEROS)}"]\n',
        kind="tables",
        codes=("structural-zero", "bad-config"),
    ),
    "no such file": renamed("file-not-found", ".csv"),
    "no such Parquet file": renamed("file-not-found", ".parquet"),
    "unknown format": renamed("unknown-format", ".xlsx", ".txt", ".csv.gz", ".json", ""),
}

CLASSES = {**TABLES, **CONFIGS}
