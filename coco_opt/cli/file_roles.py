"""Which of the user's files is which table of a kind of release: as stated, by headers, and by columns they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, permutations
from pathlib import Path
from typing import TYPE_CHECKING

from coco_opt.errors import InputError, Place
from coco_opt.files.inputs import Input

if TYPE_CHECKING:
    from coco_opt.releases.kind import AnyKind, ColumnNotes, Draft

_PERSON_ID = re.compile(
    r"p?id|(person|pers|entity|individual)s?[_ .-]?(id|nr|no|num|number|key|code)|id[_ .-]?pers\w*", re.IGNORECASE
)
_OWN_ID = re.compile(r"(\w{3,}?)[_ .-]?(?:id|nr|no|number)|(?:id|nr|no|number)[_ .-](\w{3,})", re.IGNORECASE)
_COUNTS = re.compile(r".*(nr|no|num|number)", re.IGNORECASE)
"""What may number the persons of each household anew, such as person_nr."""


@dataclass(frozen=True, eq=False, slots=True)
class Header:
    """One of the user's files, and the names of its columns; ``own`` is what renamed columns are called in the file."""

    path: Path
    columns: tuple[str, ...]
    own: Mapping[str, str] = field(default_factory=dict)

    def name_in_file(self, column: str) -> str:
        """Return what a column is called in the file."""
        return self.own.get(column, column)

    def column_called(self, name: str) -> str:
        """Return the column that has a name in the file."""
        return next((column for column, in_file in self.own.items() if in_file == name), name)

    def renamed(self, column: str, name: str) -> Header:
        """Return the header with another name for a column; a column that had the name is left out."""
        if column == name:
            return self
        columns = tuple(name if each == column else each for each in self.columns if each != name)
        return replace(self, columns=columns, own={**self.own, name: self.name_in_file(column)})

    def is_same_file(self, other: Header) -> bool:
        """Return whether two headers are of one file."""
        return self.path.resolve() == other.path.resolve()


def with_stated_names(headers: Sequence[Header], stated: Mapping[str, Sequence[str]]) -> list[Header]:
    """Return headers with the user's names of columns in place of those in the files. Raises InputError bad-option."""
    every = {column for header in headers for column in header.columns}
    for own, names in stated.items():
        for name in names:
            if name not in every:
                raise InputError("bad-option", f"--columns {own}={name}: none of the files has a column {name!r}")
    return [_with_stated_names(header, stated) for header in headers]


def _with_stated_names(header: Header, stated: Mapping[str, Sequence[str]]) -> Header:
    """Return a header with the first stated name of each key that it has.

    A bare ``id`` can be stated for several keys. It is the table's own id then: the last of these keys that precedes,
    from persons to regions, the keys to which other columns of the table refer.
    """
    order = [own for own in ("entity_id", "person_id", "group_id", "region_id") if own in stated]
    order += [own for own in stated if own not in order]
    names = {own: next((name for name in stated[own] if name in header.columns), None) for own in order}
    for name in {name for name in names.values() if name is not None}:
        keys = [own for own in order if names[own] == name]
        referred = [order.index(own) for own in order if names[own] not in (None, name)]
        before = [own for own in keys if order.index(own) < min(referred, default=len(order))]
        column = header.column_called(name)
        header = header.renamed(column, (before or keys)[-1])
    return header


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """How a kind of release would use the files: one for each key of [data], and rivals for the same keys."""

    kind: AnyKind
    files: Mapping[str, Header]
    rivals: Mapping[str, Header] = field(default_factory=dict)

    def draft(self, notes: ColumnNotes | None = None, levels: Sequence[str] = ()) -> Draft:
        """Return the kind's configuration of these files; ``levels`` are those of the hierarchy, if they are known."""
        names = {key: header.columns for key, header in self.files.items()}
        if levels:
            names["hierarchy"] = ("region_id", *levels)
        return self.kind.draft(names, notes)

    @property
    def private(self) -> list[str]:
        """Return the keys of its private files."""
        return [key for key in self.kind.data_model.hidden if key in self.files]

    @property
    def missing(self) -> list[str]:
        """Return the keys of [data] that the kind needs and no file fills."""
        return [key for key in self.draft().files if key not in self.files]

    @property
    def unlinked(self) -> list[tuple[str, Header, Header]]:
        """Return the columns that link two of its files and that the first of them lacks, with the other file."""
        chains = [chain for chain in self.kind.data_model.chains if {key for key, _ in chain} <= set(self.files)]
        longest, lacking = max(chains, key=len, default=()), []
        for (key, _), (below, own) in pairwise(longest):
            pair = self.files[key], self.files[below]
            lacking += [(own, file, other) for file, other in (pair, pair[::-1]) if own not in file.columns]
        return lacking

    @property
    def persons(self) -> tuple[str, Header] | None:
        """Return the table of persons with the name of the column that identifies them; None without such a table."""
        chains = self.kind.data_model.chains
        header = self.files.get(chains[0][0][0]) if chains else None
        return None if header is None else (chains[0][0][1] or "person_id", header)

    @property
    def keys(self) -> set[str]:
        """Return what the columns of ids and references are called in the files."""
        tables = self.kind.data_model.tables
        ids = {name for table in tables for name in (*table.required, *table.optional) if name.endswith("_id")}
        return {file.name_in_file(name) for file in self.files.values() for name in file.columns if name in ids}

    @property
    def names(self) -> dict[str, dict[str, str]]:
        """Return what columns are called in the files, by name here and file: those that differ, keys first."""
        known = [own for chain in self.kind.data_model.chains for _, own in chain if own]
        known += [name for table in self.kind.data_model.tables for name in (*table.required, *table.optional)]
        names = {
            own: {header.path.name: header.name_in_file(own) for header in self.files.values() if own in header.columns}
            for own in dict.fromkeys(known)
        }
        return {own: there for own, there in names.items() if set(there.values()) - {own}}

    def uses(self, header: Header) -> bool:
        """Return whether the configuration names a file."""
        keys = self.draft().files
        return any(header.is_same_file(file) for key, file in self.files.items() if key in keys)


