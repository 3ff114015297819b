"""Universal and unattributed histograms under audit: the rows that ``bounds`` and ``releases`` share the rest with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.flaxman2019.subjects import SortedEstimator, audited_ranges, audited_sorted, words_of
from coco_experiments.hay2010.data import Counts, generated, unattributed, universal
from coco_experiments.outcome import Reporter
from coco_opt.audit.bounds import Sides, measured_scores
from coco_opt.audit.released import bulk_scores
from coco_opt.audit.rows import Audit, audit_release
from coco_opt.audit.subject import Sources, Subject, witness
from coco_opt.privacy import NEIGHBOURS, Epsilon, Neighbours, Sensitivity
from coco_opt.ranges import DomainTree
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.measuring.neighbours import CellPair, cell_pair
from coco_opt.releases.kind import Neighbours as Pair

UNIVERSAL: dict[Estimator, str] = {
    "noisy": "H~",
    "consistent": "H-bar, consistent",
    "nonnegative": "H-bar, nonnegative",
}
SORTED: dict[SortedEstimator, str] = {"noisy": "S~", "l2": "S-bar, L2", "l1": "S-bar, L1"}
CELLS = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
RANKED = np.array([0, 5, 2, 0], np.int64)
FAN_OUTS: tuple[int | None, ...] = (None, 2, 8)
RELEASED = 2
SMALL_DOMAIN = 256


AnySubject = Subject[NDArray[np.int64], Any]


@dataclass(frozen=True, eq=False, slots=True)
class Audited:
    """Scores of runs on D and on D' of one thing; ``faulty`` where a fault was planted."""

    kind: str
    what: str
    scores: Sides
    faulty: bool = False


def bounded(epsilon: Fraction, runs: int, sources: Sources, reporter: Reporter, label: str) -> Iterator[Audited]:
    """Yield everything whose loss is bounded, and the fault: the noise of a tree that is one level lower."""
    makers = list(_jobs(Epsilon(epsilon), runs, sources))
    for number, make in enumerate(makers, 1):
        yield make()
        reporter.progress(f"{label}: histograms", number, len(makers))


def _jobs(cost: Epsilon, runs: int, sources: Sources) -> Iterator[Callable[[], Audited]]:
    for neighbours in NEIGHBOURS:
        for fan_out in FAN_OUTS:
            domain = DomainTree(CELLS.size, fan_out)
            tree = audited_ranges(domain, cost, "noisy", neighbours)
            what = f"universal, {_shape(domain)}, {words_of(neighbours)}"
            yield partial(_measured, tree, pair_of(CELLS, neighbours), what, runs, sources)
        ranked = audited_sorted(RANKED.size, cost, "noisy", neighbours)
        what = f"unattributed, 4 counts, {words_of(neighbours)}"
        yield partial(_measured, ranked, pair_of(RANKED, neighbours), what, runs, sources)
    domain = DomainTree(CELLS.size, RELEASED)
    for estimator, name in UNIVERSAL.items():
        tree = audited_ranges(domain, cost, estimator)
        yield partial(_released, tree, pair_of(CELLS), f"{name}, {_shape(domain)}", runs, sources)
    for loss, name in SORTED.items():
        ranked = audited_sorted(RANKED.size, cost, loss)
        yield partial(_released, ranked, pair_of(RANKED), f"{name}, 4 counts", runs, sources)
    yield partial(_lower_tree, cost, runs, sources)


def pair_of(counts: NDArray[np.int64], neighbours: Neighbours = "add_remove") -> Pair:
    """Return neighbours of simulated counts."""
    pair: CellPair = cell_pair(counts, neighbours)
    return Pair(pair.first, pair.second, pair.what)


def _shape(domain: DomainTree) -> str:
    if domain.fan_out is None:
        return f"{domain.cells} cells alone"
    return f"{domain.cells} cells, height {domain.height}"


def _measured(subject: AnySubject, pair: Pair, what: str, runs: int, sources: Sources) -> Audited:
    return Audited("measurement", what, measured_scores(witness(subject, pair), runs, sources))


def _released(subject: AnySubject, pair: Pair, what: str, runs: int, sources: Sources) -> Audited:
    return Audited("release", what, bulk_scores(subject, pair, runs, sources))


def _lower_tree(cost: Epsilon, runs: int, sources: Sources) -> Audited:
    domain = DomainTree(CELLS.size, CELLS.size)
    lower = Sensitivity(domain.height - 1, domain.height - 1)
    cells = witness(audited_ranges(domain, cost, "noisy"), pair_of(CELLS))
    faulty = [replace(cell, query=replace(cell.query, sensitivity=lower)) for cell in cells]
    what = f"universal, {_shape(domain)}, sensitivity taken for {lower.l1}"
    return Audited("measurement", what, measured_scores(faulty, runs, sources), faulty=True)


def audits(
    epsilon: Fraction, draws: int, runs: int, sources: Sources, reporter: Reporter, label: str, data: Path | None
) -> dict[str, Audit]:
    """Return the audits of whole histograms, on real data or a simulated data set."""
    return _audits(universal(data)[0], unattributed(data)[1], epsilon, draws, runs, sources, reporter, label)


def small_audits(
    epsilon: Fraction, draws: int, runs: int, sources: Sources, reporter: Reporter, label: str
) -> dict[str, Audit]:
    """Return the audits on small simulated counts."""
    counts = generated(SMALL_DOMAIN)
    return _audits(counts, counts, epsilon, draws, runs, sources, reporter, label)


def _audits(
    domain: Counts,
    multiset: Counts,
    epsilon: Fraction,
    draws: int,
    runs: int,
    sources: Sources,
    reporter: Reporter,
    label: str,
) -> dict[str, Audit]:
    cost = Epsilon(epsilon)
    jobs: list[tuple[str, Counts, AnySubject]] = [
        (name, domain, audited_ranges(DomainTree(domain.values.size, 16), cost, estimator))
        for estimator, name in UNIVERSAL.items()
    ]
    jobs += [(name, multiset, audited_sorted(multiset.values.size, cost, loss)) for loss, name in SORTED.items()]
    by_name = {}
    for name, counts, subject in jobs:
        pair = pair_of(counts.values)
        by_name[name] = audit_release(
            subject,
            replace(pair, words=f"{pair.words} of {counts.label}"),
            sources,
            draws=draws,
            runs=runs,
            progress=partial(reporter.progress, f"{label}: {name}, {counts.label}"),
        )
    return by_name
