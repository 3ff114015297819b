"""The sections of a configuration as immutable models; an unknown key is an error."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from coco_opt.config.values import (
    KeyedError,
    SolverChoice,
    budget,
    dataset_name,
    file_path,
    one_of,
    one_or_list,
    probability,
    solver_choice,
    split_shares,
)

PROBLEM_KINDS = (
    "simplex_projection",
    "isotonic_l1",
    "isotonic_l2",
    "controlled_rounding",
    "group_matching",
    "joint_l1",
    "joint_l2",
    "cumulative_rounding",
    "integer_tree_l1",
    "integer_tree_l2",
    "table_rounding",
    "topdown_split",
)

Estimator = Literal["naive", "rank", "cumulative"]
Loss = Literal["l1", "l2"]
Mechanism = Literal["geometric", "discrete_gaussian"]
MECHANISMS = ("geometric", "discrete_gaussian")

_ESTIMATORS = ("naive", "rank", "cumulative")
_LOSSES = ("l1", "l2")

FilePath = Annotated[Path, PlainValidator(file_path)]
Choice = Annotated[SolverChoice | None, PlainValidator(solver_choice)]


class Section(BaseModel):
    """A table of the file: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class DataConfig(Section):
    """Where the input lies.

    For groups: three tables (entities, groups, hierarchy), or one table of counts (sizes). For tables of persons:
    records and hierarchy, and perhaps public bounds.
    """

    entities: FilePath | None = None
    groups: FilePath | None = None
    hierarchy: FilePath | None = None
    sizes: FilePath | None = None
    root: str | None = None
    records: FilePath | None = None
    bounds: FilePath | None = None

    @model_validator(mode="after")
    def _one_form(self) -> DataConfig:
        if self.records is not None or self.bounds is not None:
            return self._of_records()
        tables = {"entities": self.entities, "groups": self.groups, "hierarchy": self.hierarchy}
        missing = [name for name, path in tables.items() if path is None]
        if self.sizes is not None and len(missing) < len(tables):
            raise ValueError("give either entities, groups and hierarchy, or sizes, not both")
        if self.sizes is None and missing:
            raise ValueError(f"{', '.join(missing)} missing: give entities, groups and hierarchy, or sizes")
        if self.root is not None and self.sizes is None:
            raise ValueError("root names the one region of a sizes table: remove it")
        if self.root is not None and (not self.root or self.root != self.root.strip() or "/" in self.root):
            raise ValueError('root must be a name without "/" and without spaces around it')
        return self

    def _of_records(self) -> DataConfig:
        for name in ("entities", "groups", "sizes", "root"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} does not go with records: give records and hierarchy")
        for name in ("records", "hierarchy"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} missing: give records and hierarchy")
        return self


