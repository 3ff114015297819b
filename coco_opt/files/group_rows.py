"""The checks of a table of groups that lie in regions, such as households: group_id, region_id."""

from __future__ import annotations

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.inputs import Input
from coco_opt.files.source import Loaded, names_of

UNKNOWN_REGION = ("unknown-region", "this region is not in the hierarchy")
UNKNOWN_GROUP = ("unknown-group", "this group is not in the groups table")
REGION = "region_id"


def check_groups(table: Loaded, where: str) -> None:
    """Raise InputError unless each row names another group and a region of the relation ``leaves``.

    ``where`` says in words where regions are listed. Codes: empty-file, null-id, space-in-id, control-in-id,
    unknown-region, group-in-two-leaves, duplicate-group.
    """
    faults = column_checks.check_members(table)
    with faults:
        column_checks.check_listed(table, 1, "leaves.region", *UNKNOWN_REGION, where)
    if column_checks.repeats(table, "c0"):
        with faults:
            if rows := column_checks.repeated_rows(table, "c0", "c1", changed=True):
                message = (
                    "this group lies in another leaf in an earlier row. If its id is unique only within a region, join "
                    "region and id to one id in both files, such as 06001-17"
                )
                raise InputError("group-in-two-leaves", message, table.place(rows, 0))
        with faults:
            if rows := column_checks.repeated_rows(table, "c0", "c1"):
                raise InputError("duplicate-group", "this group occurs in an earlier row", table.place(rows, 0))
    faults.check()


def states_regions(members: Input, groups: Input) -> bool:
    """Return whether a table of members of groups states their regions: a column that the groups call alike."""
    names, listed = names_of(members), names_of(groups)
    own, shared = members.called(names).get(REGION, REGION), groups.called(listed).get(REGION, REGION)
    return own in names and own == shared


def check_regions(table: Loaded, column: int, differs: str, source: str, groups: Input) -> None:
    """Raise InputError (region-differs) for the rows that state another region than that of their group.

    An empty entry states none. ``differs`` is the condition on ``source``, the table joined to its groups.
    """
    if rows := table.rows_where(f"{{t}}.c{column} <> '' AND {differs}", source):
        message = (
            f"this region is not that of the row's group in {groups.name}, which counts: correct one of them. A column "
            "that means another region needs another name"
        )
        raise InputError("region-differs", message, table.place(rows, column))
