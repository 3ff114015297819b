"""Markov chains over the leaves' integer tables and their prior: thin shells around the compiled sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.estimating.posterior.model import Model, one_class, persons_by_class, shares_within, sizes_of
from coco_opt.topdown.estimating.sparse_tables import SparseTables

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_moves import Proposals
    from coco_opt.kernels.posterior_table_state import Answers, Prior, State, Tree


_STRENGTH = 20.0  # of every level's shares around their parents' at the start
_LEAST, _MOST = 1e-2, 1e6  # ends of the concentrations
_ALIKE = 2.0  # precision of the differences of their logs between leaves of a size and of the next one
_GROWTH = 1.4  # of the bins of totals above 3
_BIN_WEIGHT = 0.5  # prior weight of a bin of totals
_FLAT = 0.1  # of the proposed cells that are any cell
_LEAST_POURED = 8  # persons that may be poured whatever the noise
_SMALL_TOTALS = 4096  # whose bins are looked up


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How moves are proposed.

    A leaf has ``least`` moves a sweep and ``per_cell`` more for each cell occupied at the start. The shares are those
    of: more or fewer persons; between a leaf's cells; between leaves in one cell; between leaves and cells; pouring.
    ``near`` is the share of partners below the same parent, and of some of the others. Up to ``furthest`` times the
    noise of a leaf's answers move, persons more or fewer one by one in the share ``single``; tables are poured of up to
    ``poured`` times it.
    """

    least: int = 10
    per_cell: int = 3
    shares: tuple[float, ...] = (0.3, 0.18, 0.15, 0.07, 0.3)
    near: float = 0.95
    single: float = 0.05
    furthest: float = 1.2
    poured: float = 4.0


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """What all chains share and only read; ``up`` is the tree of classes of cells."""

    tree: Tree
    answers: Answers
    proposals: Proposals
    above: Ints
    levels: Ints
    edge: Ints
    up: Ints

    @classmethod
    def of(cls, model: Model, answers: Answers, leaves: SparseTables, options: MoveOptions) -> Layout:
        """Lay out the regions above each leaf, the rows of the shares and the proposals; all cells are in one class."""
        from coco_opt.kernels.posterior_table_moves import Proposals
        from coco_opt.kernels.posterior_table_state import Tree

        hierarchy = model.hierarchy
        above = _above(hierarchy)
        starts = hierarchy.leaf_starts()
        inner = hierarchy.leaves.start
        # Row 0 is the base; the region r is row r + 1.
        row = np.zeros(above.shape[0], np.int64) if inner == 0 else hierarchy.parent[inner:] + 1
        visits = options.least + options.per_cell * np.diff(leaves.offsets)
        tree = Tree(
            above.astype(np.int32),
            np.concatenate([[0], np.cumsum([start.size for start in starts])])[:-1].astype(np.int64),
            np.concatenate(starts),
            row.astype(np.int64),
            visits.astype(np.int64),
        )
        proposals = Proposals(
            np.cumsum(options.shares),
            _partner_levels(hierarchy.levels, options.near),
            _steps(model.spread(), options),
            np.array([max(_LEAST_POURED, int(options.poured * model.spread()))], np.int64),
        )
        rows = np.concatenate([[0], hierarchy.parent[:inner] + 1]).astype(np.int64)
        levels = np.concatenate([[0], hierarchy.level[:inner]]).astype(np.int64)
        persons = _persons(leaves)
        most = 2 * int(persons.max(initial=0)) + int(np.ceil(40.0 * model.spread())) + 16
        return cls(tree, answers, proposals, rows, levels, _edges(most), one_class(leaves.size))


