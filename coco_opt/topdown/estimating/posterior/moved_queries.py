"""Where linear estimates refute the posterior of a query at the leaves, its answers move to the nearest tables'.

One concentration for all leaves cannot say that a few of them have an institution. There the posterior mean m of an
answer lies many standard errors from the unbiased linear estimate L, so far that the tables nearest to the noisy
answers (estimation "full") are better. If the posterior holds, with variances v, then E (L - m)^2 is var L - E v,
whatever the noise. A query is refuted where, over its leaves' answers,

1. the squared differences have beyond that a large share of the sum of var L, and by more than chance, and
2. few large differences are the reason. This is what limiting the translation from L to m to c standard errors of L
   would gain: with m' the limited mean, Stein's unbiased estimate of the gain is, over limited answers, the sum of

    (L - m)^2 - (L - m')^2 + 2 v - 2 var L.

The cells follow: a leaf's mean table is scaled to the new answers and to the other queries' own answers in turn
(iterative proportional fitting, Deming and Stephan 1940), and its draws to that table; each draw keeps its persons.
All sums above are sums of those draws. Where no query is refuted, no draw changes.

Source: Efron and Morris 1971 and 1972, limiting the risk of Bayes and empirical Bayes estimators; Stein 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Grouping, Operator
from coco_opt.posterior.comparison import Excess
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.estimating.posterior.correction import SAMPLED, DrawnTables, blocks_of, compared
from coco_opt.topdown.estimating.sparse_tables import SparseTables

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Draws

Wanted = dict[int, tuple[Ints, Floats]]
"""By leaf, counted from the first: which answers move, and all answers afterwards."""

_LIMIT = 2.0  # standard errors of the linear estimate
_GAIN = 0.1  # share of the sum of var L
_NOTICED = 0.1  # standard errors of the linear estimate by which an answer moves at least
_ROUNDS = 12  # of fitting cells to answers
_NOWHERE = 1e-3  # persons, spread as the root's, that a leaf's mean table has besides its draws


@dataclass(frozen=True, eq=False, slots=True)
class Moved:
    """Draws after queries moved, and which answers of each query did: leaf x answers + answer, rising."""

    drawn: DrawnTables
    rows: tuple[Ints, ...]

    @classmethod
    def of(
        cls, drawn: DrawnTables, linear: LinearEstimates, queries: Sequence[Operator], nearest: SparseTables
    ) -> Moved:
        """Move the leaves' answers to those of the ``nearest`` tables, the most refuted query first."""
        rows = [np.zeros(0, np.int64) for _ in queries]
        groupings = {
            place: query
            for place, query in enumerate(queries)
            if isinstance(query, Grouping) and 1 < query.answers < drawn.cells
        }
        left = set(groupings)
        while left:
            excess, place = max((_excess(drawn, linear, groupings[each]), each) for each in sorted(left))
            if excess <= 0.0:
                break
            left.remove(place)
            query = groupings[place]
            wanted = _wanted(drawn, linear, query, nearest)
            own = [leaf * query.answers + answers for leaf, (answers, _) in wanted.items()]
            rows[place] = np.concatenate([rows[place], *own])
            drawn = _moved(drawn, query, [each for each in groupings.values() if each is not query], wanted)
        return cls(drawn, tuple(rows))


def _excess(drawn: DrawnTables, linear: LinearEstimates, query: Grouping) -> float:
    """Return what squared differences have beyond the posterior's, over the sum of var L; 0 if it is not refuted."""
    total, gain = Excess(), 0.0
    for leaves in blocks_of(drawn, query, drawn.hierarchy.leaves, SAMPLED):
        mean, variance, estimate, error = _by_leaf(drawn, linear, query, leaves)
        total += Excess.of(estimate - mean, variance, error)
        gain += _gain(mean, variance, estimate, error)
    return total.share if total.refutes() and gain > _GAIN * total.error else 0.0


def _gain(mean: Floats, variance: Floats, estimate: Floats, error: Floats) -> float:
    """Return the estimated gain of limiting the distance of means to estimates, which are at least 0."""
    centre, reach = np.maximum(estimate, 0.0), _LIMIT * np.sqrt(error)
    limited = np.clip(mean, np.maximum(centre - reach, 0.0), centre + reach)
    after = (estimate - limited) ** 2 + 2.0 * error * (estimate > 0.0)
    return float(((estimate - mean) ** 2 + 2.0 * variance - after)[limited != mean].sum())


