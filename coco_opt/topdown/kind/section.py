"""The configuration of the tables kind: its keys of ``[data]``, and the section ``[topdown]``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, model_validator

from coco_opt.config.sections import AUTO, DataSection, FilePath, Section, TableInput
from coco_opt.config.values import KeyedError, choice, estimator_name, level_names, split_shares
from coco_opt.files.inputs import GROUPS, HIERARCHY, Columns
from coco_opt.topdown.constraint import StatedSource
from coco_opt.topdown.estimating.method import Implied, IntegerRule
from coco_opt.topdown.kind.schemas import named_schema
from coco_opt.topdown.measuring.public_files import BOUNDS, FACILITIES
from coco_opt.topdown.measuring.records import PERSON, RECORDS
from coco_opt.topdown.names import Bins, labels_of

MAX_VALUES = 100_000
_UNREAD = "unread.parquet"  # the name of a file that is left out where nothing is measured
_SPAN = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})")
Strategy = Literal["auto", "workload", "identity", "optimised"]
Shares = Literal["auto", "uniform"]


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(text, str) and text for text in value):
        raise ValueError("must be a list of texts, and not be empty")
    return tuple(unicodedata.normalize("NFC", text) for text in value)  # as tables are read


def _value_lists(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not value:
        raise ValueError('must be a table such as { sex = ["female", "male"], age = "0..115" }')
    empty = [repr(name) for name, values in value.items() if isinstance(values, (list, tuple)) and not values]
    if empty:
        advice = 'such as ["a", "b"] or "0..115", or delete the line, and its name in workload'
        raise ValueError(f"list every value of {', '.join(empty)}, {advice}")
    return {name: _values(name, values) for name, values in value.items()}


def _values(name: str, values: object) -> tuple[str, ...]:
    """Return the names of an attribute's values; "0..115" stands for the integers from 0 to 115."""
    span = _SPAN.fullmatch(values) if isinstance(values, str) else None
    if span is not None:
        low, high = (int(end) for end in span.groups())
        if not 0 <= high - low < MAX_VALUES:
            raise ValueError(f"{name!r} must go from a number to a greater one, {MAX_VALUES:,} values at most")
        return tuple(str(number) for number in range(low, high + 1))
    try:
        return _texts(values)
    except ValueError:
        raise ValueError(f'{name!r} must be a list of the names of its values, or a range such as "0..115"') from None


def _strategy(value: object) -> str | tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return _texts(value)
    if isinstance(value, str) and value in get_args(Strategy):
        return value
    raise ValueError(f"must be one of {', '.join(get_args(Strategy))}, or a list of queries")


_level_shares = split_shares(Shares, "a query of the strategy")


def _shares(value: object) -> str | tuple[Fraction, ...] | tuple[tuple[Fraction, ...], ...]:
    """Read one list of shares for all levels, or a list of lists, one a level."""
    if not isinstance(value, (list, tuple)) or not any(isinstance(item, (list, tuple)) for item in value):
        return _level_shares(value)
    by_level = []
    for level, item in enumerate(value):
        try:
            shares = _level_shares(item)
        except ValueError as error:
            raise ValueError(f"list {level + 1}: {error}") from None
        if isinstance(shares, str):
            raise ValueError(f"list {level + 1}: write the shares of the level's queries, or one list for all levels")
        by_level.append(shares)
    return tuple(by_level)


def _attributes(value: object) -> dict[str, tuple[str, ...]]:
    """Read the values of each attribute; ranges such as "65.." must be valid."""
    attributes = _value_lists(value)
    for name, values in attributes.items():
        try:
            Bins.of(values)
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from None
    return attributes


Texts = Annotated[tuple[str, ...], PlainValidator(_texts)]


class InvariantConfig(Section):
    """A query whose true answers hold exactly in every region of a level (its column's name) and above."""

    query: str
    """A query, such as "total" or "sex * age"."""
    level: str
    """The column of the hierarchy whose regions, and those above, it holds in."""


class ConstraintConfig(Section):
    """A linear constraint between answers, in every region of a level (its column's name; default: the leaves).

    ``regions`` (paths, from the root) restrict it to the regions inside them; ``source`` is its origin.
    """

    holds: str
    """Two sums of answers and a comparison, such as "householders >= spouses + partners"."""
    level: str | None = None
    """The column of the hierarchy in whose regions it holds; unset: the leaves."""
    regions: Texts = ()
    """Paths from the root that restrict it to the regions in them."""
    source: Annotated[StatedSource, choice(StatedSource)] = "structural"
    """Where it comes from; manifest and page say so."""


class FacilityConfig(Section):
    """The persons in a facility: their number, conditions that all meet, and conditions that at least one meets."""

    least: Annotated[int, Field(ge=0)] = 1
    """Persons in a facility at least."""
    most: Annotated[int | None, Field(ge=0)] = None
    """Persons in a facility at most."""
    may: str | None = None
    """A condition that all persons in it meet."""
    must: Texts = ()
    """Conditions that at least one person in it meets each."""


