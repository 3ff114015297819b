"""A checked configuration as one immutable value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from coco_opt.config.sections import (
    DataConfig,
    Estimator,
    GroupsConfig,
    Loss,
    OutputConfig,
    PrivacyConfig,
    SolversConfig,
)
from coco_opt.config.topdown import TopdownConfig
from coco_opt.config.values import SolverChoice
from coco_opt.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration; ``name`` is the stem of its ``file``, if it has one, and names the release."""

    name: str
    data: DataConfig
    privacy: PrivacyConfig
    groups: GroupsConfig
    solvers: SolversConfig
    output: OutputConfig
    file: str | None = None

    def budget_shares(self, levels: int) -> tuple[Fraction, ...]:
        """Return each level's share of the budget, root first, summing to 1; raise ConfigError if they cannot.

        Bottom-up estimates only the leaves, so it spends everything there.
        """
        leaves_only = (Fraction(0),) * (levels - 1) + (Fraction(1),)
        if self.privacy.split == "uniform":
            return leaves_only if self.groups.consistency == "bottom_up" else (Fraction(1, levels),) * levels
        shares = self._per_level(self.privacy.split, levels, "privacy.split")
        if self.groups.consistency == "bottom_up" and shares != leaves_only:
            raise ConfigError("privacy.split", "bottom_up measures only the leaves: give them the share 1", self.file)
        if self.groups.consistency != "bottom_up" and min(shares) == 0:
            raise ConfigError("privacy.split", "every level needs a share greater than zero", self.file)
        return shares

    def estimators(self, levels: int) -> tuple[Estimator, ...]:
        """Return the estimator of each level, root first; raise ConfigError on a list of another length."""
        value = self.groups.estimator
        return (value,) * levels if isinstance(value, str) else self._per_level(value, levels, "groups.estimator")

    def losses(self, levels: int) -> tuple[Loss, ...]:
        """Return the loss of each level, root first; raise ConfigError on a list of another length."""
        value = self.groups.loss
        return (value,) * levels if isinstance(value, str) else self._per_level(value, levels, "groups.loss")

    def _per_level(self, values: tuple[T, ...], levels: int, key: str) -> tuple[T, ...]:
        if len(values) != levels:
            message = f"has {len(values)} entries, but the hierarchy has {levels} levels"
            raise ConfigError(key, message, self.file)
        return values

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values with defaults filled in; paths become bare file names."""
        return _plain_sections(self, "groups")


@dataclass(frozen=True, slots=True)
class TablesConfig:
    """A checked configuration of a release of tables of persons; fields as those of ``Config``."""

    name: str
    data: DataConfig
    privacy: PrivacyConfig
    topdown: TopdownConfig
    solvers: SolversConfig
    output: OutputConfig
    file: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values with defaults filled in; paths become bare file names."""
        return _plain_sections(self, "topdown")


def _plain_sections(config: Config | TablesConfig, what: str) -> dict[str, Any]:
    names = ("data", "privacy", what, "solvers", "output")
    return {name: _plain_section(getattr(config, name)) for name in names}


def _plain_section(section: BaseModel) -> dict[str, Any]:
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    convert: dict[type, Callable[[Any], Any]] = {
        Path: lambda path: path.name,
        Fraction: str,
        SolverChoice: lambda choice: {"name": choice.name, **choice.options},
        tuple: lambda entries: [_plain(entry) for entry in entries],
        dict: lambda entries: {key: _plain(entry) for key, entry in entries.items()},
        BaseModel: _plain_section,
    }
    for kind, function in convert.items():
        if isinstance(value, kind):
            return function(value)
    return value
