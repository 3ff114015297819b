"""Facilities by type and region, known from a table: how many persons, and which, they may and must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.execution.temporary_storage import stored_empty
from coco_opt.topdown.constraint import LARGEST, UNBOUNDED, LinearConstraint, RegionBounds, Source
from coco_opt.topdown.names import find
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema, parse_rule


@dataclass(frozen=True, slots=True)
class FacilityType:
    """What a facility of a type holds: ``least`` to ``most`` persons (None: any number).

    ``may`` are conditions that everybody in it meets (``age != minor & sex = female``), ``must`` conditions that at
    least one person in each meets.
    """

    least: int = 1
    most: int | None = None
    may: str | None = None
    must: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise InputError("bad-facility", "a facility holds at least 0 persons, and at most no fewer than at least")
        if max(self.least, self.most or 0) >= LARGEST:
            raise InputError("too-large", "a facility holds fewer than 2^40 persons")


@dataclass(frozen=True, eq=False, slots=True)
class Facilities:
    """How many facilities of each type are in each leaf, int64[leaves, types]: values of one attribute are types.

    Where a type has no facility, no person has its value. Values that are not types, such as households, are not bound.
    """

    attribute: str
    types: Mapping[str, FacilityType]
    counts: Ints
    source: Source = "public"

    def constraints(self, schema: Schema, leaf_level: int) -> tuple[list[RegionBounds], list[LinearConstraint]]:
        """Return what they imply: bounds on the persons of each type, and those who must be there.

        Raises InputError (unknown-attribute, unknown-value, bad-rule, bad-shape, too-large).
        """
        names = list(self.types)
        find(self.attribute, list(schema.attributes), "attribute", "facilities")
        for name in names:
            find(name, schema.attributes[self.attribute], f"value of {self.attribute!r}", "facilities")
        if self.counts.ndim != 2 or self.counts.shape[1] != len(names) or (self.counts < 0).any():
            raise InputError("bad-shape", f"facilities are counted by leaf and type, {len(names)} types")
        if (self.counts >= 2**20).any():
            raise InputError("too-large", "facilities of a type in a region must be fewer than 2^20")
        query = parse_query(f"{self.attribute}[{', '.join(names)}]", schema)
        least = np.array([facility.least for facility in self.types.values()])
        most = np.array([LARGEST if facility.most is None else facility.most for facility in self.types.values()])
        lower, upper = (_zeros(*self.counts.shape) for _ in range(2))
        some = np.flatnonzero(self.counts.any(axis=1))  # few regions have any
        counts = self.counts[some]
        lower[some], upper[some] = counts * least, np.where(counts > 0, np.minimum(counts * most, UNBOUNDED), 0)
        bounds = [RegionBounds(query, leaf_level, lower, upper, self.source)]
        return bounds, list(self._musts(schema, leaf_level))

    def _musts(self, schema: Schema, leaf_level: int) -> Iterator[LinearConstraint]:
        for place, (name, facility) in enumerate(self.types.items()):
            for conditions in facility.must:
                both = f"{self.attribute} = {name} & {conditions}"
                parse_rule(both, schema.attributes)
                lower, upper = self.counts[:, place], np.full(len(self.counts), UNBOUNDED)
                yield LinearConstraint(f"[{both}]", ((1, both),), leaf_level, lower, upper, self.source)


def zeros_of(attribute: str, types: Mapping[str, FacilityType]) -> tuple[str, ...]:
    """Return rules that forbid persons whom facilities of each type may not hold: one for each condition."""
    conditions = ((name, part) for name, facility in types.items() for part in (facility.may or "").split("&"))
    return tuple(f"{attribute} = {name} & {_negated(part)}" for name, part in conditions if part.strip())


def _negated(condition: str) -> str:
    left, equals, right = condition.partition("=")
    if not equals or "=" in right:
        raise InputError("bad-rule", f"{condition.strip()!r}: a condition reads 'attribute = values' or '!= values'")
    name = left.rstrip().removesuffix("!").rstrip()
    sign = "=" if left.rstrip().endswith("!") else "!="
    return f"{name.strip()} {sign} {right.strip()}"


def by_leaf(leaves: int, places: Sequence[int] | Ints, counts: Ints) -> Ints:
    """Return rows of counts [rows, types] added up by leaf, int64[leaves, types]."""
    sums = _zeros(leaves, counts.shape[1])
    np.add.at(sums, np.asarray(places, np.int64), counts)
    return sums


def _zeros(leaves: int, types: int) -> Ints:
    """Return zeros that lie in a file if they are many: the few regions with facilities lie on nearly all pages."""
    zeros = stored_empty((leaves, types), np.dtype(np.int64))
    zeros.fill(0)
    return zeros
