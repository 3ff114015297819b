"""The groups kind's parts of the configuration: its keys of ``[data]``, and the section ``[groups]``."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import AUTO, DataSection, Section, TableInput
from coco_opt.config.values import KeyedError, choice, estimator_name, level_names, one_or_list, probability
from coco_opt.files.columns import ENTITIES, GROUPS, HIERARCHY, SIZES, Columns
from coco_opt.groups.estimating.method import VarianceRule
from coco_opt.groups.queries import Query
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.problems.isotonic import TieRule


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