class TableChain:
    """One chain: the state, its own prior, and how they move on; the ``values`` are its own from then on."""

    def __init__(self, layout: Layout, values: NDArray[Any], leaves: SparseTables, word: np.uint64) -> None:
        self._layout = layout
        self.state = _state(layout, leaves, values, word)
        self.prior = _prior(layout, leaves)
        self._tables = np.zeros(self.prior.share.shape, np.int64)
        self._opened = np.zeros(self.prior.strength.shape, np.int64)
        rows, bins = self.prior.log_probability.shape
        self._sent = np.zeros((rows, bins), np.int64)
        self._mass, self._precision = np.zeros(bins), np.ones(1)
        self._whole = np.zeros((2, layout.up.size))
        self._reserve = 2 * leaves.size + 8

    def advance(self, sweeps: int, *, learn: bool = True) -> None:
        """Take so many sweeps, each followed by a draw of the prior unless it is not to ``learn``."""
        for _ in range(sweeps):
            self.sweep()
            if learn:
                self.draw_prior()

    def disperse(self, sweeps: int, temperature: float) -> None:
        """Take sweeps with log probabilities of the noise divided by ``temperature``: chains begin at different tables.

        Constraints hold, and the prior stays as it is.
        """
        layout, answers = self._layout, self._layout.answers
        weight, precision = answers.weight / temperature, answers.precision / temperature
        self._layout = replace(layout, answers=answers._replace(weight=weight, precision=precision))
        self.advance(sweeps, learn=False)
        self._layout = layout

    def sweep(self) -> None:
        """Visit every leaf once; the pool of slots grows as needed."""
        from coco_opt.kernels import posterior_table_moves as moves

        layout, leaf = self._layout, 0
        while True:
            leaf = moves.sweep(
                layout.tree, layout.answers, self.prior, self.state, layout.proposals, leaf, self._reserve
            )
            if leaf == layout.tree.row.size:
                return
            self._grow(self._reserve * int(layout.tree.moves[leaf] + 1))

    def draw_prior(self) -> None:
        """Draw shares, concentrations and the distribution of the leaves' totals given the tables."""
        self.draw_tables()
        self.draw_strengths()
        self.draw_shares()
        self.draw_totals()

    def draw_tables(self) -> None:
        """Draw the auxiliary numbers of tables of all regions."""
        from coco_opt.kernels import posterior_table_shares as shares

        layout = self._layout
        shares.draw_tables(layout.tree, self.prior, self.state, layout.above, layout.levels, self._tables, self._opened)

    def draw_strengths(self) -> None:
        """Draw the concentrations of every level and class, the leaves' of every size, given the numbers of tables."""
        from coco_opt.kernels import posterior_table_shares as shares

        layout, strength, words = self._layout, self.prior.strength, self.state.words
        sent = np.zeros((self.prior.share.shape[0], strength.shape[1]), np.int64)
        for part in range(layout.up.size - 1):
            sent[:, layout.up[part] - self.prior.draw.shape[1]] += self._tables[:, part]
        for level in range(int(layout.levels.max(initial=-1)) + 1):
            customers = sent[1:][layout.levels[1:] == level]
            for place, own in enumerate(np.ascontiguousarray(customers.T)):
                opened, before = self._opened[level, place], strength[level, place]
                strength[level, place] = shares.draw_strength(own, opened, before, _LEAST, _MOST, 0.0, 0.0, words)
        own = np.empty(self.state.used.size, np.int64)
        for place in range(strength.shape[1]):
            shares.draw_strengths(self.prior, self.state, place, self._opened, _LEAST, _MOST, _ALIKE, own)

    def draw_shares(self) -> None:
        """Draw the shares of all regions given the numbers of tables."""
        from coco_opt.kernels import posterior_table_shares as shares

        layout = self._layout
        shares.draw_shares(self.prior, layout.above, layout.levels, self._tables, self._whole, self.state.words)
        shares.set_draw(self.prior, _FLAT)

    def draw_totals(self) -> None:
        """Draw how the leaves' totals are distributed below every region, and how alike the distributions are."""
        from coco_opt.kernels import posterior_table_shares as shares
        from coco_opt.kernels import posterior_table_totals as totals

        layout, prior, sent, words = self._layout, self.prior, self._sent, self.state.words
        above, levels, likeness = layout.above, layout.levels, prior.likeness
        customers, opened = np.zeros(len(sent), np.int64), np.zeros(likeness.size, np.int64)
        totals.send_totals(layout.tree, prior, self.state, above, levels, sent, customers, opened)
        for level in range(1, likeness.size):
            own, before = customers[levels == level], likeness[level]
            likeness[level] = shares.draw_strength(own, opened[level], before, _LEAST, _MOST, 0.0, 0.0, words)
        # The root is row 1, or the base where it is itself the only leaf.
        root = min(1, len(sent) - 1)
        totals.draw_root(prior, root, sent[root], self._precision, self._mass, words)
        totals.draw_below(prior, above, levels, sent, self._mass, words)

    def _grow(self, reserve: int) -> None:
        """Give the pool more room than it needs."""
        from coco_opt.kernels.posterior_table_state import compact

        old = self.state
        size = 2 * int(old.used.sum()) + 4 * old.used.size + 2 * reserve
        self.state = old._replace(
            first=old.first.copy(),
            room=old.room.copy(),
            used=old.used.copy(),
            cell=np.zeros(size, np.int32),
            number=np.zeros(size, np.int32),
            tail=old.tail.copy(),
        )
        compact(self.state, old)

    def strengths(self) -> Floats:
        """Return the concentrations of all cells by level, the leaves' one a mean over the leaves with persons."""
        from coco_opt.kernels.posterior_table_state import SIZES

        persons, strength = self.state.persons[:, -1], self.prior.strength[:, -1]
        of_leaves = strength[-SIZES:][sizes_of(persons[persons > 0])]
        return np.append(strength[:-SIZES], of_leaves.mean() if of_leaves.size else strength[-SIZES])

    def leaves(self) -> SparseTables:
        """Return the present tables of the leaves."""
        state, cells = self.state, self.prior.draw.shape[1]
        owner = np.repeat(np.arange(state.used.size), state.used)
        ends = np.cumsum(state.used)
        slot = np.arange(int(ends[-1])) - (ends - state.used)[owner] + state.first[owner]
        order = np.lexsort((state.cell[slot], owner))
        offsets = np.concatenate([[0], ends]).astype(np.int64)
        chosen, numbers = (part[slot][order].astype(np.int64) for part in (state.cell, state.number))
        return SparseTables(offsets, chosen, numbers, cells)


