"""Which kinds of release the files of ``init`` fit, and the refusal of files that fit none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from coco_opt.cli.column_names import Header
from coco_opt.cli.file_roles import Candidate, completed_without, shares_no_column
from coco_opt.errors import InputError, Place

if TYPE_CHECKING:
    from coco_opt.releases.kind import AnyKind

UNLINKED = (
    "shares no column with the other files. Where a key has several names, list them, such as "
    "--columns group_id=household,household_id or --columns region_id=area,code"
)
_TOGETHER = "coco-opt init FILE FILE FILE"
_OTHER_NAMES = "if a column has another name in your file, say which, such as --columns value=NAME"


def possible_kinds(name: str | None, named: Mapping[str, Header]) -> list[AnyKind]:
    """Return the possible kinds: the kind with the name, or all whose [data] has the named keys."""
    from coco_opt.kinds import kind_row, kind_rows

    kinds: list[AnyKind] = [row.load() for row in (kind_rows() if name is None else (kind_row(name),))]
    matching = [kind for kind in kinds if set(named) <= set(kind.data_model.model_fields)]
    if not matching:
        keys = "; ".join(f"{kind.name}: {', '.join(kind.draft({}).files)}" for kind in kinds)
        raise InputError("bad-option", f"no kind of release has [data] with {', '.join(named)}: the keys are {keys}")
    return matching


def check_named(chosen: Candidate, named: Mapping[str, Header]) -> None:
    """Refuse a file named by --data for which the configuration has no line."""
    keys = chosen.draft().files
    for key, header in named.items():
        if key not in keys:
            message = f"--data {key}={header.path}: init writes no line for it next to {', '.join(keys)}"
            raise InputError("bad-option", message)


def check_fit(chosen: Candidate, kinds: Sequence[AnyKind], headers: Sequence[Header], *, strict: bool) -> None:
    """Refuse several files that are no release together, before anything is written, and say which file is too many."""
    unused = [header for header in headers if not chosen.uses(header)]
    if not unused or not chosen.missing or len(headers) == 1:
        return
    for header in unused:
        if shares_no_column(header, headers):
            named = "" if strict else f"; or name the files that belong together: {_TOGETHER}"
            raise InputError("no-header", f"{UNLINKED}{named}", Place(str(header.path)))
    if many := completed_without(kinds, headers):
        first, *others = (header.path for header in many)
        either = f", or {' or '.join(path.name for path in others)} is" if others else ""
        message = (
            f"is one file too many{either}: the others fit together. Leave out that file here. If it lists facilities "
            "or bounds, name it in the written config:  coco-opt keys data  lists the keys"
        )
        raise InputError("two-tables", message, Place(str(first)))
    if strict:
        return  # a file of no use is named by its header
    message = f"and the other files in this folder fit in no single way: name those to use, as in  {_TOGETHER}"
    raise InputError("two-tables", message, Place(str(unused[0].path)))


def check_left(chosen: Candidate, kinds: Sequence[AnyKind], headers: Sequence[Header], *, strict: bool) -> None:
    """Refuse unused files: all of them with ``strict``, else those that some release could use."""
    used = {header.path.resolve() for header in chosen.files.values() if chosen.uses(header)}
    for header in headers:
        if header.path.resolve() in used:
            continue
        keys = [key for key in (kind.file_key(header.columns) for kind in kinds) if key is not None]
        if not keys and strict:
            if shares_no_column(header, headers):
                raise InputError("no-header", UNLINKED, Place(str(header.path)))
            message = f"has none of the headers {_headers(kinds)}; {_OTHER_NAMES}"
            raise InputError("no-header", message, Place(str(header.path)))
        if keys:
            others = ", ".join(chosen.draft().files)
            message = f"is a table of {keys[0]}, which does not go with {others}: name the files to use"
            raise InputError("two-tables", message, Place(str(header.path)))


def _headers(kinds: Sequence[AnyKind]) -> str:
    """Return what tables of all kinds have as columns, in each form that a table may have."""
    forms = [(kind, form) for kind in kinds for form in ({}, *({key: ()} for key in kind.data_model.model_fields))]
    return " | ".join(dict.fromkeys(note for kind, form in forms for note in kind.draft(form).files.values()))
