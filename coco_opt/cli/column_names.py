"""What the same key is called in several of the user's files: as the user says, or as the names of columns show."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from coco_opt.errors import InputError

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[^\W\d_]+")
_ID_WORDS = {"id", "ident", "identifier", "nr", "no", "num", "number", "key", "code", "uuid", "ref"}
_ID_WORDS |= {"nummer", "kennung", "kennziffer", "schlussel", "schluessel", "sleutel"}
_ID_WORDS |= {"codigo", "cod", "clave", "numero", "identificador", "identifiant", "cle"}
_COUNTING = {"nr", "no", "num", "number", "nummer", "numero"}  # words of what may count the persons of a household
_PERSON_IDS = {"pid", "ssn", "bsn", "nin", "nif", "nie", "dni", "cpf"}
_PERSONS = ("pers", "pess", "indiv", "respond", "einwohner", "inwoner", "resident", "habitant", "abitant")
_PLURAL = 2  # letters that a plural adds at most: municipio, municipios; Gemeinde, Gemeinden; hogar, hogares
_SHORTEST = 3
_SEVERAL = 2


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
        """Return the header with another name for one of its columns."""
        columns = tuple(name if each == column else each for each in self.columns)
        return replace(self, columns=columns, own={**self.own, name: self.name_in_file(column)})


def with_stated_names(headers: Sequence[Header], stated: Mapping[str, Sequence[str]]) -> list[Header]:
    """Return headers with the user's names of columns in place of those in the files. Raises InputError bad-option."""
    every = {column for header in headers for column in header.columns}
    for own, names in stated.items():
        for name in names:
            if name not in every:
                raise InputError("bad-option", f"--columns {own}={name}: none of the files has a column {name!r}")
    renamed = list(headers)
    for own, columns in _stated_columns(headers, stated).items():
        for place, column in columns.items():
            if own not in headers[place].columns:
                renamed[place] = renamed[place].renamed(column, own)
    return renamed


def _stated_columns(headers: Sequence[Header], stated: Mapping[str, Sequence[str]]) -> dict[str, dict[int, str]]:
    """Return the column of each header that has one of the stated names, by its place and by the name here.

    A bare ``id`` with which several tables begin is the key of one of them alone: of the table that a name given along
    with it names, as ``household,id`` names households.csv, or of the only table that no other key names.
    """
    matches = {own: _columns_called(names, headers) for own, names in stated.items()}
    bare = {
        own: [place for place, name in columns.items() if not _key_words(name) and name == headers[place].columns[0]]
        for own, columns in matches.items()
    }
    doubtful = {own: places for own, places in bare.items() if len(places) > 1 and len(stated[own]) > 1}
    named = {
        own: [place for place in places if any(_names_file(_key_words(name), headers[place]) for name in stated[own])]
        for own, places in doubtful.items()
    }
    for own, places in doubtful.items():
        others = {place for other, tables in named.items() if other != own and len(tables) == 1 for place in tables}
        tables = named[own] if len(named[own]) == 1 else [place for place in places if place not in others]
        if len(tables) != 1:
            name, files = matches[own][places[0]], ", ".join(headers[place].path.name for place in places)
            message = f"--columns {own}={name}: {files} begin with {name!r}: give these columns different names"
            raise InputError("bad-option", message)
        matches[own] = {place: name for place, name in matches[own].items() if place not in places or place in tables}
    return matches


def _columns_called(names: Sequence[str], headers: Sequence[Header]) -> dict[int, str]:
    """Return the column of each header that has one of the names, by its place; a bare id only without the others."""
    by_words = sorted(names, key=lambda name: not _key_words(name))
    present = {place: [name for name in by_words if name in header.columns] for place, header in enumerate(headers)}
    return {place: columns[0] for place, columns in present.items() if columns}


