"""A checked configuration as one immutable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from coco_opt.config.sections import (
    AUTO,
    AutoSection,
    EngineConfig,
    OutputConfig,
    PrivacyConfig,
    Section,
    SolversConfig,
)
from coco_opt.config.values import SolverChoice
from coco_opt.errors import ConfigError
from coco_opt.files.inputs import Frame
from coco_opt.privacy.cost import Cost

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration, from ``configure``, ``load_config`` or ``parse_config``.

    Attributes
    ----------
    name : str
        The name of the release: the stem of its file, if it has one.
    kind : str
        The kind of release: "groups", "tables" or "ranges", or a kind that another package adds.
    section : str
        The kind's section of the file, such as "groups".
    data : model
        The values of ``[data]``.
    method : model
        The values of the kind's own section.
    privacy : PrivacyConfig
        The values of ``[privacy]``.
    solvers : SolversConfig
        The values of ``[solvers]``.
    engine : EngineConfig
        The values of ``[engine]``.
    output : OutputConfig
        The values of ``[output]``.
    auto : AutoSection
        The values of ``[auto]``.
    file : str or None
        The file it was read from.
    """

    name: str
    kind: str
    section: str
    data: Any
    privacy: PrivacyConfig
    method: Any
    solvers: SolversConfig
    engine: EngineConfig
    output: OutputConfig
    auto: AutoSection = field(default_factory=AutoSection)
    file: str | None = None

    def error(self, key: str, message: str) -> ConfigError:
        """Return the error of a key of this configuration, ``section.key``."""
        return ConfigError(key, message, self.file)

    def explicit_keys(self, section: str) -> dict[str, Any]:
        """Return the keys of a section that were set explicitly, with their values as read."""
        model: BaseModel = self.method if section == self.section else getattr(self, section)
        return {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}

    def levels_cost(self, levels: int) -> tuple[Cost, ...]:
        """Return the cost of each level, root first; ConfigError where the split has another number of levels.

        "leaves" spends everything on the last level, "uniform" the same on each, as does what is not chosen yet.
        """
        split, cost = self.privacy.split, self.privacy.cost
        if split == "uniform" or split == AUTO:
            return (cost * Fraction(1, levels),) * levels
        if split == "leaves":
            return (*(cost * 0,) * (levels - 1), cost)
        return tuple(cost * share for share in self._checked_list(split, levels, "privacy.split"))

    def per_level(self, values: T | tuple[T, ...], levels: int, key: str) -> tuple[T, ...]:
        """Return one value a level, root first, of a key that holds one for all or a list of them."""
        return self._checked_list(values, levels, key) if isinstance(values, tuple) else (values,) * levels

    def level_weights(self, levels: int) -> tuple[float, ...]:
        """Return the weight of each level's error in the aim of [auto], root first; they sum to 1. ConfigError."""
        aim = self.auto.aim
        if aim == "balanced":
            return (1.0 / levels,) * levels
        if isinstance(aim, str):
            chosen = 0 if aim == "root" else levels - 1
            return tuple(float(level == chosen) for level in range(levels))
        weights = self._checked_list(aim, levels, "auto.aim")
        return tuple(weight / sum(weights) for weight in weights)

    def _checked_list(self, values: tuple[T, ...], levels: int, key: str) -> tuple[T, ...]:
        if len(values) != levels:
            raise self.error(key, f"has {len(values)} entries, but the hierarchy has {levels} levels")
        return values

    @property
    def private_tables(self) -> tuple[str, ...]:
        """Return the keys of [data] that name private tables."""
        return (*self.data.hidden, *self.method.hides)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON-able values with defaults filled in, for public manifests.

        Paths become bare file names; those of private files, their columns, the ledger and the folders of this machine
        are left out.
        """
        sections: Mapping[str, Section] = {
            "data": self.data,
            "privacy": self.privacy,
            self.section: self.method,
            "solvers": self.solvers,
        }
        plain = {name: _plain_section(section) for name, section in sections.items()}
        for key in self.private_tables:
            plain["data"].pop(key, None)
        return plain


def digest_of(values: object) -> str:
    """Return a short digest of plain values, such as what a configuration leaves to be chosen."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def _plain_section(section: BaseModel) -> dict[str, Any]:
    hidden: tuple[str, ...] = (*getattr(section, "hidden", ()), "ledger", "witness", "columns")
    values = {name: getattr(section, name) for name in type(section).model_fields if name not in hidden}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    convert: dict[type, Callable[[Any], Any]] = {
        Path: lambda path: path.name,
        Frame: lambda frame: frame.name,
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
