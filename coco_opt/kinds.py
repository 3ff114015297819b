"""The table of release kinds, found through the entry-point group ``coco_opt.kinds``: a kind is a package and one row.

The built-in rows stand below. A package outside this repository adds rows of its own under the same group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from coco_opt.errors import InputError, MissingPackageError
from coco_opt.plugins import loaded, near, table_of

GROUP = "coco_opt.kinds"
BUILT_IN = "coco_opt"


@dataclass(frozen=True, slots=True)
class KindRow:
    """One row of a table of kinds; describes a kind of release without importing it.

    ``section`` is its section of the configuration, ``target`` is ``"module:VALUE"``, the kind itself
    (``coco_opt.releases.kind.ReleaseKind``).
    """

    name: str
    section: str
    target: str
    summary: str

    def load(self) -> Any:
        """Import and return the kind."""
        return loaded(self.target)


KINDS = (
    KindRow("groups", "groups", "coco_opt.groups.kind:GROUPS", "counts of groups by size (Kuo et al. 2018)"),
    KindRow("tables", "topdown", "coco_opt.topdown.kind:TABLES", "tables of persons (Census TopDown)"),
    KindRow("ranges", "ranges", "coco_opt.ranges.kind:RANGES", "ordered histograms for any range (Hay et al. 2010)"),
)


@cache
def kind_rows() -> tuple[KindRow, ...]:
    """Return every row, built-in first; a third party's table that cannot be loaded is left out with a warning.

    Raises InputError (two-kinds) where two rows share a name or a section, MissingPackageError without metadata.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name != BUILT_IN, point.name))
    if not any(point.name == BUILT_IN for point in points):
        raise MissingPackageError("coco-opt", "the table of release kinds (installation metadata not found)")
    rows: list[KindRow] = []
    for point in points:
        for row in table_of(point, "table of kinds", required=point.name == BUILT_IN):
            if any(row.name == earlier.name or row.section == earlier.section for earlier in rows):
                raise InputError("two-kinds", f"two tables define the release kind {row.name!r}; one is {point.value}")
            rows.append(row)
    return tuple(rows)


def kind_row(name: str) -> KindRow:
    """Return the row of a name; raise InputError (unknown-kind) naming the nearest."""
    rows = {row.name: row for row in kind_rows()}
    if name not in rows:
        raise InputError("unknown-kind", f"no kind of release is called {name!r}{near(name, rows)}")
    return rows[name]
