"""The table of release kinds, found through the entry-point group ``coco_opt.kinds``: a kind is a package and one row.

The built-in rows stand below. A package outside this repository adds rows of its own under the same group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any

from coco_opt.errors import InputError
from coco_opt.plugins import all_rows, loaded, near

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
    return all_rows(
        GROUP, BUILT_IN, "release kind", partial(InputError, "two-kinds"), (attrgetter("name"), attrgetter("section"))
    )


def kind_row(name: str) -> KindRow:
    """Return the row of a name; raise InputError (unknown-kind) naming the nearest."""
    rows = {row.name: row for row in kind_rows()}
    if name not in rows:
        raise InputError("unknown-kind", f"no kind of release is called {name!r}{near(name, rows)}")
    return rows[name]
