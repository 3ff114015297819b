"""Small inputs and configurations of every kind, drawn from a seed: what is awkward about data is likely among them.

``configure`` takes what ``draw`` returns. The configurations are coherent: methods read what is queried, and have the
options that are set. So a refusal is rare, and says that something else does not fit.

``restate`` makes a release's manifest fit what was changed, as whoever wants to deceive would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coco_opt.files.folder import MANIFEST, as_json, file_digest, sealed
from coco_opt.problems import PROBLEMS
from coco_opt.registry import built_in

Keys = dict[str, Any]
_SOLVED: Mapping[str, Sequence[str]] = {
    "groups": sorted(PROBLEMS.keys() - {"topdown_split", "table_rounding"}),
    "tables": ["topdown_split", "table_rounding", "expected_distance"],
    "ranges": ["tree_l2"],
}
"""The problems that solvers are chosen for."""


class Drawing:
    """Draws of one input: choices of a generator with a fixed seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *values: Any) -> Any:
        """Return one of some values."""
        return values[int(self.rng.integers(len(values)))]

    def maybe(self, probability: float = 0.5) -> bool:
        """Return true with a probability."""
        return bool(self.rng.random() < probability)

    def paths(self) -> list[tuple[str, ...]]:
        """Return the leaves of a hierarchy of 1 to 4 levels, a single child being as likely as several."""
        levels, paths = self.one(1, 2, 2, 3, 3, 4), [("land",)]
        for level in range(1, levels):
            paths = [(*path, f"{'abc'[level - 1]}{n}") for path in paths for n in range(self.one(1, 1, 2, 3))]
        return paths[:8]

    def hierarchy(self) -> pd.DataFrame:
        """Return the table of a hierarchy, whose leaves are r0, r1, ..."""
        paths = self.paths()
        columns = {f"level{n}": [path[n] for path in paths] for n in range(len(paths[0]))}
        return pd.DataFrame({"region_id": [f"r{n}" for n in range(len(paths))], **columns})

    def privacy(self, levels: int, needed: Sequence[int]) -> Keys:
        """Return a budget and how ``levels`` share it; the ``needed`` ones get a share."""
        size = self.one("1/100", "1", "1", "20", "100000")
        budget: Keys = self.one({"epsilon": size}, {"mechanism": "discrete_gaussian", "rho": size})
        if self.maybe(0.1):
            budget = {"mechanism": "discrete_gaussian", "epsilon": "1", "delta": "1/1000000"}
        if self.maybe(0.6):
            budget["split"] = self.one("auto", "uniform")
        elif levels > 1:
            measured = set(needed) | {n for n in range(levels) if self.maybe()} or {levels - 1}
            budget["split"] = [f"1/{len(measured)}" if n in measured else "0" for n in range(levels)]
        return {"dataset": "drawn", "neighbours": self.one("add_remove", "replace"), **budget}

    def solvers(self, kind: str) -> Keys:
        """Return a choice of solvers: most often none, else any name of the table for one or two problems."""
        chosen = {}
        for problem in set(self.rng.choice(_SOLVED[kind], size=self.one(0, 0, 1, 2)).tolist()):
            # Not the oracle that tries every point of tiny problems.
            rows = [row for row in built_in() if row.installed and row.name != "brute-force"]
            names = [row.name for row in rows if row.claims(PROBLEMS[problem])]
            chosen[problem] = self.one(*names)
        return chosen


def draw(kind: str, seed: int) -> Keys:
    """Return what ``configure`` takes, for one drawn input and configuration of a kind."""
    drawing = Drawing(seed)
    keys = _KINDS[kind](drawing)
    solvers = drawing.solvers(kind)
    return {**keys, **({"solvers": solvers} if solvers else {})}