def candidates(kinds: Sequence[AnyKind], headers: Sequence[Header], named: Mapping[str, Header]) -> list[Candidate]:
    """Return how each kind would use the files, the best first: most files, then attributes that it could count.

    A kind whose private table is known by its header comes alone. Raises InputError (two-tables) for two such kinds,
    and where it stays open which file is meant.
    """
    by_header = [_by_header(kind, headers, named) for kind in kinds]
    certain = [candidate for candidate in by_header if candidate.private]
    if len(certain) > 1:
        first, second = (candidate.files[candidate.private[0]].path for candidate in certain[:2])
        message = (
            f"is a private table, and so is {second.name} for another kind of release: name the files to use, or the "
            f"kind with --kind: {' or '.join(candidate.kind.name for candidate in certain)}"
        )
        raise InputError("two-tables", message, Place(str(first)))
    completed = [_with_linked(candidate, headers, named) for candidate in certain or by_header]
    completed.sort(key=_worth, reverse=True)
    for key, rival in completed[0].rivals.items():
        message = (
            f"is a table of {key}, and so is {completed[0].files[key].path.name}: name the files to use, or what each "
            f"is with --data KEY=FILE, where KEY is {' or '.join(completed[0].kind.draft({}).files)}"
        )
        raise InputError("two-tables", message, Place(str(rival.path)))
    return [_with_person(candidate) for candidate in completed]


def _worth(candidate: Candidate) -> tuple[int, bool, bool]:
    attributes, (_, persons) = candidate.draft().attributes, candidate.persons or ("", None)
    if attributes and persons and len(persons.columns) == 2 and _repeats(persons, attributes[0]) is False:
        attributes = ()  # the column next to the key identifies persons
    return len(candidate.files), bool(attributes), attributes is None


def _with_person(candidate: Candidate) -> Candidate:
    """Return a candidate that names what identifies persons, where the name of a column fits.

    The first column counts before the others; of these, a column that may count the persons of a household is not
    taken.
    """
    if candidate.persons is None:
        return candidate
    own, header = candidate.persons
    if {own, "count"} & set(header.columns):
        return candidate
    fitting = person_columns(header)
    if fitting[:1] != list(header.columns[:1]):
        fitting = [name for name in fitting if not _COUNTS.fullmatch(header.name_in_file(name))]
        if len(fitting) != 1:
            return candidate
    files = {key: file.renamed(fitting[0], own) if file is header else file for key, file in candidate.files.items()}
    return replace(candidate, files=files)


def person_columns(header: Header) -> list[str]:
    """Return the columns whose names say that they identify persons: id, pid, PersNr, patient_id of patients.csv."""
    keys = ("region_id", "group_id")
    return [name for name in header.columns if name not in keys and _identifies(header.name_in_file(name), header)]


def _identifies(name: str, header: Header) -> bool:
    if _PERSON_ID.fullmatch(name):
        return True
    row = _OWN_ID.fullmatch(name)
    return row is not None and header.path.stem.lower().startswith((row[1] or row[2]).lower())


def shares_no_column(header: Header, headers: Sequence[Header]) -> bool:
    """Return whether there are other files, and none of them has a column of this file."""
    others = [other for other in headers if not other.is_same_file(header)]
    return bool(others) and all(set(header.columns).isdisjoint(other.columns) for other in others)


def repeated_key(header: Header, headers: Sequence[Header]) -> str | None:
    """Return the first column that a file shares with others and that repeats values in all of them; None for none."""
    for name in header.columns:
        having = [other for other in headers if name in other.columns]
        if len(having) > 1 and all(_repeats(other, name) for other in having):
            return header.name_in_file(name)
    return None