class FacilitiesConfig(Section):
    """The attribute some of whose values are types of facilities, which ``data.facilities`` counts by region."""

    attribute: str
    """The attribute some of whose values are types of facilities."""
    source: Annotated[StatedSource, choice(StatedSource)] = "public"
    """Where the counts of facilities come from."""
    types: dict[str, FacilityConfig]
    """What a facility of each type holds, by the value of the attribute."""

    @model_validator(mode="after")
    def _some_types(self) -> FacilitiesConfig:
        if not self.types:
            raise KeyedError(
                "types",
                "names no type: give each type a table of its own (types.nursing = {}), or remove [topdown.facilities]",
            )
        return self


def _shared(value: object) -> tuple[str, ...]:
    """Return a list of names, which may be empty."""
    return () if isinstance(value, (list, tuple)) and not value else _texts(value)


def _releases(value: object) -> object:
    """Return one release, or a list of them, as a list of tables."""
    releases = value if isinstance(value, (list, tuple)) else [value]
    return [{"release": release} if isinstance(release, (str, Path)) else release for release in releases]


class AgreesConfig(Section):
    """An earlier release whose answers these tables keep exactly, cell by cell and region by region.

    ``on`` names the attributes of earlier tables to agree on (default: all; [] is the total alone).
    ``persons`` and ``householders`` are for a release of groups: conditions, or names in ``counts``.
    """

    release: FilePath
    """The folder of the earlier release."""
    on: Annotated[tuple[str, ...], PlainValidator(_shared)] | None = None
    """Attributes of earlier tables to agree on; unset: all of them."""
    persons: str | None = None
    """Who is in an earlier release's groups, such as "residence = household"; unset: everybody."""
    householders: str | None = None
    """Of whom every earlier group that is not empty has exactly one, such as "relation = householder"."""


class PassConfig(Section):
    """Queries fitted together; later passes change their answers by at most ``tolerance`` persons."""

    queries: Texts
    """Queries fitted together."""
    tolerance: Annotated[float, Field(ge=0.0)] = 0.0
    """By how many persons later passes may move their answers."""


class GroupingConfig(Section):
    """A coarser version of the attribute ``of``: named groups of its values."""

    of: str
    """The attribute whose values are grouped."""
    groups: Annotated[dict[str, tuple[str, ...]], PlainValidator(_value_lists)]
    """The values of each group, by its name."""


class TablesData(DataSection):
    """Where the input lies: persons' records (private), their regions, bounds on answers, facilities by region."""

    hidden: ClassVar[tuple[str, ...]] = ("records", "groups")
    unmeasured: ClassVar[Mapping[str, Any]] = {"records": _UNREAD, "hierarchy": _UNREAD}
    tables: ClassVar[tuple[Columns, ...]] = (HIERARCHY, RECORDS, GROUPS, BOUNDS, FACILITIES)
    with_attributes: ClassVar[bool] = True
    chains: ClassVar[tuple[tuple[tuple[str, str], ...], ...]] = (
        (("records", ""), ("groups", "group_id"), ("hierarchy", "region_id")),
        (("records", ""), ("hierarchy", "region_id")),
    )

    records: TableInput
    """One row a person: region_id (with `groups`: group_id), attributes, perhaps person_id or count. Private."""
    groups: TableInput | None = None
    """One row a group, such as a household: group_id, region_id, perhaps attributes of all its members. Private."""
    hierarchy: TableInput
    """One row a leaf region: region_id, then one column a level, root first. Public."""
    levels: Annotated[tuple[str, ...] | None, PlainValidator(level_names)] = None
    """The columns of the hierarchy that are levels, root first; others are ignored. Unset: every column is a level."""
    root: str | None = None
    """The name of the region above all others, where no column of the hierarchy has it."""
    bounds: TableInput | None = None
    """Public bounds on answers by region."""
    facilities: TableInput | None = None
    """Facilities of each type by region."""

    @property
    def has_hierarchy(self) -> bool:
        """Return whether the regions are listed in a file: an import can take them from geocodes."""
        return not (isinstance(self.hierarchy, Path) and self.hierarchy.name == _UNREAD)


