"""What a column of a table of persons holds, by its English name alone: an id, a free text, a number of many values.

A name that is not recognised is proposed as an attribute, whose values the user lists, or whose line the user deletes.
"""

from __future__ import annotations

import re

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[^\W\d_]+")
_ID = re.compile(
    r"^(id|ident)[_ .-]|(^|[_ .-])(id|nr|no|num|number|key|uuid|guid)$|^(pid|hid|hhid|ssn|nin|bsn|serial)$|"
    r"[^\W\d_]{3}(nr|nummer)$|(person|household|house|home|record|case|respondent|member|individual)(id|no|num)$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Nr|No)$")


def _listed(words: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(words))


_GROUPED = _listed("group grouped class band bracket range category cat code type status level decile quintile")
_TEXT = _listed(
    """
    name names firstname lastname surname forename address street email mail phone telephone mobile comment comments
    remark remarks note notes text description url website
    """
)
_NUMBER = _listed(
    """
    income incomes earnings wage wages salary rent price amount value turnover revenue balance weight height bmi
    latitude longitude lat lon lng date birthdate birthday dob timestamp datetime time
    """
)
_PLACE = _listed("place country region city")


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(_CAMEL.sub(" ", name))}


def unfit_reason(name: str) -> str:
    """Return why a column is no attribute by its name, "" where nothing says so; "income group" is one, "income" none.

    The values of a private table are not read for this.
    """
    if _ID.search(name) or _CAMEL_ID.search(name):
        return "an id"
    words = _words(name)
    if words & _GROUPED:
        return ""
    if words & _TEXT:
        return "a free text"
    return "a number or date of many values" if words & _NUMBER and not words & _PLACE else ""


def is_age(name: str) -> bool:
    """Return whether a column holds ages by its name."""
    words = _words(name)
    return bool(words & {"age", "ages"}) and not words & _GROUPED