def _by_leaf(
    drawn: DrawnTables, linear: LinearEstimates, query: Grouping, leaves: range
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return means and variances of the draws of some leaves' answers, and estimates with their variances.

    All are [leaves, answers]. What is exact or not estimated has its mean for an estimate, and the variance 0.
    """
    own = compared(drawn, linear, drawn.hierarchy.levels - 1, leaves, query)
    estimate, error = np.where(own.estimated, own.estimate, own.mean), np.where(own.estimated, own.error, 0.0)
    mean, variance, estimate, error = np.stack([own.mean, own.variance, estimate, error]).reshape(4, len(leaves), -1)
    return mean, variance, estimate, error


def _wanted(drawn: DrawnTables, linear: LinearEstimates, query: Grouping, nearest: SparseTables) -> Wanted:
    """Return the leaves with answers that move; a leaf's answers add up to its persons as before."""
    first, wanted = drawn.hierarchy.leaves.start, {}
    for leaves in blocks_of(drawn, query, drawn.hierarchy.leaves):
        begin = leaves.start - first
        mean, _, _, error = _by_leaf(drawn, linear, query, leaves)
        answers = np.where(error > 0.0, query.apply(nearest.dense(begin, begin + len(leaves))), mean)
        answers *= mean.sum(axis=1, keepdims=True) / np.maximum(answers.sum(axis=1, keepdims=True), 1.0)
        moves = np.abs(answers - mean) > _NOTICED * np.sqrt(error)
        moves &= error > 0.0
        for row in np.flatnonzero(moves.any(axis=1)).tolist():
            wanted[begin + row] = np.flatnonzero(moves[row]), answers[row]
    return wanted


def _moved(drawn: DrawnTables, query: Grouping, others: Sequence[Grouping], wanted: Wanted) -> DrawnTables:
    """Return draws whose mean answers to a query are those that are wanted."""
    cells = np.bincount(drawn.draws.cell, drawn.draws.number, drawn.cells)
    somewhere = _NOWHERE * cells / max(float(cells.sum()), 1.0)
    changed = {}
    for leaf, (_, answers) in wanted.items():
        tables = _tables(drawn, leaf)
        mean = tables.mean(axis=0)
        margins = [(other, other.apply(mean)) for other in others]
        changed[leaf] = _scaled(tables, mean, _fitted(mean + somewhere, [*margins, (query, answers)]))
    return replace(drawn, draws=_with(drawn.draws, changed)) if changed else drawn


def _tables(drawn: DrawnTables, leaf: int) -> Ints:
    """Return the tables [draws, cells] of a leaf."""
    draws = drawn.draws
    tables = np.zeros((draws.offset.shape[0], drawn.cells), np.int64)
    for own, begin, end in zip(tables, draws.offset[:, leaf], draws.offset[:, leaf + 1], strict=True):
        own[draws.cell[begin:end]] = draws.number[begin:end]
    return tables


def _fitted(table: Floats, margins: Sequence[tuple[Grouping, Floats]]) -> Floats:
    """Return a table scaled to answers in turn; it has those of the last."""
    for _ in range(_ROUNDS):
        for query, answers in margins:
            own = query.apply(table)
            factors = np.divide(answers, own, out=np.zeros_like(own), where=own > 0.0)
            table = np.where(query.labels >= 0, table * factors[query.labels], table)
    return table


def _scaled(tables: Ints, mean: Floats, wanted: Floats) -> Ints:
    """Return a leaf's draws moved from one mean table to another; each keeps its persons."""
    fewer = np.divide(wanted, mean, out=np.ones_like(mean), where=mean > wanted)
    moved = tables * fewer + np.maximum(wanted - mean, 0.0)
    sums = moved.sum(axis=1, keepdims=True)
    moved *= np.divide(tables.sum(axis=1, keepdims=True), sums, out=np.zeros_like(sums), where=sums > 0.0)
    return np.diff(np.rint(np.cumsum(moved, axis=1)), axis=1, prepend=0.0).astype(np.int64)


def _with(draws: Draws, changed: dict[int, Ints]) -> Draws:
    """Return draws in which some leaves have other tables."""
    used = np.diff(draws.offset, axis=1)
    for leaf, tables in changed.items():
        used[:, leaf] = (tables > 0).sum(axis=1)
    ends = np.cumsum(used.reshape(-1)).reshape(used.shape)
    offset = np.concatenate([ends[:, :1] - used[:, :1], ends], axis=1)
    narrow = max(int(tables.max()) for tables in changed.values()) <= np.iinfo(draws.number.dtype).max
    cell = np.empty(int(ends[-1, -1]), draws.cell.dtype)
    number = np.empty(cell.size, draws.number.dtype if narrow else np.int32)
    edges = [-1, *sorted(changed), used.shape[1]]
    for d in range(used.shape[0]):
        for left, right in pairwise(edges):
            old, new = (slice(each[d, left + 1], each[d, right]) for each in (draws.offset, offset))
            cell[new], number[new] = draws.cell[old], draws.number[old]
        for leaf, tables in changed.items():
            new, (cells,) = slice(offset[d, leaf], offset[d, leaf + 1]), np.nonzero(tables[d])
            cell[new], number[new] = cells, tables[d, cells]
    return draws._replace(offset=offset, cell=cell, number=number)