def _groups(drawing: Drawing) -> Keys:
    hierarchy = drawing.hierarchy()
    levels, leaves = hierarchy.shape[1] - 1, len(hierarchy)
    largest = drawing.one(1, 2, 3, 7, 50)
    few = drawing.one((0,), (0, 1), (0, 0, 1, 3, 20), (0, 2, 5), (0, 150, 300))
    counts = [drawing.one(*few) for _ in range(leaves)]
    region = np.repeat(np.arange(leaves), counts)
    sizes = {
        "zero": np.zeros(region.size, int),
        "bound": np.full(region.size, largest),
        "above": np.full(region.size, largest + 3),
        "mixed": drawing.rng.integers(0, largest + 2, region.size),
        "skewed": np.minimum(drawing.rng.geometric(0.5, region.size), 2 * largest),
    }[drawing.one("zero", "bound", "above", "mixed", "skewed", "skewed")]
    group = np.arange(region.size)
    tables: Keys = {
        "hierarchy": hierarchy,
        "levels": [name for name in hierarchy if name != "region_id"],
        "groups": pd.DataFrame({"group_id": group, "region_id": np.array([f"r{n}" for n in range(leaves)])[region]}),
        "entities": pd.DataFrame({"entity_id": np.arange(sizes.sum()), "group_id": np.repeat(group, sizes)}),
    }
    if not sizes.sum() or drawing.maybe(0.3):  # a table of counts may say that there is nobody
        counted = hierarchy.drop(columns="region_id").iloc[[*region, *range(leaves)]]
        counted["size"] = [*sizes, *[0] * leaves]
        counted["groups"] = [*[1] * sizes.size, *[0] * leaves]
        tables = {"sizes": counted.groupby(list(counted)[:-1], as_index=False).sum()}
    section, needed = _groups_section(drawing, levels, largest)
    return {
        "data": tables,
        "groups": section,
        "privacy": drawing.privacy(levels, needed),
        "auto": {"look": drawing.one("0", "1/10"), "time": drawing.one(0.001, 6.0, 6.0)},
    }


def _groups_section(drawing: Drawing, levels: int, largest: int) -> tuple[Keys, Sequence[int]]:
    """Return the section of a configuration of groups, and the levels that its method needs."""
    method = drawing.one("auto", "posterior", "joint", "convex", "matching", "bottom_up", "none")
    every, last = range(levels), (levels - 1,)
    private = drawing.maybe(0.25)
    section: Keys = {"max_size": largest, "consistency": method, "unbiased": drawing.maybe(0.3)}
    queries = {"posterior": ("cumulative", "ranks"), "joint": ("cumulative",)}
    query = drawing.one(*queries.get(method, ("cumulative", "sizes")))
    if method in ("matching", "bottom_up", "none") and not private:
        query = drawing.one("cumulative", "sizes", "ranks")
    if method in ("matching", "bottom_up", "none", "posterior") and levels > 1 and drawing.maybe(0.3):
        section["query"] = ["cumulative", *[query if not (private and query == "ranks") else "sizes"] * (levels - 1)]
        query = "several"
    elif private and query == "ranks":
        query = "cumulative"
    section.setdefault("query", query)
    if method == "posterior" and private:
        section["query"] = query = "cumulative"
    if query == "cumulative" and method != "convex":
        if largest > 2 and drawing.maybe(0.3) and not private and method != "joint":
            section |= {"rank_above": drawing.one(1, largest - 1), "bucket_growth": 0.0}
        elif drawing.maybe(0.4):
            section["bucket_growth"] = drawing.one(0.0, 0.5, 2.0)
        elif drawing.maybe(0.3):
            section["bucket_edges"] = sorted({0, *drawing.rng.integers(0, largest, 2).tolist()})
    else:
        section["bucket_growth"] = 0.0
    if private:
        section |= {"group_counts": "private", **drawing.one({}, {"group_counts_share": "1/2"})}
    if method not in ("auto", "posterior"):
        section["loss"] = drawing.one("auto", "l1", "l2")
        section["ties"] = drawing.one("upper", "lower", "midpoint")
    if method == "matching":
        section["merge"] = drawing.one("weighted", "average")
        section["rounding"] = drawing.one("half_up", "half_even", "half_down")
        section["variances"] = drawing.one("formula", "formula", "bootstrap")
    if method == "posterior":
        section["intervals"] = drawing.one(0.0, 0.5, 0.9)
    return section, {"matching": every, "none": every, "auto": every}.get(
        method, last if method == "bottom_up" or private else ()
    )


