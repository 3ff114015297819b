"""Top-down splits: our solver, certificate included, against PIQP and Clarabel; thousands of tiny splits."""

from __future__ import annotations

from functools import partial

import numpy as np
from coco_solvers.generic.clarabel import Clarabel
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.split import SplitNewton

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark
from coco_experiments.bench.solved import NOTE, SOLVE, compare, many
from coco_opt.operators import Grouping, Operator, total
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit

SEED = 2020
TOLERANCE = 1e-6

LEVELS = (2, 63, 2, 8)  # ethnicity, race, voting age, kind of residence: 2,016 cells
MARGINALS = ((0, 1, 2, 3), (), (0,), (1,), (2, 3), (0, 1, 2))
SPREAD = 3.0  # standard deviation of the noise of every answer, in people

TARGET, TINY_LIMIT = 10.0, 0.002
FULL, SMALL = ((20, 781), (20, 1_873)), ((4, 60),)  # children and filled cells; Clarabel solves the first one too


def marginal(levels: tuple[int, ...], axes: tuple[int, ...]) -> Grouping:
    """Return the sums of a table of these levels over all attributes but ``axes``."""
    index = np.indices(levels).reshape(len(levels), -1)
    labels = np.zeros(index.shape[1], dtype=np.int64)
    answers = 1
    for axis in axes:
        labels, answers = labels * levels[axis] + index[axis], answers * levels[axis]
    return Grouping(labels, answers)


def drawn(seed: int, children: int, filled: int, operators: list[Operator], *, totals: bool = False) -> TopdownSplit:
    """Return a parent with ``filled`` cells split over children of unequal size, and noisy answers to the queries."""
    rng = np.random.default_rng([SEED, seed, children, filled])
    cells = operators[0].cells
    parent = np.zeros(cells, dtype=np.int64)
    parent[rng.choice(cells, filled, replace=False)] = rng.geometric(0.02, filled)
    shares = rng.dirichlet(np.full(children, 0.7), cells)
    table = np.array([rng.multinomial(count, share) for count, share in zip(parent, shares, strict=True)]).T
    terms = []
    for operator in operators:
        answers = operator.apply(table)
        noise = np.rint(rng.normal(0.0, SPREAD, answers.shape))
        terms.append(SplitTerm(operator, answers + noise, np.full(children, SPREAD**-2)))
    exact = table.sum(axis=1, keepdims=True).astype(np.float64)
    return TopdownSplit(terms, parent, LinearRows(total(cells), exact, exact) if totals else None)


def instance(children: int, filled: int, *, totals: bool) -> TopdownSplit:
    """Return a split of the schema of 2,016 cells."""
    return drawn(0, children, filled, [marginal(LEVELS, axes) for axes in MARGINALS], totals=totals)


def tiny(totals: bool, seed: int) -> TopdownSplit:
    """Return a split of 28 children x 7 cells."""
    return drawn(1 + seed, 28, 6, [marginal((7,), (0,)), total(7)], totals=totals)


def measure(bench: Bench) -> str:
    """Time splits of 20 children x 781 and 1,873 cells and a thousand tiny ones (small: some sixty cells)."""
    sizes, count = (SMALL, 20) if bench.small else (FULL, 1_000)
    for totals in bench.over((False, True)):
        fixed = ", totals fixed" if totals else ""
        many(bench, f"28 x 7{fixed}", partial(tiny, totals), count, SplitNewton(), TINY_LIMIT)
        for k, (children, filled) in enumerate(sizes):
            peers = {"PIQP": PIQP(), **({"Clarabel": Clarabel()} if k == 0 and not totals else {})}
            make = partial(instance, children, filled, totals=totals)
            compare(bench, f"{children} x {filled:,}{fixed}", make, SplitNewton(tolerance=TOLERANCE), peers, TARGET)
    bench.notes += bench.worst(SOLVE)
    return f"Top-down splits: median of {bench.repeats} runs"


NOTES = ("peers solve the lifted program (residuals of all answers to more than one cell as variables)", NOTE, PAIRED)
SPLIT = Benchmark("bench/split", measure, NOTES, (3, 1))