class TopdownSection(Section):
    """The measurement (attributes, structural zeros, strategy, shares, constraints) and the estimation of tables.

    ``workload`` is measured if the strategy derives from it; with a list of queries as strategy it is only shown.
    ``shares`` are the queries' parts of each level's budget: one list for all levels, or a list a level, root first.
    Where one of the two is set, the other's "auto" is the workload, or even shares.
    With ``rows_a_person`` the records name a person_id, and noise hides a person with so many rows; without it, one,
    and a person_id that repeats is refused.
    """

    unmeasured: ClassVar[Mapping[str, Any]] = {"workload": ["total"]}
    chooses_split: ClassVar[bool] = True

    attributes: Annotated[dict[str, tuple[str, ...]], PlainValidator(_attributes)]
    """Measured: the values of each attribute: a list, numbers "0..115", or ranges ["0..17", "18..64", "65.."].

    A text names a schema: a published one, such as "census2020-pl94-persons", or a TOML file with attributes, groupings
    and structural zeros."""
    groupings: dict[str, GroupingConfig] = Field(default_factory=dict)
    """Coarser versions of attributes, by name, for use in queries."""
    structural_zeros: Texts | None = None
    """Measured: conditions that no person meets, such as "age = child & work = yes"."""
    workload: Texts
    """The queries of interest: measured unless the strategy names others."""
    strategy: Annotated[Strategy | tuple[str, ...], PlainValidator(_strategy)] = AUTO
    """Measured: the workload, every cell, the best mixture for the workload, or a list of queries; "auto" chooses."""
    shares: Annotated[Shares | tuple[Fraction, ...] | tuple[tuple[Fraction, ...], ...], PlainValidator(_shares)] = AUTO
    """Measured: the queries' parts of each level's budget; one list for all levels or one a level, root first."""
    invariants: Annotated[tuple[InvariantConfig, ...], Field(strict=False)] = ()
    """Measured: what is published without noise; needs `neighbours = "replace"`."""
    counts: dict[str, str] = Field(default_factory=dict)
    """Counts of cells by name, for use in constraints."""
    constraints: Annotated[tuple[ConstraintConfig, ...], Field(strict=False)] = ()
    """Measured: linear constraints between answers."""
    facilities: FacilitiesConfig | None = None
    """Facilities by type, which `data.facilities` counts by region."""
    bounds_source: Annotated[StatedSource, choice(StatedSource)] = "public"
    """Where the bounds come from; manifest and page say so."""
    agrees_with: Annotated[tuple[AgreesConfig, ...], BeforeValidator(_releases), Field(strict=False)] = ()
    """Measured: earlier releases whose answers these tables keep exactly: a folder, or a list of folders or tables."""
    passes: Annotated[tuple[PassConfig, ...], Field(strict=False)] = ()
    """Queries in order of importance, fitted one after the other; none: all together."""
    estimation: Annotated[str, estimator_name("tables")] = "full"
    """What a region is fitted to: all measured at and below it, its own level, the leaves alone; or the posterior."""
    intervals: Annotated[float | None, Field(ge=0.0, lt=1.0)] = None
    """"posterior" only: the coverage of intervals.parquet, 0 for none; unset: 0.9."""
    rounding: Annotated[IntegerRule, choice(IntegerRule)] = "passes"
    """How tables become integers: totals, queries and cells in passes; or the nearest cells."""
    rounding_order: Texts | None = None
    """The queries of "passes", most important first; unset: those of the workload that nest."""
    implied: Annotated[Implied, choice(Implied)] = "auto"
    """How the implied constraints of the regions above are kept; "auto": by what is fast enough for [auto] time."""
    microdata: bool = False
    """Whether to write one row a person too."""
    rows_a_person: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Measured: a public maximum of rows a person, identified by person_id; unset: one, a repeated id is refused."""

    @model_validator(mode="before")
    @classmethod
    def _read_schema(cls, keys: Any, info: ValidationInfo) -> Any:
        """Put the attributes, groupings and structural zeros of a named schema in the place of its name."""
        if not isinstance(keys, dict) or not isinstance(keys.get("attributes"), str):
            return keys
        schema = named_schema(keys["attributes"], info.context["folder"] if info.context else Path())
        groupings = {**schema.get("groupings", {}), **keys.get("groupings", {})}
        return {**schema, **keys, "attributes": schema["attributes"], **({"groupings": groupings} if groupings else {})}

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Return the names of each attribute's values as they are released; ranges have short names, such as 65+."""
        return {name: labels_of(values) for name, values in self.attributes.items()}

    @property
    def bins(self) -> dict[str, Bins]:
        """Return the ranges of each attribute whose values are ranges of integers."""
        ranges = {name: Bins.of(values) for name, values in self.attributes.items()}
        return {name: bins for name, bins in ranges.items() if bins is not None}

    @model_validator(mode="after")
    def _person_is_no_attribute(self) -> TopdownSection:
        if self.rows_a_person is not None and PERSON in self.attributes:
            raise KeyedError("attributes", f"{PERSON!r} identifies persons where rows_a_person is given")
        return self

    @model_validator(mode="after")
    def _order_fits(self) -> TopdownSection:
        if self.rounding_order is not None and self.rounding != "passes":
            raise KeyedError("rounding_order", f'is for rounding = "passes", not "{self.rounding}": remove it')
        return self

    @model_validator(mode="after")
    def _shares_fit(self) -> TopdownSection:
        if isinstance(self.shares, str):
            return self
        if self.strategy == "optimised":
            raise KeyedError("shares", 'are what strategy = "optimised" computes: remove them')
        count = {"identity": 1, "workload": len(self.workload), AUTO: len(self.workload)}.get(
            self.strategy if isinstance(self.strategy, str) else "", len(self.strategy)
        )
        by_level = isinstance(self.shares[0], tuple)
        lists: Sequence[Any] = self.shares if by_level else [self.shares]
        for number, shares in enumerate(lists, 1):
            if len(shares) != count:
                which = f"list {number} " if by_level else ""
                raise KeyedError("shares", f"{which}has {len(shares)} entries, but the strategy has {count} queries")
        return self
