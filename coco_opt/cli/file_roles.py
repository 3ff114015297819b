"""Which of the user's files is which table of a kind of release: by their headers, and by the columns they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from coco_opt.cli.column_names import Header, identifies_a_row, may_count, person_columns
from coco_opt.errors import InputError, Place
from coco_opt.files.column_roles import unfit_reason

if TYPE_CHECKING:
    from coco_opt.releases.kind import AnyKind, ColumnNotes, Draft

_MOST_FILES = 8  # with more, not every order is tried


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """How a kind of release would use the files: one for each key of [data], and rivals for the same keys.

    ``columns`` are the files' names of columns, where these differ, by their names here.
    """

    kind: AnyKind
    files: Mapping[str, Header]
    rivals: Mapping[str, Header] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def draft(self, notes: ColumnNotes | None = None, levels: Sequence[str] = ()) -> Draft:
        """Return the kind's configuration of these files; ``levels`` are those of the hierarchy, if they are known."""
        own = {user: name for name, user in self.columns.items()}
        names = {key: tuple(own.get(name, name) for name in header.columns) for key, header in self.files.items()}
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
    def names(self) -> dict[str, dict[str, str]]:
        """Return what columns are called in the files, by their names here and by file; only those that differ."""
        tables = self.kind.data_model.tables
        known = {name for table in tables for name in (*table.required, *table.optional)}
        renamed = {name: name for header in self.files.values() for name in header.own if name in known}
        names = {
            own: {
                header.path.name: header.name_in_file(name) for header in self.files.values() if name in header.columns
            }
            for own, name in {**renamed, **self.columns}.items()
        }
        return {own: there for own, there in names.items() if set(there.values()) - {own}}

    @property
    def keys(self) -> set[str]:
        """Return the columns of ids and references, as they are called here or in the files."""
        named = (name for table in self.kind.data_model.tables for name in (*table.required, *table.optional))
        return {name for name in named if name.endswith("_id")} | set(self.columns.values())

    def uses(self, header: Header) -> bool:
        """Return whether the configuration names a file."""
        return any(self.files.get(key) is header for key in self.draft().files)