def _tables(drawing: Drawing) -> Keys:
    hierarchy = drawing.hierarchy()
    levels, leaves = hierarchy.shape[1] - 1, len(hierarchy)
    attributes = {
        name: [f"{name}{n}" for n in range(drawing.one(1, 2, 2, 2, 3, 3, 40))] for name in "xyz"[: drawing.one(1, 2, 3)]
    }
    people = drawing.one(0, 1, 5, 60, 400)
    where = drawing.rng.integers(0, drawing.one(1, leaves), people)  # all in the first leaf, or anywhere
    chosen = {name: drawing.rng.integers(0, drawing.one(1, len(values)), people) for name, values in attributes.items()}
    first = next(iter(attributes))
    records = pd.DataFrame(
        {
            "region_id": np.array([f"r{n}" for n in range(leaves)])[where],
            **{name: np.array(values)[chosen[name]] for name, values in attributes.items()},
        }
    )
    section: Keys = {
        "attributes": attributes,
        "estimation": drawing.one("full", "full", "classic", "bottom_up", "posterior"),
    }
    pairs = ["total", *attributes, *([" * ".join(list(attributes)[:2])] if len(attributes) > 1 else []), "detail"]
    values = attributes[first]
    pairs.append(drawing.one(f"{first}[{values[0]}..{values[-1]}]", f"cumulative({first})"))
    chosen_queries = [query for query in pairs if drawing.maybe(0.6)] or ["detail"]
    section["workload"] = chosen_queries
    section["strategy"] = drawing.one("auto", "workload", "identity", "optimised")
    last = len(attributes[first]) > 1
    levels_of = [name for name in hierarchy if name != "region_id"]
    data: Keys = {"records": records, "hierarchy": hierarchy, "levels": levels_of}
    free = section["estimation"] != "bottom_up"
    bound: Keys = {}
    if free and drawing.maybe(0.4):
        bound["constraints"] = _constraints(drawing, attributes, first)
        if last and drawing.maybe():
            bound["counts"] = {"least": f"{first} = {first}0", "most": f"{first} = {first}1"}
            bound["constraints"] = [*bound["constraints"], {"holds": "least >= most"}]
            records[first] = attributes[first][0]
    if free and drawing.maybe(0.3):
        level = drawing.one(*(f"level{n}" for n in range(levels)))
        bound["invariants"] = [{"query": drawing.one("total", *chosen_queries), "level": level}]
    if last and drawing.maybe(0.2):
        section["structural_zeros"] = [f"{first} = {first}1"]
        records[first] = records[first].where(records[first] != f"{first}1", f"{first}0")
    if free and drawing.maybe(0.3):
        data["bounds"] = _bounds(drawing, hierarchy, records)
    section |= bound
    section["rounding"] = drawing.one("passes", "nearest")
    section["implied"] = drawing.one("auto", "bounds", "cuts", "minimal_schema")
    section["microdata"] = drawing.maybe(0.3)
    if section["estimation"] == "posterior":
        section["intervals"] = drawing.one(0.0, 0.9)
    if drawing.maybe(0.2):
        section["rows_a_person"] = 2
        records["person_id"] = np.arange(people) // 2
    if not people:  # a table of counts may say that there is nobody
        nobody = {"region_id": ["r0"], **{name: values[:1] for name, values in attributes.items()}, "count": [0]}
        data["records"] = pd.DataFrame(nobody)
        section.pop("rows_a_person", None)
    needed = range(levels) if section["estimation"] == "classic" else (levels - 1,)
    privacy = drawing.privacy(levels, needed)
    if "invariants" in bound:
        privacy["neighbours"] = "replace"
    return {"data": data, "topdown": section, "privacy": privacy, "auto": {"time": drawing.one(0.1, 2.0)}}


