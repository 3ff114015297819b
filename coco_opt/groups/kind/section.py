"""The groups kind's parts of the configuration: its keys of ``[data]``, and the section ``[groups]``.

A first configuration of a release of groups from the files' headers, and the keys of a measurement's queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import AUTO, DataSection, Section, TableInput
from coco_opt.config.values import KeyedError, choice, estimator_name, level_names, one_or_list, probability
from coco_opt.files.inputs import ENTITIES, GROUPS, HIERARCHY, SIZES, Columns
from coco_opt.groups.estimating.method import VarianceRule
from coco_opt.groups.noisy_measurements import MAX_SIZE, buckets_of, counts_share_of, size_queries, split_of
from coco_opt.groups.queries import Query, with_public_counts
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import MeasurementPlan
from coco_opt.problems.isotonic import TieRule
from coco_opt.releases.kind import ColumnNotes, Draft


class GroupsData(DataSection):
    """Where the input lies: three tables (entities, groups, hierarchy), or one table of counts (sizes)."""

    hidden: ClassVar[tuple[str, ...]] = ("entities", "sizes")
    tables: ClassVar[tuple[Columns, ...]] = (ENTITIES, GROUPS, HIERARCHY, SIZES)
    chains: ClassVar[tuple[tuple[tuple[str, str], ...], ...]] = (
        (("entities", "entity_id"), ("groups", "group_id"), ("hierarchy", "region_id")),
    )

    entities: TableInput | None = None
    """One row an entity: entity_id, group_id. Private."""
    groups: TableInput | None = None
    """One row a group: group_id, region_id. Public."""
    hierarchy: TableInput | None = None
    """One row a leaf region: region_id, then one column a level, root first. Public."""
    levels: Annotated[tuple[str, ...] | None, PlainValidator(level_names)] = None
    """The columns of the hierarchy that are levels, root first; others are ignored. Unset: every column is a level."""
    sizes: TableInput | None = None
    """A table of counts, in place of the three tables: level columns root first, size, groups. Private."""
    root: str | None = None
    """The name of the region above all others, where no column has it, of a hierarchy or of `sizes`."""

    @model_validator(mode="after")
    def _tables_or_sizes(self) -> GroupsData:
        tables = {"entities": self.entities, "groups": self.groups, "hierarchy": self.hierarchy}
        missing = [name for name, path in tables.items() if path is None]
        if self.sizes is None and missing:
            raise ValueError(f"{', '.join(missing)} missing: give entities, groups and hierarchy, or sizes alone")
        if self.sizes is not None and len(missing) < len(tables):
            raise ValueError("sizes stands alone: remove entities, groups and hierarchy")
        if self.sizes is not None and self.levels is not None:
            raise KeyedError("levels", "names levels of a hierarchy, and sizes stands alone: remove it")
        return self


Starts = tuple[int, ...]
LossChoice = Literal["auto", "l1", "l2"]
GroupCounts = Literal["public", "private"]


def _growth(value: object) -> str | float | tuple[float, ...]:
    if value == AUTO:
        return AUTO
    if isinstance(value, (list, tuple)) and value:
        return tuple(_single_growth(entry) for entry in value)
    return _single_growth(value)


def _single_growth(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError("must be a number of at least 0 (0: every size alone), or a list of them, one a level")
    return float(value)


def _rank_starts(value: object) -> int | tuple[int, ...]:
    every = list(value) if isinstance(value, (list, tuple)) and value else [value]
    sizes = [entry for entry in every if type(entry) is int and entry >= 0]
    if len(sizes) < len(every):
        raise ValueError("must be a size of at least 1 (0: no ranks), or a list of them, one a level")
    return tuple(sizes) if isinstance(value, (list, tuple)) else sizes[0]


def _edges(value: object) -> Starts | tuple[Starts, ...]:
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, (list, tuple)) for entry in value):
        return tuple(_starts(entry) if len(entry) else () for entry in value)
    return _starts(value)


def _starts(value: object) -> Starts:
    integers = isinstance(value, (list, tuple)) and all(type(entry) is int for entry in value)
    starts: Starts = tuple(value) if isinstance(value, (list, tuple)) and integers else ()
    if not starts or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise ValueError("must be a list of sizes at which buckets begin, increasing from 0, or one such list a level")
    return starts


_COUNTS_SHARE = Fraction(1, 10)


class GroupsSection(Section):
    """The queries (``max_size``, ``query``, buckets) and how they are estimated (the rest, free to change).

    ``bucket_growth`` c sums cumulative counts over buckets of max(1, c size) sizes, ``bucket_edges`` over the listed
    ones; an empty list in ``bucket_edges`` is a level of single sizes. ``intervals`` unset: 0.9 where the method has
    any.
    """

    chooses_split: ClassVar[bool] = True

    max_size: Annotated[int, Field(ge=1, le=10**9)]
    """Measured: a public bound K; larger groups count as this size."""
    query: Annotated[Query | tuple[Query, ...], one_or_list(Query)] = "cumulative"
    """Measured: groups of each size, sizes in order, or groups up to each size; one for all levels or one a level."""
    bucket_growth: Annotated[Literal["auto"] | float | tuple[float, ...], PlainValidator(_growth)] = AUTO
    """Measured: cumulative counts are summed over buckets of max(1, c size) sizes; 0: every size alone."""
    bucket_edges: Annotated[Starts | tuple[Starts, ...] | None, PlainValidator(_edges)] = None
    """Measured: the sizes at which buckets begin, in place of `bucket_growth`; one list, or one a level."""
    rank_above: Annotated[int | tuple[int, ...], PlainValidator(_rank_starts)] = 0
    """Measured: cumulative counts of sizes below this, and the sizes of all groups in order from it on; 0: no ranks."""
    group_counts: Annotated[GroupCounts, choice(GroupCounts)] = "public"
    """Measured: "private" for a confidential table of groups: their numbers get noise too, and are made to sum."""
    group_counts_share: Annotated[Fraction | None, PlainValidator(probability)] = None
    """Measured: the part of each level's budget that private numbers of groups get; unset: 1/10."""
    loss: Annotated[LossChoice | tuple[LossChoice, ...], one_or_list(LossChoice)] = AUTO
    """The loss of the fit, one for all levels or one a level; "auto": that of the noise, "l2" where it is Gaussian."""
    ties: Annotated[TieRule, choice(TieRule)] = "upper"
    """Which of several optima of absolute values is taken."""
    consistency: Annotated[str, estimator_name("groups", AUTO)] = AUTO
    """How regions are made to agree; "auto": the posterior where it can read the queries and fits `[auto] time`."""
    merge: Annotated[Merge, choice(Merge)] = "weighted"
    """"matching" only: how the two sizes of matched groups are merged."""
    rounding: Annotated[Rounding, choice(Rounding)] = "half_up"
    """"matching" only: how merged sizes are rounded to integers."""
    variances: Annotated[VarianceRule, choice(VarianceRule)] = "formula"
    """What weighs the sizes that "matching" merges: a formula, or redrawn noise."""
    intervals: Annotated[float | None, Field(ge=0.0, lt=1.0)] = None
    """"posterior" only: the coverage of intervals.parquet, 0 for none; unset: 0.9."""
    unbiased: bool = False
    """Whether to write unbiased.parquet: signed, unbiased counts with exact variances, which add up over regions."""

    @property
    def counts_share(self) -> Fraction | None:
        """Return the part of each level's budget that measures numbers of groups, None where they are public."""
        return (self.group_counts_share or _COUNTS_SHARE) if self.group_counts == "private" else None

    @property
    def hides(self) -> tuple[str, ...]:
        """Return the keys of [data] that are private by this section."""
        return ("groups",) if self.group_counts == "private" else ()

    @model_validator(mode="after")
    def _private_counts(self) -> GroupsSection:
        queries = (self.query,) if isinstance(self.query, str) else self.query
        if self.group_counts == "public" and self.group_counts_share is not None:
            raise KeyedError("group_counts_share", 'is read where group_counts = "private" alone: remove it')
        splits = (self.rank_above,) if isinstance(self.rank_above, int) else self.rank_above
        if any(start >= self.max_size for start in splits):
            raise KeyedError("rank_above", f"must lie below max_size = {self.max_size}: all ranks are alike there")
        if self.group_counts == "private" and any(splits):
            raise KeyedError("rank_above", "ranks are as many as groups: leave it out with private counts")
        if self.group_counts == "private" and "ranks" in queries:
            raise KeyedError("query", 'ranks are as many as groups: use "cumulative" or "sizes" with private counts')
        return self

    @model_validator(mode="after")
    def _buckets(self) -> GroupsSection:
        if self.bucket_edges is None:
            return self
        if self.bucket_growth not in (AUTO, 0.0):
            raise KeyedError("bucket_edges", "give either bucket_edges or bucket_growth, not both")
        lists = self.bucket_edges if isinstance(self.bucket_edges[0], tuple) else (self.bucket_edges,)
        if any(starts and starts[-1] >= self.max_size for starts in lists if isinstance(starts, tuple)):
            raise KeyedError("bucket_edges", f"must lie below max_size = {self.max_size}: the largest size is public")
        return self


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


def draft_of(files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
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
