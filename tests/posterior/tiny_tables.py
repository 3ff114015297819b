"""All tables of tiny hierarchies with their posterior probabilities, by enumeration: what chains must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import lgamma

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Operator
from coco_opt.privacy import Measurement
from coco_opt.topdown.estimating.posterior.chains import Layout, MoveOptions, TableChain
from coco_opt.topdown.estimating.posterior.model import Model, divided
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.noisy_measurements import TableMeasurements

MOVES = MoveOptions(least=4, per_cell=0, shares=(0.35, 0.15, 0.25, 0.1, 0.15), near=0.4, single=0.5, furthest=1.0)


def model_of(measurement: Measurement) -> Model:
    """Return the likelihood of a measurement."""
    return Model.of(measurement, TableMeasurements.of(measurement))


def levels_of(model: Model, leaves: Ints) -> tuple[SparseTables, ...]:
    """Return the tables of all levels of leaves' tables int64[leaves, cells]."""
    hierarchy = model.hierarchy
    full = hierarchy.aggregate(leaves)
    ranges = [hierarchy.level_range(level) for level in range(hierarchy.levels)]
    return tuple(SparseTables.of(full[regions.start : regions.stop]) for regions in ranges)


def chain_of(model: Model, leaves: Ints, seed: int, classes: Operator | None = None) -> TableChain:
    """Return a chain that begins with given leaves; the answers of a query may be classes of cells."""
    levels = levels_of(model, leaves)
    answers, values = model.answers(levels)
    layout = Layout.of(model, answers, levels[-1], MOVES)
    if classes is not None:
        layout = replace(layout, up=divided(classes))
    return TableChain(layout, values, levels[-1], np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


def log_likelihood(model: Model, leaves: Ints) -> float:
    """Return the log probability of all noise, minus infinity where a constraint is broken."""
    classes = np.zeros((len(leaves), model.system.classes.count), np.int64)
    np.add.at(classes, (slice(None), model.system.classes.labels), leaves)
    if not model.system.holds(classes):
        return -np.inf
    dense = [tables.dense() for tables in levels_of(model, leaves)]
    noise = [block.answers[:] - dense[block.level] @ block.matrix.toarray().T for block in model.noisy]
    log = 0.0
    for block, values in zip(model.noisy, noise, strict=True):
        by_region = block.precision
        weights = block.distribution.log_weight(values) if by_region is None else -by_region[:, None] * values**2
        log += float(weights.sum())
    return log


def log_table(table: Ints, share: Floats, strength: float) -> float:
    """Return the log probability of a table given its total: Dirichlet-multinomial."""
    n = int(table.sum())
    value = lgamma(n + 1.0) + lgamma(strength) - lgamma(n + strength)
    for h, s in zip(table.tolist(), share.tolist(), strict=True):
        value += lgamma(h + strength * s) - lgamma(strength * s) - lgamma(h + 1.0)
    return value


def of_size(strengths: Floats, persons: int) -> float:
    """Return the concentration of so many persons, of those for 0 or 1, 2 or 3, 4 to 7 persons and so on."""
    return float(strengths[max(int(persons).bit_length() - 1, 0)])


def log_by_classes(table: Ints, labels: Ints, share: Floats, strengths: Floats) -> float:
    """Return the log probability of a table given its total: of the classes' persons, then of each class's cells.

    ``strengths`` [classes, sizes] are the concentrations within each class, those of the classes last.
    """
    sums, shares = (np.bincount(labels, weights=part) for part in (table, share))
    value = log_table(sums.astype(np.int64), shares, of_size(strengths[-1], sums.sum()))
    for k in range(sums.size):
        own = labels == k
        value += log_table(table[own], share[own] / shares[k], of_size(strengths[k], sums[k]))
    return value


def log_totals(chain: TableChain, leaves: Ints) -> float:
    """Return the log probability of the leaves' totals under a chain's prior."""
    places = np.searchsorted(chain.prior.edge, leaves.sum(axis=1), side="right") - 1
    return float(np.append(chain.prior.log_probability[0], -np.inf)[places].sum())


def all_leaves(leaves: int, cells: int, most: int) -> list[Ints]:
    """Return all tables int64[leaves, cells] of counts of at most ``most``."""
    every = product(range(most + 1), repeat=leaves * cells)
    return [np.array(counts, np.int64).reshape(leaves, cells) for counts in every]


def distance(chain: TableChain, every: list[Ints], log: list[float], sweeps: int, sweep: Callable[[], None]) -> float:
    """Return the total variation between where a chain is after each of many sweeps, and exact probabilities."""
    exact = np.exp(np.array(log) - max(log))
    exact /= exact.sum()
    place = {leaves.tobytes(): number for number, leaves in enumerate(every)}
    found = np.zeros(exact.size + 1)
    for _ in range(sweeps):
        sweep()
        found[place.get(chain.leaves().dense().tobytes(), exact.size)] += 1.0 / sweeps
    return float(0.5 * np.abs(found - np.append(exact, 0.0)).sum())