def _constraints(drawing: Drawing, attributes: Mapping[str, Sequence[str]], first: str) -> list[Keys]:
    """Return constraints that any drawn persons meet."""
    condition = f"[{first} = {attributes[first][0]}]"
    return drawing.one([{"holds": f"{condition} <= 500"}], [{"holds": f"{condition} >= 0"}, {"holds": "total <= 600"}])


def _bounds(drawing: Drawing, hierarchy: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Return bounds on the totals of some leaves, met exactly or with room."""
    rows = []
    columns = [name for name in hierarchy if name != "region_id"]
    for row in hierarchy.to_dict("records"):
        count, slack = int((records["region_id"] == row["region_id"]).sum()), drawing.one(0, 0, 5)
        if drawing.maybe(0.7):
            path = "/".join(row[name] for name in columns)
            rows.append((path, "total", "total", max(count - slack, 0), count + slack))
    if not rows:
        rows = [("land", "total", "total", 0, len(records))]
    return pd.DataFrame(rows, columns=["region", "query", "answer", "lower", "upper"])


def _ranges(drawing: Drawing) -> Keys:
    cells, fan_out = drawing.one(1, 2, 3, 8, 13, 64, 100), drawing.one("auto", "optimised", "cells", 2, 3)
    entities = drawing.one(1, 2, 10, 300)
    values = drawing.rng.integers(0, drawing.one(1, cells), entities)
    section: Keys = {"cells": cells, "fan_out": fan_out, "outside": drawing.one("refuse", "clamp")}
    if drawing.maybe(0.3):
        edges = np.cumsum(drawing.rng.integers(1, 9, cells + 1)) - 5
        section = {**section, "edges": edges.tolist()}
        del section["cells"]
        values = edges[values]
    if drawing.maybe(0.15) and cells == 8:
        section |= {"fan_out": [2, 4], "shares": ["1/2", "1/4", "1/4"]}
    section["workload"] = drawing.one("ranges", "prefixes")
    section["estimator"] = drawing.one("auto", "noisy", "consistent", "nonnegative", "zeroed", "posterior")
    if section["estimator"] == "posterior":
        section |= {"intervals": drawing.one(0.0, 0.5, 0.9), "draws": drawing.one(0, 4)}
    privacy = drawing.privacy(1, (0,))
    auto = {"time": drawing.one(0.001, 6.0)}
    return {"data": {"values": pd.DataFrame({"value": values})}, "ranges": section, "privacy": privacy, "auto": auto}


_KINDS: Mapping[str, Callable[[Drawing], Keys]] = {"groups": _groups, "tables": _tables, "ranges": _ranges}


def restate(folder: Path, **changes: Any) -> None:
    """Write the manifest anew with other entries, the digests of the files as they are, and a seal that fits."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    files = {name: file_digest(folder / name) for name in manifest["files"]}
    (folder / MANIFEST).write_bytes(as_json(sealed({**manifest, "files": files, **changes})))


def seeded_budget(measurement_plan: Any) -> dict[str, Any]:
    """Return the entries of a manifest that say what seeded geometric noise as for ``asked`` cost."""
    from coco_opt.privacy.composition import Composition
    from coco_opt.privacy.measurement import query_dict
    from coco_opt.releases.kind import promise_of

    shared = {"neighbours": measurement_plan.neighbours, "noise": "seeded"}
    queries = [
        {**query_dict(one), "level_name": measurement_plan.levels[one.level]} for one in measurement_plan.queries
    ]
    budget = {
        **measurement_plan.cost.as_dict(),
        "implied": Composition.of(measurement_plan.queries).implied(),
        **shared,
        "promise": promise_of(measurement_plan).as_dict(),
        "questions": queries,
    }
    privacy = {"mechanism": "geometric", "epsilon": str(measurement_plan.cost.amount), **shared}
    levels = list(measurement_plan.levels)
    return {
        "budget": budget,
        "config": {"privacy": privacy},
        "levels": levels,
        "private": False,
        "status": "NOT PRIVATE",
    }