def with_shared_names(headers: Sequence[Header]) -> list[Header]:
    """Return headers in which a key has one name, where a file shares no column and one pair of names shows its key.

    A name shows a key without its words for an id: ``hogar`` is the key of a table that begins with ``id_hogar``, and
    ``cod_municipio`` of a table municipios.csv that begins with ``codigo``. A bare ``id`` with which several tables
    begin is the own id of each.
    """
    renamed = [_with_own_id(header, headers) for header in headers]
    for place, header in enumerate(renamed):
        others = [each for each in renamed if each.path.resolve() != header.path.resolve()]
        if any(set(header.columns) & set(other.columns) for other in others):
            continue
        pairs = [pair for other in others for pair in _same_keys(header, other)]
        if len(pairs) == 1:
            renamed[place] = header.renamed(*pairs[0])
    return renamed


def _with_own_id(header: Header, headers: Sequence[Header]) -> Header:
    """Return a header whose first column, a bare id that other tables begin with too, has a name of its own."""
    first = header.columns[0] if header.columns else ""
    begins = [other for other in headers if other.columns[:1] == (first,)]
    alone = len({other.path.resolve() for other in begins}) < _SEVERAL
    return header if alone or _key_words(first) else header.renamed(first, f"{header.path.name}: {first}")


def _same_keys(header: Header, other: Header) -> Iterator[tuple[str, str]]:
    """Yield the columns of two tables that seem to be one key: the first one of one of the tables, which it begins."""
    pairs = [(header.columns[0], name) for name in other.columns] if header.columns else []
    pairs += [(name, other.columns[0]) for name in header.columns[1:]] if other.columns else []
    for column, name in pairs:
        words, other_words = _key_words(header.name_in_file(column)), _key_words(other.name_in_file(name))
        named = _names_file(words, other) or _names_file(other_words, header)
        if (words and words == other_words) or (named and not (words and other_words)):
            yield column, name


def identifies_a_row(header: Header) -> bool:
    """Return whether a table of persons begins with the person's own id, by its name: id, pid, PersNr, patient_id.

    A name with other words, such as dwelling_id, identifies a row where the file has its name.
    """
    from coco_opt.files.column_roles import unfit_reason

    name = header.name_in_file(header.columns[0])
    words = _key_words(name)
    if any(word in _PERSON_IDS or word.startswith(_PERSONS) for word in words):
        return _is_person_id(name)
    named = any(_is_singular(word, header) for word in words)
    return unfit_reason(name) == "an id" and (not words or named)


def person_columns(header: Header) -> tuple[str, ...]:
    """Return the columns after the first whose names say that they hold ids of persons, such as id_persona or pid."""
    return tuple(column for column in header.columns[1:] if _is_person_id(header.name_in_file(column)))


def may_count(name: str) -> bool:
    """Return whether a column may number the persons of each household anew, such as person_nr."""
    return bool(_COUNTING & set(_plain_words(name)))


def _is_person_id(name: str) -> bool:
    from coco_opt.files.column_roles import unfit_reason

    if not any(word in _PERSON_IDS or word.startswith(_PERSONS) for word in _key_words(name)):
        return False
    return unfit_reason(name) == "an id" or bool(_ID_WORDS & set(_plain_words(name)))


def _names_file(words: frozenset[str], header: Header) -> bool:
    """Return whether words, and no others, name the rows of a file that begins with a bare id."""
    if len(words) != 1 or _key_words(header.name_in_file(header.columns[0])):
        return False
    (word,) = words
    return len(word) >= _SHORTEST and _is_singular(word, header)


def _is_singular(word: str, header: Header) -> bool:
    """Return whether the file's name has a word or its plural: household, households.csv."""
    stems = _plain_words(header.path.stem)
    return any(stem.startswith(word) and len(stem) - len(word) <= _PLURAL for stem in stems)


def _key_words(name: str) -> frozenset[str]:
    """Return the words of a column's name without those for an id."""
    return frozenset(_plain_words(name)) - _ID_WORDS


def _plain_words(name: str) -> list[str]:
    letters = unicodedata.normalize("NFKD", _CAMEL.sub(" ", name))
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return [word.lower() for word in _WORDS.findall(plain)]
