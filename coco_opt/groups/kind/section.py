"""The groups kind's parts of the configuration: its keys of ``[data]``, and the section ``[groups]``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from coco_opt.config.sections import FilePath, Section
from coco_opt.config.values import KeyedError, choice, one_or_list
from coco_opt.groups.answers import Loss
from coco_opt.groups.estimated.estimate import Consistency, VarianceRule
from coco_opt.groups.queries import Query
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.problems.isotonic import TieRule


class GroupsData(Section):
    """Where the input lies: three tables (entities, groups, hierarchy), or one table of counts (sizes)."""

    hidden: ClassVar[tuple[str, ...]] = ("entities", "sizes")

    entities: FilePath | None = None
    groups: FilePath | None = None
    hierarchy: FilePath | None = None
    sizes: FilePath | None = None
    root: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> GroupsData:
        tables = {"entities": self.entities, "groups": self.groups, "hierarchy": self.hierarchy}
        missing = [name for name, path in tables.items() if path is None]
        if self.sizes is None and missing:
            raise ValueError(f"{', '.join(missing)} missing: give entities, groups and hierarchy, or sizes alone")
        if self.sizes is not None and len(missing) < len(tables):
            raise ValueError("sizes stands alone: remove entities, groups and hierarchy")
        if self.root is not None and self.sizes is None:
            raise KeyedError("root", "names the one region of a table of sizes without levels")
        return self


class GroupsSection(Section):
    """What is asked (``max_size``, ``query``) and how it is estimated (the rest, free to change)."""

    max_size: Annotated[int, Field(ge=1, le=10**9)]
    query: Annotated[Query | tuple[Query, ...], one_or_list(Query)] = "cumulative"
    loss: Annotated[Loss | tuple[Loss, ...], one_or_list(Loss)] = "l1"
    ties: Annotated[TieRule, choice(TieRule)] = "upper"
    consistency: Annotated[Consistency, choice(Consistency)] = "matching"
    merge: Annotated[Merge, choice(Merge)] = "weighted"
    rounding: Annotated[Rounding, choice(Rounding)] = "half_up"
    variances: Annotated[VarianceRule, choice(VarianceRule)] = "formula"
