"""A first configuration of a release of groups, from the headers of the user's files, and the keys that ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.groups.answers import MAX_SIZE, buckets_of, counts_share_of, size_questions, split_of
from coco_opt.groups.queries import with_public_counts
from coco_opt.privacy import Asked
from coco_opt.releases.kind import Draft

_TABLES = {
    "entities": "entity_id, group_id: private",
    "groups": "group_id, region_id: public",
    "hierarchy": "region_id, then levels, root first: public",
}
_SIZES = {"sizes": "level columns root first, then size, groups: private"}
_ROOT = 'root = "all"                  # the table has no level columns: name its one region'
_SECTION = """\
[groups]
max_size = 1000               # asked: public bound on a group's size, chosen without looking at the private table
query = "cumulative"          # asked: sizes | ranks | cumulative, or one a level
# bucket_growth = 0.1         # asked: sums over buckets of 0.1 x size sizes (one a level; see  plan --optimise)
# bucket_edges = [0, 1, 2, 5] # asked: or the sizes at which buckets begin
# rank_above = 50             # asked: or the sizes of groups in order from this one on, counts below it
# group_counts = "private"    # asked: where the groups table is confidential: its numbers of groups get noise too
loss = "l1"                   # estimated, and free to change from here on: l1 | l2
ties = "upper"                # upper | lower | midpoint, for loss l1
consistency = "joint"         # joint | posterior (intervals) | matching (fastest) | convex | bottom_up | none
# intervals = 0.9             # coverage of intervals.parquet, for consistency posterior; 0: none
# unbiased = true             # signed, unbiased counts beside: for those who add regions up
merge = "weighted"            # weighted | average
rounding = "half_up"          # half_up | half_even
variances = "formula"         # formula | bootstrap (slower, merges better), for consistency matching, merge weighted

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
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
    """Return a configuration of three tables, or of counts made elsewhere where they are all there is."""
    counted = "sizes" in files and not all(key in files for key in _TABLES)
    data = (_ROOT,) if counted and len(files["sizes"]) == 2 else ()
    return Draft(
        files=_SIZES if counted else _TABLES,
        section=_SECTION,
        replaced="entities may move between groups while their number is public",
        left="check max_size and epsilon",
        data=data,
    )


def asked_keys(asked: Asked) -> dict[str, Any]:
    """Return the keys of [groups] that ask what a measurement answers, and a method where the default reads it not.

    A level that was not asked may say anything.
    """
    questions = [with_public_counts(one) for one in size_questions(asked)]
    queries = {question.level: question.query for question in questions}
    anything = next(iter(queries.values()), "cumulative")
    levels = range(asked.hierarchy.levels)
    stated = [queries.get(level, anything) for level in levels]
    named = ["cumulative" if one in ("buckets", "split") else one for one in stated]
    keys: dict[str, Any] = {"max_size": asked.facts[MAX_SIZE], "query": named}
    if "buckets" in queries.values():
        buckets = [buckets_of(asked, level) for level in levels]
        keys["bucket_edges"] = [[] if one is None else one.begin.tolist() for one in buckets]
    if "split" in queries.values():
        splits = [split_of(asked, level) for level in levels]
        keys["rank_above"] = [0 if one is None else one.at for one in splits]
    if set(queries.values()) - {"cumulative", "buckets"}:
        keys["consistency"] = "matching"  # the default, joint, reads cumulative counts
    share = counts_share_of(asked)
    if share is not None:
        keys.update(group_counts="private", group_counts_share=str(share))
    return keys
