"""Subjects of audits: a toy release and faults to plant in any; a configuration of every kind without its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from coco_opt import Hierarchy, load_config
from coco_opt.array_types import Ints
from coco_opt.audit import Sources, Subject
from coco_opt.cli.audit import subject_of
from coco_opt.kinds import kind_row
from coco_opt.privacy import (
    Cost,
    Epsilon,
    Exact,
    LevelQuery,
    Measurement,
    MeasurementPlan,
    Neighbours,
    NoiseSource,
    NoiseStream,
    SeededNoise,
    Sensitivity,
)

AnySubject = Subject[Any, Any]

TREE = Hierarchy.from_paths([("all", "north"), ("all", "south")])
LEVELS = ("nation", "state")
TABLE = np.array([[3, 0, 7], [1, 4, 0]], np.int64)


@dataclass(frozen=True, eq=False)
class Couple:
    """D and D'."""

    first: Any
    second: Any
    words: str = "one entity added"


def couple(neighbours: Neighbours = "add_remove") -> Couple:
    """Return the toy's neighbours: one entity more, or one in another cell of another leaf."""
    second = TABLE.copy()
    second[0, 2] += 1
    if neighbours == "replace":
        second[1, 1] -= 1
    return Couple(TABLE, second)


def toy(
    cost: Cost | None = None, neighbours: Neighbours = "add_remove", *, exact_total: bool = False, delta: Any = None
) -> AnySubject:
    """Return the toy as a subject; ``exact_total`` declares the number of all entities public."""
    whole = cost or Epsilon(Fraction(1))
    changed = 2 if neighbours == "replace" else 1
    queries = [
        LevelQuery(level, "cells", "entities by cell", 3, Sensitivity(changed, changed), whole * Fraction(1, 2))
        for level in range(2)
    ]
    if exact_total:
        queries.append(LevelQuery(0, "total", "entities", 1, None, None))
    measurement_plan = MeasurementPlan("toy", TREE, LEVELS, tuple(queries), neighbours)

    def exact(table: Ints) -> Iterator[Exact]:
        for level_query in queries:
            for region in TREE.level_range(level_query.level):
                cells = table.sum(axis=0) if region == 0 else table[region - 1]
                yield Exact(level_query, TREE.paths[region], cells.sum(keepdims=True) if level_query.exact else cells)

    return Subject(measurement_plan, whole, exact, _estimate, _statistics, delta)


def _estimate(measurement: Measurement) -> list[Ints]:
    return [np.maximum(answers.table(), 0) for answers in measurement.answers[:2]]


def _statistics(table: Any) -> Mapping[str, Ints]:
    levels = table if isinstance(table, list) else [table.sum(axis=0, keepdims=True), table]
    return dict(zip(LEVELS, levels, strict=True))


def sources(first: int) -> Sources:
    """Return sources of independent seeded noise."""
    return lambda number: SeededNoise(first + number)


def with_queries(subject: AnySubject, change: Callable[[LevelQuery], LevelQuery]) -> AnySubject:
    """Return a subject whose noisy questions are others; the claim stays."""

    def changed(level_query: LevelQuery) -> LevelQuery:
        return level_query if level_query.exact else change(level_query)

    def exact(table: Any) -> Iterable[Exact]:
        return (replace(part, query=changed(part.query)) for part in subject.exact(table))

    measurement_plan = replace(subject.measurement_plan, queries=tuple(map(changed, subject.measurement_plan.queries)))
    return replace(subject, measurement_plan=measurement_plan, exact=exact)


