"""The whole file: what it shares, and the one section that says what is released."""

from __future__ import annotations

from pydantic import Field, model_validator

from coco_opt.config.sections import (
    DataConfig,
    GroupsConfig,
    OutputConfig,
    PrivacyConfig,
    Section,
    SolversConfig,
)
from coco_opt.config.topdown import TopdownConfig
from coco_opt.config.values import KeyedError


class FileConfig(Section):
    """A configuration file: ``groups`` for counts of groups by size, or ``topdown`` for tables of persons."""

    data: DataConfig
    privacy: PrivacyConfig
    groups: GroupsConfig | None = None
    topdown: TopdownConfig | None = None
    solvers: SolversConfig = Field(default_factory=dict, validate_default=True)
    output: OutputConfig = Field(default_factory=dict, validate_default=True)

    @model_validator(mode="after")
    def _one_release(self) -> FileConfig:
        if self.groups is not None and self.topdown is not None:
            raise KeyedError("topdown", "a file releases groups or tables, not both: remove [groups] or [topdown]")
        if self.groups is None and self.topdown is None:
            raise KeyedError("groups", "this section is required (or [topdown], for tables of persons)")
        if self.topdown is not None and self.data.records is None:
            raise KeyedError("data.records", "is required by [topdown]: the private table of persons")
        if self.groups is not None and self.data.records is not None:
            raise KeyedError("data.records", "belongs to [topdown]: [groups] reads entities, groups and hierarchy")
        return self
