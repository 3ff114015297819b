"""Simulated data of every kind, their neighbours by each rule, and what is asked of them and how it is estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coco_opt.privacy import Neighbours

Files = dict[str, str]
PURE = 'epsilon = "1"'
RHO = 'mechanism = "discrete_gaussian"\nrho = "1/2"'
PAIR = 'mechanism = "discrete_gaussian"\nepsilon = "2"\ndelta = "1/1000000"'
DISTRIBUTIONS: Mapping[str, str] = {"geometric": PURE, "gaussian": RHO}

Pairs = Mapping[str, Files]
"""Neighbours of a table: the files that change, by what happened in words."""


@dataclass(frozen=True)
class Case:
    """A question of simulated data: its files, neighbours by rule, the keys that ask, and those of each estimation.

    ``methods`` are lines of the kind's section by name. ``reached`` are the rules of neighbours of which some made pair
    differs by all that the budget allows, at every level at once. Where persons are replaced none does: the total of
    the root stays, and is asked all the same.
    """

    kind: str
    files: Files
    pairs: Mapping[Neighbours, Pairs]
    data: str
    section: str
    methods: Mapping[str, str]
    more: str = ""
    split: str = 'split = "uniform"'
    reached: tuple[Neighbours, ...] = ("add_remove", "replace")

    def commands(self, methods: Sequence[str]) -> list[list[str]]:
        """Return the commands that measure, publish the measurement, and release it by each method."""
        releases = [["release", f"{method}.toml", "--out", f"out-{method}"] for method in methods]
        return [["measure", f"{methods[0]}.toml", "--publish", "noisy"], *releases]

    def configs(self, privacy: str, neighbours: Neighbours, methods: Sequence[str]) -> Files:
        """Return a configuration for each method, by file name."""
        return {
            f"{method}.toml": (
                f"[data]\n{self.data}\n[privacy]\n{privacy}\n{self.split}\n"
                f'neighbours = "{neighbours}"\ndataset = "made"\n'
                f"{self.section}\n{self.methods[method]}\n{self.more}\n"
            )
            for method in methods
        }


# Groups: sizes by county x 1, 2, 2; y 0, 6, 8 (above the bound); z 3, 1; w 0, 0. Nobody lives in w.
_SIZES = {"x": (1, 2, 2), "y": (0, 6, 8), "z": (3, 1), "w": (0, 0)}
_HIERARCHY = "region_id,nation,state,county\nx,land,a,x\ny,land,a,y\nz,land,b,z\nw,land,b,w\n"
_GROUP_DATA = 'entities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"'


def _homes() -> dict[str, int]:
    return {f"{county}{number}": size for county, sizes in _SIZES.items() for number, size in enumerate(sizes)}


def _group_files(homes: Mapping[str, int]) -> Files:
    # Ids tell nothing, and rows stand in their order: who moves keeps name and place.
    entities = [f"e{home}{k},{home}" for home, size in homes.items() for k in range(size)]
    groups = [f"{home},{home[0]}" for home in homes]
    return {
        "entities.csv": "\n".join(["entity_id,group_id", *entities]) + "\n",
        "groups.csv": "\n".join(["group_id,region_id", *groups]) + "\n",
        "hierarchy.csv": _HIERARCHY,
    }


def _moved(sizes: Mapping[str, int], without: str = "") -> Files:
    homes = {home: size for home, size in {**_homes(), **sizes}.items() if home != without}
    return {name: text for name, text in _group_files(homes).items() if name != "hierarchy.csv"}


GROUP_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {
        "one added to an empty group of an empty county": _moved({"w0": 1}),
        "one added to a group of 3": _moved({"z0": 4}),
        "one added to a group of the bound": _moved({"y1": 7}),
        "one added to a group above the bound": _moved({"y2": 9}),
        "one removed from a group of its own": _moved({"x0": 0}),
    },
    "replace": {
        "one moved between groups of one size": _moved({"x1": 1, "x2": 3}),
        "one moved to another state": _moved({"z0": 2, "x1": 3}),
        "one moved to an empty county": _moved({"z0": 2, "w0": 1}),
        "one moved down from the bound": _moved({"y1": 5, "w1": 1}),
    },
}
PRIVATE_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {
        "one added with a group of its own": _moved({"w2": 1}),
        **GROUP_PAIRS["add_remove"],
        "one removed with a group of its own": _moved({}, without="x0"),
        "an empty group added": _moved({"w2": 0}),
        "an empty group removed": _moved({}, without="w1"),
    },
    "replace": {
        **GROUP_PAIRS["replace"],
        "one moved to a group of its own elsewhere": _moved({"w2": 1, "z0": 2}),
        "one and a group of its own moved": _moved({"w2": 1}, without="x0"),
    },
}
_ALL = ("none", "matching", "joint", "convex", "bottom_up", "posterior")


def _groups(measurement_plan: str, methods: Sequence[str], **given: object) -> Case:
    lines = {method: f'consistency = "{method}"' for method in methods}
    settings = {"pairs": GROUP_PAIRS, **given}
    # Single sizes and an even split, unless a case states buckets or leaves both to be chosen.
    single = "" if "bucket" in measurement_plan or "split" in settings else "bucket_growth = 0"
    return Case(
        "groups",
        _group_files(_homes()),
        data=_GROUP_DATA,
        section=f"[groups]\nmax_size = 6\n{single}\n{measurement_plan}",
        methods=lines,
        **settings,  # type: ignore[arg-type]
    )


# Tables: persons by sex and age in four counties, none in w.
_PERSONS = tuple(
    (county, sex, age)
    for county, count in (("x", 3), ("y", 2), ("z", 4))
    for sex in ("female", "male")
    for age in ("child", "adult", "old")
    for _ in range(count if age != "old" else 1)
)
Person = tuple[str, str, str]
_TABLE_DATA = 'records = "records.csv"\nhierarchy = "hierarchy.csv"'
_ATTRIBUTES = 'attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }'
_TABLE_METHODS = {
    "full": 'estimation = "full"\nmicrodata = true',
    "classic": 'estimation = "classic"\nrounding = "nearest"',
    "bottom_up": 'estimation = "bottom_up"',
}


def _records(persons: Sequence[Person]) -> Files:
    return {"records.csv": "region_id,sex,age\n" + "".join(",".join(one) + "\n" for one in persons)}


def _changed(place: int, person: Person) -> Files:
    return _records([*_PERSONS[:place], person, *_PERSONS[place + 1 :]])


TABLE_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {
        "one added to an empty county": _records([*_PERSONS, ("w", "male", "old")]),
        "one child added": _records([*_PERSONS, ("x", "female", "child")]),
        "one removed": _records(_PERSONS[1:]),
    },
    "replace": {
        "one of another sex and age, and county": _changed(0, ("w", "male", "old")),
        "one of another sex and age": _changed(0, ("x", "male", "old")),
        "one of another age": _changed(5, ("x", "male", "child")),
    },
}
# Within its state every fact of a person that is exact by state stays.
INVARIANT_PAIRS: Mapping[Neighbours, Pairs] = {
    "replace": {
        "one of another age, and county": _changed(0, ("y", "female", "old")),
        "one of another sex and age": _changed(0, ("x", "male", "adult")),
    }
}


def _of_persons(rows: Mapping[str, Sequence[Person]]) -> Files:
    lines = [",".join((who, *one)) for who, of in rows.items() for one in of]
    return {"records.csv": "\n".join(["person_id,region_id,sex,age", *lines]) + "\n"}


_VISITS: Mapping[str, Sequence[Person]] = {
    f"p{number}": [_PERSONS[number], _PERSONS[-number - 1]][: 1 + number % 2] for number in range(20)
}
VISIT_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {
        "one added with three rows alike": _of_persons({**_VISITS, "q": [("w", "male", "old")] * 3}),
        "one added with three rows": _of_persons({**_VISITS, "q": [_PERSONS[0], _PERSONS[9], ("w", "male", "old")]}),
        "one removed": _of_persons({who: of for who, of in _VISITS.items() if who != "p1"}),
    },
    "replace": {
        "one with no row for one with three": _of_persons({**_VISITS, "p0": [("w", "male", "old")] * 3}),
    },
}

# In nursing homes live women; a home of x or z holds 2 at least, and each person of a home is in one that is counted.
_HOMES = "region_id,old\nx,1\ny,0\nz,1\nw,0\n"
_AT_HOME = [("x", "female", "old")] * 4 + [("z", "female", "old")] * 5
_ELSEWHERE = [(county, sex, age) for county in "xyzw" for sex in ("female", "male") for age in ("child", "adult")]
FACILITY_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {"one added to a home": _records([*_AT_HOME, *_ELSEWHERE, ("x", "female", "old")])},
    "replace": {
        "one moved into a home": _records([*_AT_HOME, *_ELSEWHERE[1:], ("z", "female", "old")]),
        "one of another sex, age and county": _records([*_AT_HOME, *_ELSEWHERE[1:], ("w", "male", "adult")]),
    },
}
_FACILITIES = '[topdown.facilities]\nattribute = "age"\ntypes.old = { may = "sex = female", least = 2, most = 9 }'
_HOUSEHOLDS = 'constraints = [{ holds = "[age = adult] + [age = old] >= 0" }, { holds = "[sex = male] <= 40" }]'


def _tables(measurement_plan: str, methods: Sequence[str] = tuple(_TABLE_METHODS), **given: object) -> Case:
    usual = {"files": _records(_PERSONS), "pairs": TABLE_PAIRS, "data": _TABLE_DATA, "reached": ("add_remove",)}
    settings = {**usual, **given}
    files = {"hierarchy.csv": _HIERARCHY, **settings.pop("files")}  # type: ignore[dict-item]
    return Case(
        "tables",
        files,
        section=f"[topdown]\n{_ATTRIBUTES}\n{measurement_plan}",
        methods={name: _TABLE_METHODS[name] for name in methods},
        **settings,  # type: ignore[arg-type]
    )


_VALUES = (0, 0, 3, 4, 4, 4, 7, 8, 8, 1, 5)


def _values(values: Sequence[int]) -> Files:
    return {"values.csv": "value\n" + "".join(f"{value}\n" for value in values)}


RANGE_PAIRS: Mapping[Neighbours, Pairs] = {
    "add_remove": {
        "one added to an empty cell": _values([*_VALUES, 2]),
        "one added at the end": _values([*_VALUES, 8]),
        "one removed": _values(_VALUES[1:]),
    },
    "replace": {
        "one moved from end to end": _values([8, *_VALUES[1:]]),
        "one moved to the next cell": _values([1, *_VALUES[1:]]),
    },
}


def _ranges(measurement_plan: str, reached: tuple[Neighbours, ...] = ("add_remove", "replace")) -> Case:
    estimators = ("noisy", "consistent", "nonnegative", "zeroed")
    return Case(
        "ranges",
        _values(_VALUES),
        RANGE_PAIRS,
        'values = "values.csv"',
        f"[ranges]\n{measurement_plan}",
        {name: f'estimator = "{name}"' for name in estimators},
        reached=reached,
    )


OPEN = 'workload = ["total", "sex", "sex * age"]'
WORKLOAD = f'{OPEN}\nstrategy = "workload"'
CASES: Mapping[str, Case] = {
    "sizes": _groups('query = "sizes"', ("none", "matching", "convex", "bottom_up")),
    "ranks": _groups('query = "ranks"', ("none", "matching", "bottom_up", "posterior")),
    "cumulative": _groups('query = "cumulative"', _ALL),
    "buckets by growth": _groups("bucket_growth = 0.5", ("none", "matching", "joint", "bottom_up", "posterior")),
    "buckets by edges": _groups("bucket_edges = [0, 1, 3]", ("none", "matching", "bottom_up", "posterior")),
    "mixed levels": _groups(
        'query = ["ranks", "cumulative", "cumulative"]', ("none", "matching", "bottom_up", "posterior")
    ),
    "split": _groups("rank_above = 3", ("none", "matching", "bottom_up", "posterior")),
    "mixed splits": _groups("rank_above = [1, 0, 5]", ("none", "matching", "bottom_up", "posterior")),
    "mixed buckets": _groups(
        "bucket_edges = [[0, 2, 4], [0, 1, 3], []]", ("none", "matching", "bottom_up", "posterior")
    ),
    # Neighbours never change two numbers of groups at the root: one entity that comes and one that goes keep the sum.
    "private counts": _groups('group_counts = "private"', _ALL, pairs=PRIVATE_PAIRS, reached=("add_remove",)),
    "private counts, sizes": _groups(
        'group_counts = "private"\nquery = "sizes"', ("none", "matching"), pairs=PRIVATE_PAIRS, reached=()
    ),
    "private counts, buckets": _groups(
        'group_counts = "private"\nbucket_edges = [0, 1, 3]',
        ("none", "matching", "posterior"),
        pairs=PRIVATE_PAIRS,
        reached=("add_remove",),
    ),
    "look": _groups("", ("posterior", "matching"), split=""),
    "workload": _tables(WORKLOAD),
    "cumulative ages": _tables('workload = ["cumulative(age)", "detail"]\nstrategy = ["cumulative(age)"]'),
    "optimised": _tables(f'{OPEN}\nstrategy = "optimised"'),
    "chosen tables": _tables(OPEN, split=""),
    "invariants": _tables(
        f'{WORKLOAD}\ninvariants = [{{ query = "total", level = "state" }}]',
        ("full", "classic"),
        pairs=INVARIANT_PAIRS,
        reached=(),
    ),
    "rows a person": _tables(f"{WORKLOAD}\nrows_a_person = 3", files=_of_persons(_VISITS), pairs=VISIT_PAIRS),
    "facilities": _tables(
        f"{WORKLOAD}\n{_HOUSEHOLDS}",
        ("full", "classic", "bottom_up"),
        files={**_records([*_AT_HOME, *_ELSEWHERE]), "facilities.csv": _HOMES},
        pairs=FACILITY_PAIRS,
        data=f'{_TABLE_DATA}\nfacilities = "facilities.csv"',
        more=_FACILITIES,
    ),
    "tree": _ranges("cells = 9\nfan_out = 3"),
    "cells": _ranges('cells = 9\nfan_out = "cells"'),
    "chosen fan-out": _ranges("cells = 9"),
    # Where entities are replaced, the count of the whole domain never changes, but has its share of the budget.
    "shares": _ranges('cells = 9\nfan_out = [3, 3]\nshares = ["1/5", "3/10", "1/2"]', ("add_remove",)),
    "edges": _ranges('edges = [0, 1, 3, 6, 7, 9]\nfan_out = 2\noutside = "clamp"'),
}

_STAGES = {
    "ages": 'attributes = { age = ["child", "adult", "old"] }\nworkload = ["age"]',
    "sexes": f'{_ATTRIBUTES}\nworkload = ["age * sex"]\nagrees_with = "ages"',
}
STAGES: Files = {
    f"{name}.toml": (
        f'[data]\n{_TABLE_DATA}\n[privacy]\nepsilon = "1"\ntotal = "2"\ndataset = "made"\n[topdown]\n{section}\n'
    )
    for name, section in _STAGES.items()
}
"""Configurations of two releases of the tables, of which the later one agrees with the earlier one, for epsilon 2."""