def repeats_key(header: Header) -> str | None:
    """Return a key of groups or regions that repeats values in a file, by its name there; None for none."""
    keys = (name for name in ("group_id", "region_id") if name in header.columns)
    return next((header.name_in_file(name) for name in keys if _repeats(header, name)), None)


def _fits(kind: AnyKind, files: Mapping[str, Header]) -> bool:
    """Return whether a configuration has a line for each of some files, as it has not for sizes and entities."""
    return set(files) <= set(kind.draft({key: header.columns for key, header in files.items()}).files)


def _by_header(kind: AnyKind, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate:
    files, rivals = dict(named), {}
    for header in headers:
        key = kind.file_key(header.columns)
        taken = any(header.is_same_file(other) for other in named.values())
        if key is None or taken or key in named or not _fits(kind, {**named, key: header}):
            continue
        if key in files:
            rivals[key] = header
        files.setdefault(key, header)
    return Candidate(kind, files, rivals)


def _with_linked(candidate: Candidate, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate:
    """Return a candidate with the tables that links show, where headers alone left some out or lack the keys."""
    if not candidate.missing and not candidate.unlinked:
        return candidate
    private = {key: candidate.files[key] for key in candidate.private}
    linked = _linked(candidate.kind, headers, {**private, **named})
    least = len(candidate.files) + bool(candidate.missing)
    return candidate if linked is None or len(linked.files) < least else linked


def _linked(kind: AnyKind, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate | None:
    """Match files to a kind's tables by the columns they share, if one way fits; the longest chain of tables counts.

    A file that no chain has, such as bounds, is a further file, which is named or known by its header.
    """
    chained = {key for chain in kind.data_model.chains for key, _ in chain}
    known = _by_header(kind, headers, named).files
    tables = dict.fromkeys(chained, Header(Path(), ("", "")))
    further = {key: file for key, file in known.items() if key not in chained and _fits(kind, {**tables, key: file})}
    named = {key: header for key, header in named.items() if key in chained}
    taken = [*named.values(), *further.values()]
    others = [header for header in headers if not any(map(header.is_same_file, taken))]
    for chain in sorted(kind.data_model.chains, key=len, reverse=True):
        keys = [key for key, _ in chain]
        if not set(named) <= set(keys):
            continue
        links = [own for _, own in chain[1:]]
        ways = list(_ways([named.get(key) for key in keys], others, links))
        if ways:
            return Candidate(kind, {**_of_chain(chain, ways[0]), **further}) if len(ways) == 1 else None
    return None


def _ways(
    named: Sequence[Header | None], others: Sequence[Header], links: Sequence[str]
) -> Iterator[tuple[Header, ...]]:
    """Yield the files that can stand in the places of a chain, each linked to the next; some places are named.

    Each link is a column of its own, which is not called like another link of the chain.
    """
    for chosen in permutations(others, named.count(None)):
        left = iter(chosen)
        files = tuple(next(left) if header is None else header for header in named)
        steps = [_link(above, below) for above, below in pairwise(files)]
        named_right = all(step not in links or step == own for step, own in zip(steps, links, strict=True))
        if None not in steps and len(set(steps)) == len(steps) and named_right:
            yield files


def _of_chain(chain: Sequence[tuple[str, str]], files: Sequence[Header]) -> dict[str, Header]:
    """Return the files of a chain by key, their links under the names that these have here."""
    renamed = list(files)
    for place, (_, own) in enumerate(chain[1:]):
        link = _link(files[place], files[place + 1])
        assert link is not None  # so the path was made
        renamed = [header.renamed(link, own) if link in header.columns else header for header in renamed]
    return {key: header for (key, _), header in zip(chain, renamed, strict=True)}


@lru_cache(maxsize=256)
def _link(above: Header, below: Header) -> str | None:
    """Return the column that says to which row of ``below`` a row of ``above`` belongs.

    A table's own id stands first in it and in the table above it: persons (pid, home), homes (home, area), areas (area,
    state). Otherwise it is the shared column whose values are unique below and repeat above.
    """
    if len(below.columns) == 1 or len(above.columns) == 1:
        return None
    shared = [name for name in below.columns if name in above.columns]
    if below.columns[0] in shared and above.columns[0] not in below.columns:
        return below.columns[0]
    keys = [name for name in shared if _repeats(below, name) is False and _repeats(above, name)]
    return keys[0] if len(keys) == 1 else None


def _repeats(header: Header, column: str) -> bool | None:
    """Return whether a column repeats a value; None where the file cannot be read, as whoever reads it will say."""
    from coco_opt.files.proposals import repeated_values

    try:
        return bool(repeated_values(Input(header.path), header.name_in_file(column)))
    except InputError:
        return None
