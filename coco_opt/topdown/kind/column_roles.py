"""What a column of a table of persons holds, by its name alone: an id, a free text, a number of many values."""

from __future__ import annotations

import re

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[^\W\d_]+")
_ID = re.compile(
    r"(^|[_ .-])(id|nr|no|num|number|key|uuid|guid)$|^(pid|hid|hhid|ssn|nin|serial)$|[^\W\d_]{3}nr$|"
    r"(person|pers|household|house|home|record|case|respondent|member|individual|serial|haushalts?|fall)(id|no|num)$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Nr|No)$")


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_GROUPED = _listed(
    """
    group grouped class band bracket range category cat code type status level decile quintile
    gruppe klasse kategorie art stufe groupe classe tranche
    """
)
_TEXT = _listed(
    """
    name names firstname lastname surname forename address street email mail phone telephone mobile comment comments
    remark remarks note notes text description url website
    vorname nachname adresse strasse straße bemerkung bemerkungen anmerkung kommentar notiz telefon
    nom prenom prénom rue commentaire remarque nombre apellido direccion comentario calle
    """
)
_NUMBER = _listed(
    """
    income incomes earnings wage wages salary rent price amount value turnover revenue balance weight height bmi
    latitude longitude lat lon lng date birthdate birthday dob timestamp datetime
    einkommen lohn gehalt miete betrag gewicht datum geburtsdatum geburtstag
    revenu salaire loyer montant poids ingresos salario fecha
    """
)


def unfit_reason(name: str) -> str:
    """Return why a column is no attribute by its name, "" where nothing says so; "income group" is one, "income" none.

    The values of a private table are not read for this.
    """
    if _ID.search(name) or _CAMEL_ID.search(name):
        return "an id"
    words = {word.lower() for word in _WORDS.findall(_CAMEL.sub(" ", name))}
    if words & _GROUPED:
        return ""
    if words & _TEXT:
        return "a free text"
    return "a number or date of many values" if words & _NUMBER else ""


def is_age(name: str) -> bool:
    """Return whether a column holds ages by its name."""
    words = {word.lower() for word in _WORDS.findall(_CAMEL.sub(" ", name))}
    return bool(words & {"age", "ages", "alter", "edad"}) and not words & _GROUPED
