"""A first configuration of a release of tables, from the headers of the user's files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from coco_opt.errors import InputError
from coco_opt.files.proposals import names_an_id
from coco_opt.releases.kind import ColumnNotes, Draft
from coco_opt.topdown.names import Bins

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_FILES = {
    "records": "region_id, one column an attribute, perhaps count: private",
    "hierarchy": "region_id, then levels, root first: public",
}
_LINKED = {
    "records": "group_id, one column an attribute, perhaps count: private",
    "groups": "group_id, region_id: private",
    "hierarchy": "region_id, then levels, root first: public",
}
_KEYS = ("region_id", "group_id", "person_id", "count")
_EXAMPLES = '["a", "b"], ["0..17", "18..64", "65.."] or "0..115"'
_BOUNDS_NOTE = "region, query, answer, lower, upper: public"
_FACILITIES_NOTE = "region_id, one column a type of facility: public"
_FACILITIES = """\
[topdown.facilities]
{attribute:<30}# {left}the attribute some of whose values are these types
# types: what one facility holds, such as {{ least = 5, most = 300 }} persons; left out: 1 person or more
{types}
"""
_BOUNDS = f'# bounds = "bounds.csv"       # {_BOUNDS_NOTE}'
_FURTHER = {"bounds": _BOUNDS_NOTE, "facilities": _FACILITIES_NOTE}
_MOST_CROSSED, _MOST_CELLS = 4, 2_000  # attributes and cells of a first workload's "detail"
_SHARED_NOTE = "of the groups: an attribute of every member, unless it counts or adds up the members"
_SECTION = """\
[topdown]
workload = {workload}
# what you will look at; {crossed} crosses attributes; "detail" is every cell: without it the cells are guesses
# strategy = "workload"       # left out, it is chosen: or workload | identity | optimised, or a list of queries
# shares = ["1/2", "1/2"]     # the queries' parts of a level's budget: a list for all levels, or a list of lists
# structural_zeros = ["age = child & work = yes"]            # what cannot be
# invariants = [{{ query = "total", level = {level} }}]    # exact, not private: needs neighbours = "replace"
# counts = {{ parents = "age = old", children = "age = child" }}
# constraints = [{{ holds = "parents >= children", level = {level}, source = "structural" }}]    # or public | data
# implied = "auto"            # what constraints imply above: auto | bounds | cuts | minimal_schema
estimation = "full"           # estimated, and free to change from here on: full | classic | posterior | bottom_up
rounding = "passes"           # passes (totals, the workload in order, cells) | nearest
microdata = false             # true: also one row a person

