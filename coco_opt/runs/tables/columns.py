"""The columns of what a release of tables states beside its tables: exact answers and unbiased estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.invariants import Invariants
from coco_opt.topdown.linear import LinearStage
from coco_opt.topdown.queries import Query
from coco_opt.topdown.uncertainty import standard_errors

MOST_CELLS = 20_000_000
"""Estimates of a level with more regions x cells than this are left out: they take long and are mostly noise."""


def exact_columns(facts: Invariants) -> dict[str, Any] | None:
    """Return lower and upper sides of all public answers, None without any."""
    if not facts:
        return None
    parts = [
        _rows(facts.hierarchy, one.query, one.level, {"lower": one.lower, "upper": _sides(one.upper)})
        for one in facts.bounds
    ]
    return _joined(parts)


def estimate_columns(linear: LinearStage, workload: Sequence[Query]) -> dict[str, Any] | None:
    """Return the linear unbiased estimates of the workload with their standard errors, in persons.

    They may be negative and fractional, and do not add up to the tables; answers that were not determined are left
    out, and so are levels of more than ``MOST_CELLS``.
    """
    parts = []
    hierarchy = linear.hierarchy
    for level in range(hierarchy.levels):
        if len(hierarchy.level_range(level)) * linear.normal[level].cells > MOST_CELLS:
            continue
        tables = linear.tables(level)
        for query in workload:
            errors = standard_errors(linear, query.operator, level)
            values = {"estimate": query.operator.apply(tables), "standard_error": errors}
            rows = _rows(hierarchy, query, level, values)
            known = np.isfinite(rows["standard_error"])
            parts.append({name: column[known] for name, column in rows.items()})
    return _joined(parts) if parts else None


def _sides(upper: NDArray[np.int64]) -> NDArray[Any]:
    """Return upper sides with None for none."""
    sides = upper.astype(object)
    sides[upper >= UNBOUNDED] = None
    return sides


def _rows(hierarchy: Any, query: Query, level: int, values: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    regions = hierarchy.level_range(level)
    paths = np.array(hierarchy.paths[regions.start : regions.stop], dtype=object)
    rows = len(regions) * query.answers
    return {
        "level": np.full(rows, level, np.int32),
        "region": np.repeat(paths, query.answers),
        "query": np.full(rows, query.text, dtype=object),
        "answer": np.tile(np.array(query.labels(), dtype=object), len(regions)),
        **{name: column.reshape(-1) for name, column in values.items()},
    }


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