def half_the_sensitivity(level_query: LevelQuery) -> LevelQuery:
    """Return a question whose sensitivity is taken for half of what it is, at least 1."""
    assert level_query.sensitivity is not None
    l1, l2 = level_query.sensitivity.l1, level_query.sensitivity.l2_squared
    return replace(level_query, sensitivity=Sensitivity(max(1, l1 // 2), max(1, l2 // 4)))


def measured_twice(subject: AnySubject) -> AnySubject:
    """Return a subject that asks everything once more at the same cost, and claims what asking once costs."""

    def again(level_query: LevelQuery) -> LevelQuery:
        return replace(level_query, name=f"{level_query.name} again")

    def exact(table: Any) -> Iterator[Exact]:
        yield from subject.exact(table)
        for part in subject.exact(table):
            if not part.query.exact:
                yield replace(part, query=again(part.query))

    more = tuple(again(level_query) for level_query in subject.measurement_plan.queries if not level_query.exact)
    return replace(
        subject,
        measurement_plan=replace(subject.measurement_plan, queries=(*subject.measurement_plan.queries, *more)),
        exact=exact,
    )


def also_exact(subject: AnySubject) -> AnySubject:
    """Return a subject that declares the answers to its last question exact, and asks it with noise too."""
    last = subject.measurement_plan.queries[-1]
    declared = replace(last, name="declared", sensitivity=None, cost=None)

    def exact(table: Any) -> Iterator[Exact]:
        yield from subject.exact(table)
        yield from (replace(part, query=declared) for part in subject.exact(table) if part.query == last)

    return replace(
        subject,
        measurement_plan=replace(subject.measurement_plan, queries=(*subject.measurement_plan.queries, declared)),
        exact=exact,
    )


class HalvedNoise:
    """A source whose noise is half as wide as it is asked to be."""

    name: ClassVar[str] = "halved"
    private: ClassVar[bool] = False

    def __init__(self, source: NoiseSource) -> None:
        self._source = source

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        return self._source.stream(scale / 2, measurement=measurement, region=region)

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        stream: NoiseStream = self._source.gaussian_stream(variance / 4, measurement=measurement, region=region)  # type: ignore[attr-defined]
        return stream


def sealed_by(
    subject: AnySubject, seal: Callable[[MeasurementPlan, Sequence[Exact], NoiseSource], Measurement]
) -> AnySubject:
    """Return a subject that draws its noise in another way."""
    return replace(subject, seal=seal)


KINDS = ("groups", "tables", "ranges")
CASES = (*KINDS, "buckets")
PURE = 'epsilon = "1"'
RHO = 'mechanism = "discrete_gaussian"\nrho = "1/2"'
SEEDED = 'noise = "seeded"\nseed = 3'

_FILES = {
    "groups.csv": "group_id,region_id\n" + "".join(f"g{k},r{k % 3}\n" for k in range(24)),
    "regions.csv": "region_id,nation,state\n" + "".join(f"r{k},land,s{k}\n" for k in range(4)),
}
_DATA = {
    "groups": 'entities = "absent.csv"\ngroups = "groups.csv"\nhierarchy = "regions.csv"',
    "buckets": 'entities = "absent.csv"\ngroups = "groups.csv"\nhierarchy = "regions.csv"',
    "tables": 'records = "absent.csv"\nhierarchy = "regions.csv"',
    "ranges": 'values = "absent.csv"',
}
# Each asks something of sensitivity 2, so that it can be taken for half.
_SECTION = {
    "groups": '[groups]\nmax_size = 6\nquery = "sizes"\nconsistency = "matching"',
    "buckets": '[groups]\nmax_size = 6\nbucket_edges = [0, 1, 3]\nconsistency = "posterior"',
    "tables": (
        '[topdown]\nattributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }\n'
        'workload = ["cumulative(age)", "detail"]\nstrategy = ["cumulative(age)"]'
    ),
    "ranges": "[ranges]\ncells = 8\nfan_out = 8",
}


def config_of(
    kind: str, folder: Path, privacy: str = PURE, *, section: str = "", more: str = "", data: str = ""
) -> Path:
    """Write a seeded configuration of a kind with its public tables; return it. ``section`` replaces the usual one."""
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "run.toml"
    budget = f'{privacy}\nsplit = "uniform"\n{SEEDED}'
    text = f"[data]\n{_DATA[kind]}\n{data}\n[privacy]\n{budget}\n{section or _SECTION[kind]}\n{more}"
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True, eq=False)
class Audited:
    """A kind's subject and neighbours of its simulated data."""

    subject: AnySubject
    pair: Any


def audited(kind: str, folder: Path, privacy: str = PURE, *, section: str = "") -> Audited:
    """Return what the verb audits."""
    config = load_config(config_of(kind, folder, privacy, section=section))
    value: Any = kind_row(config.kind).load()
    like = value.simulated_data(value.plan(config), None, 2)
    return Audited(subject_of(value, like.plan), value.neighbours(like))
