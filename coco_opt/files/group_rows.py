"""The checks of a table of groups that lie in regions, such as households: group_id, region_id."""

from __future__ import annotations

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.source import Loaded

UNKNOWN_REGION = ("unknown-region", "this region is not in the hierarchy")
UNKNOWN_GROUP = ("unknown-group", "this group is not in the groups table")


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
                message = "this group lies in another leaf in an earlier row"
                raise InputError("group-in-two-leaves", message, table.place(rows, 0))
        with faults:
            if rows := column_checks.repeated_rows(table, "c0", "c1"):
                raise InputError("duplicate-group", "this group occurs in an earlier row", table.place(rows, 0))
    faults.check()
