"""Top-down splits of twelve cells drawn at random, over every set of queries, with and without parent and sides."""

from __future__ import annotations

import numpy as np

from coco_opt import LinearRows, SplitTerm, TopdownSplit
from coco_opt.operators import Grouping, Kronecker, Operator, identity, total

LEVELS = (2, 3, 2)
CELLS = 12


def marginal(*axes: int) -> Grouping:
    """Return the sums over all attributes but these."""
    index = np.indices(LEVELS).reshape(3, -1)
    labels = np.zeros(CELLS, dtype=np.int64)
    for axis in axes:
        labels = labels * LEVELS[axis] + index[axis]
    return Grouping(labels, int(labels.max()) + 1)


QUERIES: dict[str, tuple[Operator, ...]] = {
    "all": (identity(CELLS), total(CELLS), marginal(0), marginal(1), marginal(0, 2)),
    "marginals": (total(CELLS), marginal(0, 1), marginal(1, 2)),
    "ranges": (identity(CELLS), Kronecker((np.eye(2), np.tril(np.ones((3, 3))), np.array([[1.0, -1.0]])))),
}


def drawn(
    seed: int, queries: str = "all", children: int = 4, *, parent: bool = True, sides: str = "none"
) -> TopdownSplit:
    """Return a sparse parent split at random, with noisy answers; ``sides`` are none, equal (totals) or ranges."""
    rng = np.random.default_rng(seed)
    integer_table = np.where(rng.random(CELLS) < 0.7, rng.geometric(0.1, CELLS), 0)
    table = np.array([rng.multinomial(count, np.full(children, 1 / children)) for count in integer_table]).T
    terms = []
    for operator in QUERIES[queries]:
        answers = operator.apply(table.astype(np.float64))
        terms.append(SplitTerm(operator, answers + rng.normal(0, 3, answers.shape), rng.uniform(0.05, 0.2, children)))
    rows = None
    if sides != "none":
        operator = total(CELLS) if sides == "equal" else marginal(0)
        exact = operator.apply(table).astype(np.float64)
        rows = LinearRows(operator, exact, exact) if sides == "equal" else LinearRows(operator, exact - 1, exact + 1)
    return TopdownSplit(terms, integer_table if parent else None, rows)


CASES: dict[str, TopdownSplit] = {
    f"{queries}-{'parent' if parent else 'root'}-{sides}": drawn(7, queries, parent=parent, sides=sides)
    for queries in QUERIES
    for parent in (True, False)
    for sides in ("none", "equal", "ranges")
}
