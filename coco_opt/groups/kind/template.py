"""A first configuration of a release of groups from the files' headers, and the keys of a measurement's queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.files.columns import SIZES
from coco_opt.groups.noisy_measurements import MAX_SIZE, buckets_of, counts_share_of, size_queries, split_of
from coco_opt.groups.queries import with_public_counts
from coco_opt.privacy import MeasurementPlan
from coco_opt.releases.kind import Draft

_TABLES = {
    "entities": "entity_id, group_id: private",
    "groups": "group_id, region_id: public",
    "hierarchy": "region_id, then levels, root first: public",
}
_SIZES = {"sizes": "level columns root first, then size, groups: private"}
_ROOT = 'root = "all"                  # the table has no level columns: name its one region'
_ROOT_ABOVE = '# root = "all"                # if the first level has several names: the name of the region above them'
_SECTION = """\
[groups]
max_size = 1000               # measured: public bound on a group's size, chosen without looking at the private table
# All other keys may be left out: they are chosen for the least error. Those that you set stay as they are.
# query = "cumulative"        # measured: sizes | ranks | cumulative, or one a level
# bucket_growth = 0.1         # measured: sums over buckets of 0.1 x size sizes, or one growth a level; 0: single sizes
# bucket_edges = [0, 1, 2, 5] # measured: or the sizes at which buckets begin
# rank_above = 50             # measured: or the sizes of groups in order from this size on, counts below it
# group_counts = "private"    # measured: where the groups table is confidential: its numbers of groups get noise too
# consistency = "posterior"   # free to change from here on: posterior | joint | matching | convex | bottom_up | none
# intervals = 0.9             # coverage of intervals.parquet, for consistency posterior; 0: none
# unbiased = true             # signed, unbiased counts too: for those who add regions up
# loss = "l1"                 # l1 | l2, for consistency joint, matching, bottom_up and none; unset: that of the noise
# ties = "upper"              # upper | lower | midpoint, for loss l1
# merge = "weighted"          # weighted | average, for consistency matching
# rounding = "half_up"        # half_up | half_even, for consistency matching
# variances = "formula"       # formula | bootstrap (slower, merges better), for consistency matching, merge weighted

# [auto]                      # how the keys that are left out are chosen
# aim = "balanced"            # balanced: all levels alike | leaves | root, or one weight a level
# look = "1/50"               # the part of the budget for a first look at the data; "0": from public numbers alone

[solvers]                     # the default is the fast exact solver; see  coco-opt solvers
# joint_l1 = "highs"           # the problem of the consistency and loss above; a release lists those it solved
"""


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns would fill."""
    names = set(columns)
    if names >= {"entity_id", "group_id"}:
        return "entities"
    if names >= {"group_id", "region_id"}:
        return "groups"
    if tuple(columns[-2:]) == ("size", "groups"):
        return "sizes"
    counted = len(columns) > 2 and columns[-1] == "count"  # persons' records
    return "hierarchy" if len(columns) > 1 and columns[0] == "region_id" and not counted else None


def draft_of(files: Mapping[str, Sequence[str]]) -> Draft:
    """Return a configuration of three tables, or of a table of counts where there are no others."""
    counted = "sizes" in files and not all(key in files for key in _TABLES)
    data = (_ROOT if len(files["sizes"]) == len(SIZES.last) else _ROOT_ABOVE,) if counted else ()
    return Draft(
        files=_SIZES if counted else _TABLES,
        section=_SECTION,
        replaced="entities may move between groups while their number is public",
        left="check max_size and epsilon",
        data=data,
    )


def query_keys(measurement_plan: MeasurementPlan) -> dict[str, Any]:
    """Return the keys of [groups] for a measurement's queries, and a method where the default cannot read them.

    A level that was not measured may state any query.
    """
    level_queries = [with_public_counts(query) for query in size_queries(measurement_plan)]
    queries = {level_query.level: level_query.name for level_query in level_queries}
    anything = next(iter(queries.values()), "cumulative")
    levels = range(measurement_plan.hierarchy.levels)
    stated = [queries.get(level, anything) for level in levels]
    named = ["cumulative" if query in ("buckets", "split") else query for query in stated]
    keys: dict[str, Any] = {"max_size": measurement_plan.parameters[MAX_SIZE], "query": named}
    if "buckets" in queries.values():
        buckets = [buckets_of(measurement_plan, level) for level in levels]
        keys["bucket_edges"] = [[] if scheme is None else scheme.begin.tolist() for scheme in buckets]
    else:
        keys["bucket_growth"] = 0.0
    if "split" in queries.values():
        splits = [split_of(measurement_plan, level) for level in levels]
        keys["rank_above"] = [0 if split is None else split.at for split in splits]
    share = counts_share_of(measurement_plan)
    if share is not None:
        keys.update(group_counts="private", group_counts_share=str(share))
    return keys
