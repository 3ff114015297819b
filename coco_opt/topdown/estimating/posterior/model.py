"""All that is measured about the tables, and all that must hold, as the kernels of the posterior read it.

Classes of cells, in which persons gather with concentrations of their own, and how they are chosen.

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

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator
from coco_opt.privacy import DiscreteGaussian, Geometric, Measurement, NoiseDistribution
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.noisy_measurements import RegionMeasurements, Stored, TableMeasurements, measured_answers
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coco_opt.kernels.posterior_table_state import Answers


_REGIONS = 256  # of a level whose answers are subtracted together
_SMALL = 2**30  # values of at most this need 32 bits


@dataclass(frozen=True, eq=False, slots=True)
class NoisyBlock:
    """Noisy answers [regions, answers] of one measurement to one query at a level; ``matrix`` (answers, cells).

    ``precision`` float64[regions] is 1 / (2 sigma^2) of discrete Gaussian noise where regions differ, 0 for those that
    were not measured; ``distribution`` is then that of the least noise.
    """

    level: int
    matrix: csr_array
    answers: RegionMeasurements
    distribution: NoiseDistribution
    precision: Floats | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """The likelihood of all tables: noisy answers, each of its own measurement, and constraints."""

    hierarchy: Hierarchy
    schema: Schema
    noisy: tuple[NoisyBlock, ...]
    system: ConstraintSystem

    @classmethod
    def of(cls, measurement: Measurement, measured: TableMeasurements) -> Model:
        """Read the answers of one measurement, or of several of the same data, each with its own distribution."""
        noisy = tuple(block for each in measurement.every for block in _noisy_blocks(each))
        return cls(measured.hierarchy, measured.schema, noisy, measured.invariants.system)

    @property
    def connected(self) -> bool:
        """Return whether moves of one person connect all tables that meet the constraints.

        They do where the constraints' sets (leaves below a region, cells) are nested or disjoint: the integer tables
        are then an M-natural-convex set (Murota 2003, section 4.7), in which any two are connected by steps that add a
        person, remove one, or move one, to and from any cells of any leaves.
        """
        return self.system.by_sums

    def spread(self) -> float:
        """Return the least noise of the answers about leaves, or of all: the size of useful steps."""
        every = [(block.level, float(block.distribution.variance)) for block in self.noisy]
        last = max((level for level, _ in every), default=0)
        return float(np.sqrt(min((variance for level, variance in every if level == last), default=1.0)))

    def answers(self, tables: tuple[SparseTables, ...]) -> tuple[Answers, NDArray[Any]]:
        """Return the answers by level and cell, and what tables of all levels leave of their values.

        These have 32 bits where they fit. Raises ProblemError where the tables break a constraint.
        """
        from coco_opt.kernels import posterior_table_state as state

        parts = [*self._noisy_parts(), *self._constraint_parts()]
        first = np.concatenate([[0], np.cumsum([math.prod(part.values.shape) for part in parts])])
        sides = np.concatenate([[0], np.cumsum([part.low.size for part in parts])])
        ends = np.concatenate([[0], np.cumsum([part.precision.size for part in parts])])
        columns = [part.entries(first[n], first[n] - sides[n], ends[n]) for n, part in enumerate(parts)]
        level, cell, *rest = (np.concatenate([column[k] for column in columns]) for k in range(8))
        order = np.lexsort((rest[0], cell, level))
        key = (level * (self.schema.size + 1) + cell)[order]
        start = np.searchsorted(key, np.arange(self.hierarchy.levels * (self.schema.size + 1))).astype(np.int64)
        place, stride, coefficient, kind, weight, side = (np.ascontiguousarray(column[order]) for column in rest)
        low, high = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(part, name).reshape(-1) for part in parts)])
            for name in ("low", "high")
        )
        start = start.reshape(self.hierarchy.levels, -1)
        _, column = np.unique(place, return_inverse=True)
        precision = np.concatenate([np.zeros(0), *(part.precision for part in parts)])
        answers = state.Answers(start, place, stride, coefficient, kind, weight, side, column, low, high, precision)
        return answers, _left_over(parts, tables)

    def _noisy_parts(self) -> Iterator[_Part]:
        from coco_opt.kernels import posterior_table_state as state

        none = np.zeros((0, 0), np.int64)
        for block in self.noisy:
            distribution = block.distribution
            if isinstance(distribution, Geometric):
                kind, weight = state.GEOMETRIC, 1.0 / float(distribution.scale)
            elif isinstance(distribution, DiscreteGaussian):
                kind, weight = state.GAUSSIAN, 0.5 / float(distribution.squared_deviation)
            else:
                raise ProblemError(f"the posterior does not know {distribution}")
            kind = kind if block.precision is None else state.BY_REGION
            precision = np.zeros(0) if block.precision is None else block.precision
            yield _Part(block.level, block.matrix.tocsc(), block.answers, kind, weight, none, none, precision)

    def _constraint_parts(self) -> Iterator[_Part]:
        from scipy.sparse import csc_array

        from coco_opt.kernels import posterior_table_state as state

        for level in sorted({row.level for row in self.system.rows}):
            rows = [row for row in self.system.rows if row.level == level]
            weights = np.array([row.coefficients[self.system.classes.labels] for row in rows])
            low, high = (np.stack([getattr(row, name) for row in rows], axis=1) for name in ("lower", "upper"))
            low, high = np.maximum(low, -UNBOUNDED), np.minimum(high, UNBOUNDED)
            # What is left of 0 is minus the answer, so the sides change places.
            yield _Part(level, csc_array(weights), np.zeros_like(low), state.BETWEEN, 0.0, -high, -low, np.zeros(0))


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """A block before it is laid out: ``matrix`` (answers, cells) by columns, values [regions, answers], sides."""

    level: int
    matrix: Any
    values: RegionMeasurements
    kind: int
    weight: float
    low: Ints
    high: Ints
    precision: Floats

    def entries(self, first: int, side: int, precision: int) -> tuple[NDArray[Any], ...]:
        """Return for each entry level, cell, first, stride, coefficient, kind, weight and side.

        ``precision`` is where the block's precisions by region begin, which takes the place of a side.
        """
        side = precision if self.precision.size else side
        answer, size = self.matrix.indices.astype(np.int64), self.matrix.indices.size
        cell = np.repeat(np.arange(self.matrix.shape[1]), np.diff(self.matrix.indptr))
        return (
            np.full(size, self.level, np.int64),
            cell.astype(np.int64),
            answer + int(first),
            np.full(size, self.values.shape[1], np.int64),
            np.rint(self.matrix.data).astype(np.int64),
            np.full(size, self.kind, np.int64),
            np.full(size, self.weight),
            np.full(size, int(side), np.int64),
        )


def _noisy_blocks(measurement: Measurement) -> Iterator[NoisyBlock]:
    """Yield the noisy answers of one measurement, a query and level at a time."""
    plan = TableQueries.of(measurement.measurement_plan)
    differ = {(each.level, name): each.precisions(name) for each in plan.variances for name in each.stated}
    for level, query, answers in measured_answers(measurement, plan):
        matrix = plan.plan.queries[query].operator.to_sparse()
        precision = differ.get((level, plan.plan.queries[query].name))
        yield NoisyBlock(level, matrix, Stored(answers), answers.query.distribution, precision)


def _left_over(parts: Sequence[_Part], tables: Sequence[SparseTables]) -> NDArray[Any]:
    """Return the values of all parts less the answers of tables, one after the other; some regions at a time."""
    from scipy.sparse import csr_array

    small = int(tables[0].counts.sum()) < _SMALL
    out = np.empty(sum(math.prod(part.values.shape) for part in parts), np.int32 if small else np.int64)
    at = 0
    for part in parts:
        across = csr_array(part.matrix.T.astype(np.int64))
        for begin in range(0, part.values.shape[0], _REGIONS):
            some = slice(begin, min(begin + _REGIONS, part.values.shape[0]))
            own = tables[part.level].part(some.start, some.stop)
            rows = csr_array((own.counts, own.cells, own.offsets), shape=(own.regions, own.size))
            left = part.values[some] - (rows @ across).toarray()
            if part.low.size and ((left < part.low[some]) | (left > part.high[some])).any():
                raise ProblemError("the tables that the posterior begins with break a constraint")
            if int(np.abs(left).max(initial=0)) >= _SMALL:
                out = out.astype(np.int64, copy=False)
            out[at : at + left.size] = left.reshape(-1)
            at += left.size
    return out


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
    owner, part, counts = leaves.owners, leaves.cells, leaves.counts
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
    owner = np.concatenate([leaves.owners, owner])
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