class PrivacyConfig(Section):
    """What is spent and how noise is drawn; all amounts are exact fractions.

    The whole budget is ``epsilon`` for mechanism "geometric"; for "discrete_gaussian" it is ``rho``, or ``epsilon``
    and ``delta`` together, which stand for the largest rho that implies them. ``dataset`` names the data in the
    ``ledger``; ``total`` is what may be spent on it in all, in epsilon or rho by mechanism, stated when the first
    release opens its account (default: what that release spends), and the ledger's from then on.
    """

    epsilon: Annotated[Fraction, PlainValidator(budget)] | None = None
    split: Annotated[Literal["uniform"] | tuple[Fraction, ...], PlainValidator(split_shares)] = "uniform"
    mechanism: Annotated[Mechanism, one_of(*MECHANISMS)] = "geometric"
    rho: Annotated[Fraction, PlainValidator(budget)] | None = None
    delta: Annotated[Fraction, PlainValidator(probability)] | None = None
    noise: Annotated[Literal["secure", "opendp", "seeded"], one_of("secure", "opendp", "seeded")] = "secure"
    seed: Annotated[int, Field(ge=0)] | None = None
    neighbours: Annotated[Literal["add_remove", "replace"], one_of("add_remove", "replace")] = "add_remove"
    dataset: Annotated[str, PlainValidator(dataset_name)] | None = None
    ledger: FilePath | None = None
    total: Annotated[Fraction, PlainValidator(budget)] | None = None

    @model_validator(mode="after")
    def _seed_if_seeded(self) -> PrivacyConfig:
        if self.noise == "seeded" and self.seed is None:
            raise ValueError('noise = "seeded" needs a seed')
        if self.noise != "seeded" and self.seed is not None:
            raise ValueError(f'a seed makes noise predictable: noise = "{self.noise}" accepts none')
        return self

    @model_validator(mode="after")
    def _one_budget(self) -> PrivacyConfig:
        if self.mechanism == "geometric":
            self._check_pure()
        elif self.rho is not None:
            for key in ("epsilon", "delta"):
                if getattr(self, key) is not None:
                    raise KeyedError(key, "give either rho, or epsilon and delta, not both")
        elif self.epsilon is None and self.delta is None:
            raise KeyedError("rho", 'is required by mechanism = "discrete_gaussian", or epsilon and delta instead')
        elif self.delta is None:
            raise KeyedError("delta", "is required beside epsilon: discrete Gaussian noise has no pure epsilon")
        elif self.epsilon is None:
            raise KeyedError("epsilon", "is required beside delta")
        return self

    def _check_pure(self) -> None:
        for key in ("rho", "delta"):
            if getattr(self, key) is not None:
                raise KeyedError(key, 'needs mechanism = "discrete_gaussian": geometric noise is charged in epsilon')
        if self.epsilon is None:
            raise KeyedError("epsilon", "is required")

    @property
    def sensitivity_factor(self) -> int:
        """Return what to multiply add-or-remove sensitivities by: replacing one entity is two changes."""
        return 2 if self.neighbours == "replace" else 1


class GroupsConfig(Section):
    """How counts of groups by size are estimated; ``max_size`` is the public bound K on a group's size."""

    max_size: Annotated[int, Field(ge=1, le=10**9)]
    estimator: Annotated[Estimator | tuple[Estimator, ...], one_or_list(*_ESTIMATORS)] = "cumulative"
    loss: Annotated[Loss | tuple[Loss, ...], one_or_list(*_LOSSES)] = "l1"
    ties: Annotated[Literal["upper", "lower", "midpoint"], one_of("upper", "lower", "midpoint")] = "upper"
    consistency: Annotated[
        Literal["joint", "convex", "matching", "bottom_up", "none"],
        one_of("joint", "convex", "matching", "bottom_up", "none"),
    ] = "matching"
    merge: Annotated[Literal["weighted", "average"], one_of("weighted", "average")] = "weighted"
    rounding: Annotated[Literal["half_up", "half_even"], one_of("half_up", "half_even")] = "half_up"
    variances: Annotated[Literal["formula", "bootstrap"], one_of("formula", "bootstrap")] = "formula"

    @model_validator(mode="after")
    def _variances_are_read(self) -> GroupsConfig:
        if self.variances == "bootstrap" and (self.consistency, self.merge) != ("matching", "weighted"):
            raise KeyedError("variances", '"bootstrap" needs consistency = "matching" and merge = "weighted"')
        return self


class SolversConfig(Section):
    """Which solver answers each type of problem; unset means the fast exact one."""

    simplex_projection: Choice = None
    isotonic_l1: Choice = None
    isotonic_l2: Choice = None
    controlled_rounding: Choice = None
    group_matching: Choice = None
    joint_l1: Choice = None
    joint_l2: Choice = None
    cumulative_rounding: Choice = None
    table_rounding: Choice = None
    topdown_split: Choice = None
    integer_tree_l1: Choice = None
    integer_tree_l2: Choice = None

    def chosen(self) -> dict[str, SolverChoice]:
        """Return the choices made, by problem type."""
        chosen = {kind: getattr(self, kind) for kind in PROBLEM_KINDS}
        return {kind: choice for kind, choice in chosen.items() if choice is not None}


class OutputConfig(Section):
    """Where public results and private run records go; both default to folders beside the config."""

    directory: FilePath = Field(default="releases", validate_default=True)
    private: FilePath = Field(default="private", validate_default=True)
