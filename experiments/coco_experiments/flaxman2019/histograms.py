"""Universal and unattributed histograms under audit: the rows that ``bounds`` and ``releases`` share the rest with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.experiment import Reporter
from coco_experiments.hay2010.data import Counts, made, unattributed, universal
from coco_opt.audit.groups import Audit
from coco_opt.audit.histograms import (
    CellsMechanism,
    SortedEstimator,
    UnattributedMechanism,
    UniversalMechanism,
    cell_pair,
)
from coco_opt.audit.measured import Sources, measured_scores
from coco_opt.audit.ranges import audit_ranges, bulk_range_scores, cells_witness
from coco_opt.privacy import NEIGHBOURS, Neighbours
from coco_opt.ranges import DomainTree
from coco_opt.ranges.universal import Estimator

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]

UNIVERSAL: dict[Estimator, str] = {
    "noisy": "H~",
    "consistent": "H-bar, consistent",
    "nonnegative": "H-bar, nonnegative",
}
SORTED: dict[SortedEstimator, str] = {"noisy": "S~", "l2": "S-bar, L2", "l1": "S-bar, L1"}
WORDS: dict[Neighbours, str] = {"add_remove": "one entity added", "replace": "one entity replaced"}
CELLS = np.array([0, 5, 2, 0, 9, 1, 0, 3], np.int64)
RANKED = np.array([0, 5, 2, 0], np.int64)
FAN_OUTS: tuple[int | None, ...] = (None, 2, 8)
RELEASED = 2
SMALL_DOMAIN = 256


@dataclass(frozen=True, eq=False, slots=True)
class Audited:
    """Scores of runs on D and on D' of one thing; ``faulty`` where a fault was planted."""

    kind: str
    what: str
    scores: Scores
    faulty: bool = False


def bounded(epsilon: Fraction, runs: int, sources: Sources, reporter: Reporter, label: str) -> Iterator[Audited]:
    """Yield everything whose loss is bounded, and the fault: the noise of a tree that is one level lower."""
    makers = list(_jobs(epsilon, runs, sources))
    for number, make in enumerate(makers, 1):
        yield make()
        reporter.progress(f"{label}: histograms", number, len(makers))


def _jobs(epsilon: Fraction, runs: int, sources: Sources) -> Iterator[Callable[[], Audited]]:
    for neighbours in NEIGHBOURS:
        for fan_out in FAN_OUTS:
            tree = UniversalMechanism(epsilon, sources, "noisy", fan_out, neighbours)
            yield partial(_measured, tree, CELLS, f"universal, {_shape(tree)}", runs)
        ranked = UnattributedMechanism(epsilon, sources, "noisy", neighbours)
        yield partial(_measured, ranked, RANKED, "unattributed, 4 counts", runs)
    for estimator, name in UNIVERSAL.items():
        tree = UniversalMechanism(epsilon, sources, estimator, RELEASED)
        yield partial(_released, tree, CELLS, f"{name}, {_shape(tree)}", runs)
    for loss, name in SORTED.items():
        ranked = UnattributedMechanism(epsilon, sources, loss)
        yield partial(_released, ranked, RANKED, f"{name}, 4 counts", runs)
    yield partial(_lower_tree, UniversalMechanism(epsilon, sources, "noisy", CELLS.size), runs)


def _shape(mechanism: UniversalMechanism) -> str:
    if mechanism.fan_out is None:
        return f"{CELLS.size} cells alone"
    return f"{CELLS.size} cells, height {DomainTree(CELLS.size, mechanism.fan_out).height}"


def _measured(
    mechanism: UniversalMechanism | UnattributedMechanism, counts: NDArray[np.int64], what: str, runs: int
) -> Audited:
    differing = cells_witness(cell_pair(counts, mechanism.neighbours), mechanism)
    scores = measured_scores(differing, runs, mechanism.sources)
    return Audited("measurement", f"{what}, {WORDS[mechanism.neighbours]}", scores)


def _released(mechanism: CellsMechanism, counts: NDArray[np.int64], what: str, runs: int) -> Audited:
    return Audited("release", what, bulk_range_scores(cell_pair(counts), mechanism, runs, mechanism.sources))


def _lower_tree(mechanism: UniversalMechanism, runs: int) -> Audited:
    height = DomainTree(CELLS.size, mechanism.fan_out).height
    differing = cells_witness(cell_pair(CELLS), mechanism)
    scales = tuple(scale * (height - 1) / height for scale in differing.scales)
    scores = measured_scores(replace(differing, scales=scales), runs, mechanism.sources)
    what = f"universal, {_shape(mechanism)}, sensitivity taken for {height - 1}"
    return Audited("measurement", what, scores, faulty=True)


def audits(
    epsilon: Fraction, draws: int, runs: int, sources: Sources, reporter: Reporter, label: str, data: Path | None
) -> dict[str, Audit]:
    """Return the audits of whole histograms, on real data or a look-alike."""
    return _audits(universal(data)[0], unattributed(data)[1], epsilon, draws, runs, sources, reporter, label)


def small_audits(
    epsilon: Fraction, draws: int, runs: int, sources: Sources, reporter: Reporter, label: str
) -> dict[str, Audit]:
    """Return the audits on small made counts."""
    counts = made(SMALL_DOMAIN)
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
    jobs: list[tuple[str, Counts, CellsMechanism]] = [
        (name, domain, UniversalMechanism(epsilon, sources, estimator)) for estimator, name in UNIVERSAL.items()
    ]
    jobs += [(name, multiset, UnattributedMechanism(epsilon, sources, loss)) for loss, name in SORTED.items()]
    found = {}
    for name, counts, mechanism in jobs:
        pair = cell_pair(counts.values)
        found[name] = audit_ranges(
            replace(pair, what=f"{pair.what} of {counts.label}"),
            mechanism,
            draws=draws,
            runs=runs,
            progress=partial(reporter.progress, f"{label}: {name}, {counts.label}"),
        )
    return found
