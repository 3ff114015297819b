"""What ids and names may hold: two that look alike would be two persons, two regions or two values."""

from __future__ import annotations

import re
from typing import TypeGuard

_PLANE_ENDS = " ".join(f"{plane}FFFE-{plane}FFFF" for plane in "123456789ABCDEF")
_HIDDEN_RANGES = (
    "0-1F 7F-A0 AD 34F 600-605 61C 6DD 70F 890-891 8E2 115F-1160 1680 17B4-17B5 180B-180F 2000-200F 2028-202F "
    "205F-206F 2800 2D7F 3000 3164 D800-DFFF FDD0-FDEF FE00-FE0F FEFF FFA0 FFF0-FFFB FFFE-FFFF 1107F 110BD 110CD "
    f"13430-1343F 13441-13442 16FE4 1BCA0-1BCA3 1D159 1D173-1D17A E0000-E0FFF {_PLANE_ENDS} 10FFFE-10FFFF"
)
"""Code points in hexadecimal, of Unicode 16.0: those with the property Default_Ignorable_Code_Point or the category Cc,
Cf, Cs, Zl, Zp or Zs (but for the space), noncharacters, and the letters, marks and symbols that are drawn as a blank or
not at all. They are listed here because Python, DuckDB and Arrow know different versions of Unicode."""

_ENDS = [code_points.partition("-")[::2] for code_points in _HIDDEN_RANGES.split()]
HIDDEN = "[" + "".join(f"\\x{{{first}}}-\\x{{{last or first}}}" for first, last in _ENDS) + "]"
"""The pattern of a hidden character, for DuckDB and Arrow."""

_HIDDEN = re.compile("[" + "".join(f"\\U{first:0>8}-\\U{last or first:0>8}" for first, last in _ENDS) + "]")


def is_plain_name(value: object) -> TypeGuard[str]:
    """Return whether a value is a text of characters that can be seen, perhaps with spaces between them."""
    return isinstance(value, str) and value != "" and value == value.strip() and _HIDDEN.search(value) is None
