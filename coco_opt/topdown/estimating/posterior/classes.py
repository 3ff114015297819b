"""Classes of cells, in which persons gather with concentrations of their own, and how they are chosen.

One concentration for all cells says that all vary alike between leaves of a size. Where few leaves have a kind of
person, as prisoners, it is too high for that attribute and too low for the others. So cells can be divided by one
query: a leaf's persons are spread over its answers, the classes, by one Dirichlet-multinomial distribution, and those
of a class over its cells by another, each with concentrations of its own: a Dirichlet tree (Dennis 1991).

Which query divides the cells, if any, is chosen from tables that a pilot chain drew with all cells in one class: by
how probable they are given the shares above the leaves, at the best concentrations. These tables depend on the noisy
answers alone, and look more like one class than the true ones do, so the choice is rather no classes than wrong ones.

A tree is ``up`` int64[parts]: the class of each cell, then of each class, which comes after all its parts; the last
part are all cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import Query

_MOST_LEAVES, _MOST_CLASSES = 4096, 64
_CLEAR, _WORTH = 10.0, 0.02  # gains of log probability that are enough, in all and for each leaf
_CONCENTRATIONS = np.geomspace(0.05, 1e6, 30)


def one_class(cells: int) -> Ints:
    """Return the tree whose only class has all cells."""
    return np.full(cells + 1, cells, np.int64)


def dividing(queries: Sequence[Query], cells: int) -> list[Query]:
    """Return the queries whose answers may be classes: not too many, and fewer than the cells."""
    sizes = [np.unique(query.operator.labels).size if isinstance(query.operator, Grouping) else 0 for query in queries]
    return [query for query, size in zip(queries, sizes, strict=True) if 1 < size <= min(_MOST_CLASSES, cells - 1)]


def divided(query: Operator) -> Ints:
    """Return the tree of the classes of cells in one answer of a query; a cell alone needs no class."""
    assert isinstance(query, Grouping)
    _, labels, sizes = np.unique(query.labels, return_inverse=True, return_counts=True)
    several = np.flatnonzero(sizes > 1)
    whole = labels.size + several.size
    place = np.full(sizes.size, whole)
    place[several] = labels.size + np.arange(several.size)
    return np.concatenate([place[labels], np.full(several.size + 1, whole)]).astype(np.int64)


def persons_by_class(up: Ints, leaves: SparseTables) -> Ints:
    """Return the persons of each leaf in each class of cells, int64[leaves, classes]."""
    persons = np.zeros((leaves.regions, up.size - leaves.size), np.int64)
    owner, part, counts = np.repeat(np.arange(leaves.regions), np.diff(leaves.offsets)), leaves.cells, leaves.counts
    while owner.size:
        part = up[part]
        np.add.at(persons, (owner, part - leaves.size), counts)
        below = part < up.size - 1
        owner, part, counts = owner[below], part[below], counts[below]
    return persons


def shares_within(up: Ints, share: Floats) -> Floats:
    """Return the shares [rows, parts] of cells and classes in the class above from those of the cells in all."""
    rows, cells = share.shape
    every = np.concatenate([share, np.zeros((rows, up.size - cells))], axis=1)
    for part in range(up.size - 1):
        every[:, up[part]] += every[:, part]
    return np.asarray(every / every[:, up])


def best_division(queries: Sequence[Query], leaves: SparseTables, share: Floats, row: Ints) -> Query | None:
    """Return the query whose answers divide the cells best, None for no classes.

    ``share`` [rows, cells] are shares of the cells above the leaves, whose rows are ``row`` [leaves].
    """
    leaves, row = _some(leaves, row)
    least = log_probability(one_class(leaves.size), leaves, share, row) + max(_CLEAR, _WORTH * leaves.regions)
    values = [log_probability(divided(query.operator), leaves, share, row) for query in queries]
    best = int(np.argmax(values))
    return queries[best] if values[best] > least else None


def log_probability(up: Ints, leaves: SparseTables, share: Floats, row: Ints) -> float:
    """Return the log probability of the leaves' tables at the best concentrations of each class, one for each size.

    Factors that all trees have in common are left out.
    """
    persons, within = persons_by_class(up, leaves), shares_within(up, share)
    owner, place = np.nonzero(persons[:, :-1])
    part = np.concatenate([leaves.cells, place + leaves.size])
    counts = np.concatenate([leaves.counts, persons[owner, place]])
    owner = np.concatenate([np.repeat(np.arange(leaves.regions), np.diff(leaves.offsets)), owner])
    shares, number, sizes = within[row[owner], part], up[part] - leaves.size, sizes_of(persons)
    value = 0.0
    for k, of_class in enumerate(sizes.T):
        for size in np.unique(of_class):
            own = (number == k) & (sizes[owner, number] == size)
            value += _best(persons[of_class == size, k], counts[own], shares[own])
    return value


def sizes_of(persons: Ints) -> Ints:
    """Return how often numbers of persons can be halved, as ``size_of`` of the kernels does."""
    from coco_opt.kernels.posterior_table_state import SIZES

    return np.asarray(np.clip(np.frexp(persons)[1] - 1, 0, SIZES - 1), np.int64)


def _best(persons: Ints, counts: Ints, share: Floats) -> float:
    """Return the largest log probability of the counts of a class's parts over concentrations."""
    from scipy.special import gammaln

    sizes, leaves = np.unique(persons[persons > 0], return_counts=True)
    values = [
        (leaves * (gammaln(a) - gammaln(a + sizes))).sum() + (gammaln(a * share + counts) - gammaln(a * share)).sum()
        for a in _CONCENTRATIONS
    ]
    return float(max(values))


def _some(leaves: SparseTables, row: Ints) -> tuple[SparseTables, Ints]:
    """Return some leaves, evenly spread, where there are very many."""
    step = -(-leaves.regions // _MOST_LEAVES)
    if step == 1:
        return leaves, row
    used = np.diff(leaves.offsets)
    own = np.repeat(np.arange(leaves.regions) % step == 0, used)
    offsets = np.concatenate([[0], np.cumsum(used[::step])]).astype(np.int64)
    return SparseTables(offsets, leaves.cells[own], leaves.counts[own], leaves.size), row[::step]