def best_candidate(kinds: Sequence[AnyKind], headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate:
    """Return the kind whose private table was found, else the kind that can use most of the files.

    Of several kinds that could use linked files, a kind that can count the columns of the private table comes first.
    Raises InputError (two-tables) where headers leave it open which file is meant.
    """
    candidates = [_by_header(kind, headers, named) for kind in kinds]
    certain = [_completed(candidate, headers, named) for candidate in candidates if candidate.private]
    if not certain:
        certain = _best_linked(kinds, headers, named, max(len(candidate.files) for candidate in candidates))
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


def _best_linked(
    kinds: Sequence[AnyKind], headers: Sequence[Header], named: Mapping[str, Header], files: int
) -> list[Candidate]:
    """Return the best candidate whose links use more than so many files: with attributes, if there is any."""
    linked = [candidate for candidate in (_linked(kind, headers, named) for kind in kinds) if candidate is not None]
    attributes = {candidate: candidate.draft().attributes for candidate in linked}
    useful = [
        candidate
        for candidate in linked
        if len(candidate.files) > files and (len(kinds) == 1 or attributes[candidate] != ())
    ]
    return sorted(useful, key=lambda candidate: not attributes[candidate])[:1]


def with_person_id(chosen: Candidate) -> Candidate:
    """Return a candidate whose records name their person_id, where the name of a column shows it.

    The first column counts before the others; of these, a column that may count the persons of a household is not
    taken.
    """
    header = chosen.files.get("records")
    known = {name for table in chosen.kind.data_model.tables for name in table.required}
    if header is None or "person_id" not in known or {"person_id", "count"} & set(header.columns):
        return chosen
    keys = {"region_id", "group_id", *chosen.columns.values()}
    first = header.columns[0]
    named = [first] if first not in keys and identifies_a_row(header) else further_ids(chosen, header)
    if len(named) != 1 or (named != [first] and may_count(header.name_in_file(named[0]))):
        return chosen
    return replace(chosen, columns={**chosen.columns, "person_id": named[0]})


def further_ids(chosen: Candidate, header: Header) -> list[str]:
    """Return the columns of the records after the first that may identify persons, without the keys."""
    keys = {"region_id", "group_id", *chosen.columns.values()}
    return [column for column in person_columns(header) if column not in keys]


def unnamed_ids(chosen: Candidate, header: Header) -> list[str]:
    """Return the columns of the records that are ids by their names, but neither keys nor ids of persons."""
    keys = chosen.keys | {"region_id", "group_id"}
    return [column for column in header.columns if column not in keys and unfit_reason(column) == "an id"]


def completed_without(kinds: Sequence[AnyKind], headers: Sequence[Header]) -> list[Header]:
    """Return the files without which all others, and no more, are the tables of one release."""
    return [header for header in headers if _fit(kinds, [other for other in headers if other is not header])]


def _fit(kinds: Sequence[AnyKind], headers: Sequence[Header]) -> bool:
    try:
        chosen = best_candidate(kinds, headers, {})
    except InputError:
        return False
    return not chosen.missing and all(map(chosen.uses, headers))


def other_kinds(chosen: Candidate, kinds: Sequence[AnyKind], headers: Sequence[Header]) -> list[str]:
    """Return the names of other kinds that could use the same files, and would have attributes if they need any."""
    used = set(chosen.files.values())
    others = (_linked(kind, headers, {}) for kind in kinds if kind is not chosen.kind and len(used) > 1)
    return [
        other.kind.name
        for other in others
        if other is not None and set(other.files.values()) == used and other.draft().attributes != ()
    ]


def shares_no_column(header: Header, headers: Sequence[Header]) -> bool:
    """Return whether there are other files, and none of them has a column of this file."""
    others = [other for other in headers if other.path.resolve() != header.path.resolve()]
    return bool(others) and all(set(header.columns).isdisjoint(other.columns) for other in others)


def _by_header(kind: AnyKind, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate:
    files, rivals = dict(named), {}
    taken = {header.path.resolve() for header in named.values()}
    for header in headers:
        key = kind.file_key(header.columns)
        if key is None or header.path.resolve() in taken or key in named or _displaces(kind, key, header, named):
            continue
        if key in files:
            rivals[key] = header
        files.setdefault(key, header)
    return Candidate(kind, files, rivals)


def _goes(kind: AnyKind, key: str, header: Header, keys: AbstractSet[str]) -> bool:
    """Return whether a configuration of some keys has a line for one more file."""
    return key in kind.draft({**dict.fromkeys(keys, ("", "")), key: header.columns}).files


def _displaces(kind: AnyKind, key: str, header: Header, named: Mapping[str, Header]) -> bool:
    """Return whether a configuration with this file would have no line for a named one, as sizes stand for entities."""
    columns = {name: file.columns for name, file in {**named, key: header}.items()}
    return not set(named) <= set(kind.draft(columns).files)


def _completed(candidate: Candidate, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate:
    """Return a candidate with the tables that links to its private one show, where headers alone left some out."""
    if not candidate.missing and _has_keys(candidate):
        return candidate
    private = {key: candidate.files[key] for key in candidate.private}
    linked = _linked(candidate.kind, headers, {**private, **named})
    least = len(candidate.files) + bool(candidate.missing)
    return candidate if linked is None or len(linked.files) < least else linked


def _has_keys(candidate: Candidate) -> bool:
    """Return whether the tables of a candidate have the columns that link them, by their names here."""
    chains = [chain for chain in candidate.kind.data_model.chains if all(key in candidate.files for key, _ in chain)]
    longest = sorted(chains, key=len)[-1:]
    return all(
        own in candidate.files[above].columns and own in candidate.files[below].columns
        for chain in longest
        for (above, _), (below, own) in pairwise(chain)
    )


def _linked(kind: AnyKind, headers: Sequence[Header], named: Mapping[str, Header]) -> Candidate | None:
    """Match files to a kind's tables by the columns they share, if one way fits; the longest chain of tables counts.

    A file that no chain has, such as bounds, is a further file, which is named or known by its header.
    """
    chained = {key for chain in kind.data_model.chains for key, _ in chain}
    known = _by_header(kind, headers, named).files
    further = {key: header for key, header in known.items() if key not in chained and _goes(kind, key, header, chained)}
    named = {key: header for key, header in named.items() if key in chained}
    taken = {header.path.resolve() for header in (*named.values(), *further.values())}
    others = [header for header in headers if header.path.resolve() not in taken]
    for chain in sorted(kind.data_model.chains, key=len, reverse=True):
        keys = [key for key, _ in chain]
        every = [*named.values(), *(others if set(keys) - set(named) else ())]
        if len(every) > _MOST_FILES or not set(named) <= set(keys):
            continue
        matches = list(_chains(every, keys, named))
        if len(matches) == 1:
            linked = _of_chain(kind, chain, *matches[0])
            return replace(linked, files={**linked.files, **further})
        if matches:
            return None
    return None


def _chains(
    headers: Sequence[Header], keys: Sequence[str], named: Mapping[str, Header]
) -> Iterator[tuple[tuple[Header, ...], list[str]]]:
    """Yield files in the order of the keys, each linked to the next, and the columns that link them."""
    for files in permutations(headers, len(keys)):
        if any(named.get(key, file) is not file for key, file in zip(keys, files, strict=True)):
            continue
        links = [_link(above, below) for above, below in pairwise(files)]
        if all(links):
            yield files, [link for link in links if link is not None]


def _of_chain(
    kind: AnyKind, chain: Sequence[tuple[str, str]], files: Sequence[Header], links: Sequence[str]
) -> Candidate:
    first = next((name for name in files[0].columns if name != links[0]), "")
    user_names = dict(zip([own for _, own in chain], [first, *links], strict=True))
    columns = {own: name for own, name in user_names.items() if own and own != name}
    return Candidate(kind, {key: file for (key, _), file in zip(chain, files, strict=True)}, {}, columns)


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
    from coco_opt.files.inputs import Input
    from coco_opt.files.proposals import repeats_in

    try:
        return repeats_in(Input(header.path), header.name_in_file(column))
    except InputError:
        return None
