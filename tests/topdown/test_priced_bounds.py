"""Lower bounds on classes that few prices keep: the splits of a general solver, after few rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.split import SplitNewton

from coco_opt.array_types import Floats
from coco_opt.operators import Grouping, Operator
from coco_opt.problems.sparse_rows import stacked
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.problems.topdown_split.level import SplitLevel
from coco_opt.solving import solve
from coco_opt.topdown.estimating.splitting.bounded_classes import PricedBounds

CELLS, CLASSES = 24, 4
LABELS = np.where(np.arange(CELLS) < 16, np.arange(CELLS) % CLASSES, -1)
QUERIES: list[Operator] = [Grouping(np.zeros(CELLS, np.int64), 1), Grouping(np.arange(CELLS), CELLS)]
COUNTED = Grouping(LABELS, CLASSES)


class Counted(SplitNewton):
    """The solver, and how often it was called."""

    calls = 0

    def split_level(self, level: SplitLevel) -> Any:
        """Count a call."""
        type(self).calls += 1
        return super().split_level(level)


def noisy(rng: np.random.Generator, children: int, size: float) -> tuple[Floats, list[SplitTerm]]:
    """Return a parent's table, and noisy answers to two queries in its children."""
    true = rng.poisson(rng.gamma(0.5, 2.0 * size, (children, CELLS))).astype(np.float64)
    terms = [
        SplitTerm(query, query.apply(true) + rng.normal(0.0, 1.0 + size**0.5, (children, query.answers)), weight)
        for query, weight in ((QUERIES[0], np.full(children, 3.0)), (QUERIES[1], rng.uniform(0.5, 1.5, children)))
    ]
    return true.sum(axis=0), terms


@pytest.mark.parametrize(("seed", "children", "size"), [(0, 12, 30.0), (1, 8, 30.0), (2, 40, 300.0)])
def test_prices_find_the_split_of_a_general_solver(seed: int, children: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    parent, terms = noisy(rng, children, size)
    cells, rows = np.flatnonzero(parent), stacked(QUERIES, np.arange(CELLS))
    level = SplitLevel(
        rows,
        np.repeat([0, 1], [1, CELLS]),
        np.array([0, cells.size]),
        cells,
        parent[cells],
        np.array([0, children]),
        np.hstack([term.answers for term in terms]),
        np.stack([np.asarray(term.weights).reshape(children, -1)[:, 0] for term in terms], axis=1),
    )
    free, _ = SplitNewton().split_level(level)
    sums = COUNTED.apply(level_table(level, free))
    lower = np.zeros((children, CLASSES))
    binding = rng.integers(children, size=3), np.arange(3)  # a child of each of three classes
    more = np.minimum(rng.uniform(0.5, 3.0, 3), 0.3 * (COUNTED.apply(parent)[:3] - sums[binding]))
    lower[binding] = sums[binding] + more
    Counted.calls = 0
    tables, judged, rested = PricedBounds(level, LABELS, lower).solve(Counted())
    assert rested.all()
    assert 1 < Counted.calls <= 12
    assert judged.gap[0] <= 1e-6 * max(1.0, judged.objective[0])
    found = level_table(level, tables)
    assert (COUNTED.apply(found) >= lower - 1e-9 * max(1.0, parent.max())).all()
    constraints = LinearRows(COUNTED, lower, np.full_like(lower, np.inf))
    other = solve(TopdownSplit(terms, parent, constraints), "clarabel")
    assert judged.objective[0] == pytest.approx(other.objective, rel=1e-5)
    np.testing.assert_allclose(found, other.value, atol=2e-3 * max(1.0, float(parent.max())) ** 0.5)


def level_table(level: SplitLevel, tables: Floats) -> Floats:
    """Return the only parent's children [children, all cells]."""
    out = np.zeros((level.children[-1], CELLS))
    out[:, level.cells] = tables.reshape(level.cells.size, -1).T
    return out
