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
_PERSON_IDS = {"pid", "ssn", "bsn", "nin"}
_PERSONS = ("pers", "pess", "indiv", "respond", "einwohner", "inwoner", "resident", "habitant", "abitant")
_PLURAL = 2  # letters that a plural adds at most: municipio, municipios; Gemeinde, Gemeinden; hogar, hogares
_SHORTEST = 3
_SEVERAL = 2


@dataclass(frozen=True, eq=False, slots=True)
class Header:
    """One of the user's files, and the names of its columns; ``own`` is what renamed ones are called in the file."""

    path: Path
    columns: tuple[str, ...]
    own: Mapping[str, str] = field(default_factory=dict)

    def there(self, column: str) -> str:
        """Return what a column is called in the file."""
        return self.own.get(column, column)

    def here(self, column: str) -> str:
        """Return the name here of a column of the file."""
        return next((name for name, there in self.own.items() if there == column), column)

    def renamed(self, column: str, name: str) -> Header:
        """Return the header with another name for one of its columns."""
        columns = tuple(name if each == column else each for each in self.columns)
        return replace(self, columns=columns, own={**self.own, name: self.there(column)})


def with_stated_names(headers: Sequence[Header], stated: Mapping[str, Sequence[str]]) -> list[Header]:
    """Return headers with the user's names of columns in place of those in the files. Raises InputError bad-option."""
    every = {column for header in headers for column in header.columns}
    for own, names in stated.items():
        for name in names:
            if name not in every:
                raise InputError("bad-option", f"--columns {own}={name}: none of the files has a column {name!r}")
    renamed = list(headers)
    for own, names in stated.items():
        for place, header in enumerate(renamed):
            column = next((name for name in names if name in header.columns), None)
            if column is not None and own not in header.columns:
                renamed[place] = header.renamed(column, own)
    return renamed


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
        words, other_words = _key_words(header.there(column)), _key_words(other.there(name))
        named = _names_file(words, other) or _names_file(other_words, header)
        if (words and words == other_words) or (named and not (words and other_words)):
            yield column, name


def identifies_a_row(header: Header) -> bool:
    """Return whether a table of persons begins with the person's own id, by its name: id, pid, PersNr, patient_id.

    A name with other words, such as dwelling_id, identifies a row where the file has its name.
    """
    from coco_opt.files.column_roles import unfit_reason

    name = header.there(header.columns[0])
    words = _key_words(name)
    if any(word in _PERSON_IDS or word.startswith(_PERSONS) for word in words):
        return unfit_reason(name) == "an id" or bool(_ID_WORDS & set(_plain_words(name)))
    stems = _plain_words(header.path.stem)
    named = any(stem.startswith(word) and len(stem) - len(word) <= _PLURAL for word in words for stem in stems)
    return unfit_reason(name) == "an id" and (not words or named)


def _names_file(words: frozenset[str], header: Header) -> bool:
    """Return whether words, and no others, name the rows of a file that begins with a bare id."""
    if len(words) != 1 or _key_words(header.there(header.columns[0])):
        return False
    (word,) = words
    stems = _plain_words(header.path.stem)
    return any(len(word) >= _SHORTEST and stem.startswith(word) and len(stem) - len(word) <= _PLURAL for stem in stems)


def _key_words(name: str) -> frozenset[str]:
    """Return the words of a column's name without those for an id."""
    return frozenset(_plain_words(name)) - _ID_WORDS


def _plain_words(name: str) -> list[str]:
    letters = unicodedata.normalize("NFKD", _CAMEL.sub(" ", name))
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return [word.lower() for word in _WORDS.findall(plain)]