def _above(hierarchy: Hierarchy) -> Ints:
    """Return the region above each leaf at every level, counted within its level, int64[leaves, levels]."""
    regions, columns = np.asarray(hierarchy.leaves, np.int64), []
    for level in range(hierarchy.levels - 1, -1, -1):
        columns.append(regions - hierarchy.level_range(level).start)
        regions = hierarchy.parent[regions]
    return np.stack(columns[::-1], axis=1)


def _partner_levels(levels: int, near: float) -> Floats:
    """Return the cumulative probabilities of the levels whose regions hold both partners."""
    inner = max(levels - 1, 1)
    probability = np.full(inner, (1.0 - near) / inner)
    probability[-1] += near
    return np.cumsum(probability)


def _steps(spread: float, options: MoveOptions) -> Ints:
    """Return the numbers of persons more or fewer, one of them chosen at random; no move takes more than the last."""
    furthest = max(2.0, options.furthest * spread)
    several = 128 - int(128 * options.single)
    longer = np.ceil(furthest * (np.arange(several) + 0.5) / several).astype(np.int64)
    return np.concatenate([np.ones(128 - several, np.int64), np.minimum(longer, 2**20)])


def _edges(most: int) -> Ints:
    """Return the edges of the bins of totals 0 .. most or more: 0 to 3 alone, then wider and wider."""
    edges = [0, 1, 2, 3, 4]
    while edges[-1] <= most:
        edges.append(max(edges[-1] + 1, int(edges[-1] * _GROWTH)))
    return np.array(edges, np.int64)


def _persons(leaves: SparseTables) -> Ints:
    sums = np.concatenate([[0], np.cumsum(leaves.counts)])
    return np.diff(sums[leaves.offsets]).astype(np.int64)


def _state(layout: Layout, leaves: SparseTables, values: NDArray[Any], word: np.uint64) -> State:
    """Return the state of given tables, each with a little room."""
    from coco_opt.kernels.posterior_table_state import State

    used = np.diff(leaves.offsets).astype(np.int64)
    room = np.minimum(used + used // 2 + 4, leaves.size)
    ends = np.cumsum(room)
    first = ends - room
    size = int(ends[-1]) + 64 * leaves.size + 1024
    cell, number = np.zeros(size, np.int32), np.zeros(size, np.int32)
    slot = np.repeat(first - leaves.offsets[:-1], used) + np.arange(leaves.cells.size)
    cell[slot], number[slot] = leaves.cells, leaves.counts
    return State(
        first,
        room,
        used,
        persons_by_class(layout.up, leaves),
        cell,
        number,
        np.array([ends[-1]], np.int64),
        values,
        np.array([word], np.uint64),
        np.zeros(leaves.size, np.int64),
        np.zeros(leaves.size, np.int64),
        np.zeros(int(layout.answers.column.max(initial=0)) + 1, np.int64),
        np.zeros(layout.answers.first.size, np.int64),
        np.zeros(layout.up.size - leaves.size, np.int64),
        np.zeros((4, 2), np.int64),
    )


def _prior(layout: Layout, leaves: SparseTables) -> Prior:
    """Return a first prior: shares and totals as in the tables that the chain begins with."""
    from coco_opt.kernels import posterior_table_shares as shares
    from coco_opt.kernels.posterior_table_state import SIZES, Prior

    rows, cells = layout.above.size, leaves.size
    owner = layout.tree.row[leaves.owners]
    share = np.zeros((rows, cells))
    np.add.at(share, (owner, leaves.cells), leaves.counts)
    for row in range(rows - 1, 0, -1):
        share[layout.above[row]] += share[row]
    share[0] = 1.0 / cells  # no cell is likelier before any answer
    for row in range(1, rows):
        share[row] = (share[row] + _STRENGTH * share[layout.above[row]]) / (share[row].sum() + _STRENGTH)
    bins = np.searchsorted(layout.edge, _persons(leaves), side="right") - 1
    mass = np.bincount(bins, minlength=layout.edge.size - 1) + _BIN_WEIGHT
    up, levels = layout.up, layout.tree.above.shape[1]
    prior = Prior(
        layout.edge,
        np.repeat(np.arange(layout.edge.size - 1), np.diff(layout.edge))[:_SMALL_TOTALS],
        np.tile(np.log(mass / mass.sum() / np.diff(layout.edge)), (rows, 1)),
        up,
        shares_within(up, share),
        np.zeros_like(share),
        np.full((levels - 1 + SIZES, up.size - cells), _STRENGTH),
        np.full(levels - 1, _STRENGTH),
    )
    shares.set_draw(prior, _FLAT)
    return prior