[topdown.attributes]          # every value that can occur, in your order, whether it does or not
{attributes}
{facilities}[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# topdown_split = "piqp"
"""


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns fits; records without a count look like regions."""
    if len(columns) < 2 or columns[0] != "region_id":
        return "bounds" if tuple(columns) == ("region", "query", "answer", "lower", "upper") else None
    return "records" if len(columns) > 2 and columns[-1] == "count" else "hierarchy"


def draft_of(files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
    """Return a configuration with the attributes in the records' header; values that are not known are to fill in.

    Ids by their names stand there as comments, and where values of some columns are stated, so do all other columns.
    Raises InputError (bad-option) for ranges that are none.
    """
    notes = notes or ColumnNotes()
    columns = [name for name in files.get("records", ()) if name not in _KEYS]
    unstated = dict.fromkeys(columns if notes.values else (), "no values were stated; state them to count it")
    unfit = {**unstated, **{name: "by its name an id" for name in columns if names_an_id(name)}, **notes.left_out}
    left_out = {name: unfit[name] for name in columns if name in unfit and name not in notes.values}
    names = tuple(name for name in columns if name not in left_out)
    levels = files.get("hierarchy", ())[1:] or ("level",)
    shared = [name for name in files.get("groups", ()) if name not in (*_KEYS, *columns)]
    names += tuple(name for name in shared if name in notes.values)
    offered = [name for name in shared if name not in notes.values and not names_an_id(name)]
    lines = [_attribute_line(name, notes.values.get(name)) for name in names]
    lines += [f"{f'# {_key(name)} = []':<30}# left out: {reason}\n" for name, reason in left_out.items()]
    lines += [f"{f'# {_key(name)} = []':<30}# {_SHARED_NOTE}\n" for name in offered]
    section = _SECTION.format(
        workload=_text(["total", *names, *_detail(names, notes)]),
        crossed=_text(" * ".join(names[:2]) if len(names) > 1 else "sex * age"),
        level=_text(levels[0]),
        attributes="".join(lines),
        facilities=_facilities(files["facilities"][1:], notes) if "facilities" in files else "",
    )
    tables = _LINKED if "groups" in files else _FILES
    return Draft(
        files={**tables, **{key: note for key, note in _FURTHER.items() if key in files}},
        section=section,
        replaced="persons' records may change while their number is public",
        left=_left(names, notes),
        data=() if "bounds" in files else (_BOUNDS,),
        taken=(*(_column_roles(names, left_out) if columns else ()), *_offered(offered)),
        attributes=names,
    )


def _detail(names: Sequence[str], notes: ColumnNotes) -> tuple[str, ...]:
    """Return the query of every cell where several attributes have few cells together, as far as values are known."""
    cells = math.prod(max(len(notes.values.get(name, ())), 1) for name in names)
    return ("detail",) if 1 < len(names) <= _MOST_CROSSED and cells <= _MOST_CELLS else ()


def _attribute_line(name: str, values: Sequence[str] | None) -> str:
    """Return the line of an attribute with its values, as far as they are known."""
    if not values:
        return f"{f'{_key(name)} = []':<30}# fill in, such as {_EXAMPLES}\n"
    problem = ""
    try:
        bins = Bins.of(values)
    except ValueError as error:
        problem = str(error)
    if problem:
        raise InputError("bad-option", f"the values of {name!r}: {problem}")
    numbers = bins is not None and len(values) == 1
    return f"{_key(name)} = {_text(values[0] if numbers else list(values))}\n"


def _facilities(types: Sequence[str], notes: ColumnNotes) -> str:
    """Return the section of facilities by type; the attribute is to fill in unless its values are known."""
    attribute = next((name for name, values in notes.values.items() if set(types) <= set(values)), "")
    types = "".join(f"types.{_key(name)} = {{}}\n" for name in types)
    return _FACILITIES.format(
        attribute=f"attribute = {_text(attribute)}", left="" if attribute else "fill in: ", types=types
    )


def _left(names: Sequence[str], notes: ColumnNotes) -> str:
    """Return what is left to do."""
    if not names:
        return "list every attribute with its values, check epsilon"
    open_lists = [repr(name) for name in names if not notes.values.get(name)]
    if not open_lists:
        return "check epsilon"
    return (
        f"list every value of {', '.join(open_lists)} (or delete the line of a column that you do not count, and its "
        "name in workload), check epsilon"
    )


def _column_roles(names: Sequence[str], left_out: Mapping[str, str]) -> tuple[str, ...]:
    """Return the role assumed for each column of the records."""
    roles = [f"Taken as attributes: {', '.join(map(repr, names))}"] if names else []
    for reason in dict.fromkeys(left_out.values()):
        columns = ", ".join(repr(name) for name, other in left_out.items() if other == reason)
        roles.append(f"Left out of the attributes: {columns} ({reason})")
    return tuple(roles)


def _offered(names: Sequence[str]) -> tuple[str, ...]:
    """Return a line about columns of the groups that could be attributes of their members."""
    columns = ", ".join(map(repr, names))
    return (f"Left as comments: {columns} of the groups, which could be attributes of every member",) if names else ()


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(value: str | list[str]) -> str:
    # JSON strings and lists of strings are valid TOML.
    return json.dumps(value, ensure_ascii=False)
