"""Sound lower bounds on epsilon for each mechanism and estimator, and planted faults that they must catch.

Bounds are Clopper-Pearson at 99.9 %, the event chosen on one half of the runs. An honest row's bound lies at or below
its claim; a fault's above. Every pair of neighbours differs by one entity in a small table where it cannot hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.flaxman2019 import histograms
from coco_experiments.flaxman2019.subjects import audited_groups, groups_pair, words_of
from coco_experiments.outcome import Outcome, Reporter, Table, publish
from coco_experiments.plots import Panel, comparison
from coco_opt.audit.bounds import LowerBound, lower_bound, measured_scores, scalar_draws
from coco_opt.audit.counting import MECHANISMS, MechanismName, UniformTree, mechanism, noise, rake
from coco_opt.audit.released import bulk_scores
from coco_opt.audit.subject import Sources, witness
from coco_opt.groups import GroupsMethod, Query
from coco_opt.groups.estimating.method import Consistency
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Cost, Epsilon, Geometric, Neighbours, NoiseSource, SeededNoise, Sensitivity, resolve_noise

NAME = "flaxman2019/bounds"
SCALAR, VECTOR, FINE = 1_000_000, 200_000, 20_000_000
SMALL_SCALAR, SMALL_VECTOR, SMALL_FINE = 20_000, 2_000, 6_000_000
EPSILON = Fraction(1)
TOO_LITTLE = Fraction(99, 100)
MAX_SIZE = 2
SEED = 41
TITLE = "Sound lower bounds on the privacy lost"
HISTOGRAMS = "Sound lower bounds on the privacy lost: universal and unattributed histograms"
COLUMNS = (
    "kind",
    "what",
    "epsilon claimed",
    "runs a side",
    "lower bound",
    "at most the claim",
    "expected",
    "as expected",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One audited thing; ``faulty`` where a fault was planted."""

    kind: str
    what: str
    claimed: Fraction
    runs: int
    bound: LowerBound
    faulty: bool = False

    @property
    def caught(self) -> bool:
        """Return whether the bound lies above the claim."""
        return self.bound.epsilon > self.claimed


def seeded(first: int) -> Sources:
    """Return sources of independent seeded noise."""
    return lambda side: SeededNoise(first + side)


def secure(side: int) -> NoiseSource:
    """Return a fresh source of the noise a release draws by default."""
    return resolve_noise("secure")


def scalar_row(
    what: str, epsilon: Fraction, draws: int, sources: Sources, *, shrink: Fraction = Fraction(1), count: int = 7
) -> Row:
    """Audit one noisy count, ``count`` against one more; ``shrink`` below 1 draws too little noise."""
    distribution = Geometric(shrink / epsilon)
    sides = [scalar_draws(sources(side), distribution, count + side, draws, region=f"side {side}") for side in (0, 1)]
    return Row("one count", what, epsilon, draws, lower_bound(*sides), faulty=shrink < 1)


def counting_row(name: MechanismName, runs: int) -> Row:
    """Audit one of the paper's mechanisms, a person added to a cell of 7 (RDPC: one of two cells) at epsilon 1."""
    rng = np.random.default_rng([SEED, MECHANISMS.index(name)])
    sides = [_raked(added, runs, rng) if name == "RDPC" else _cells(name, 7 + added, runs, rng) for added in (0, 1)]
    return Row("one count", f"{name}, one person added, epsilon 1", EPSILON, runs, lower_bound(*sides))


def _cells(name: MechanismName, count: int, runs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return noisy cells of one true count: cells have noise of their own, so each is a run."""
    cells = np.full(runs, count, np.int64)
    return mechanism(name, UniformTree.of(runs, 1), cells, float(EPSILON))(rng)


def _raked(added: int, runs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return both raked cells of a root with two, float64[runs, 2]: every run is a column of the raking."""
    tree = UniformTree.of(2, 1)
    counts = tree.counts(np.array([7 + added, 9], np.int64))
    noisy = counts[:, None] + noise(float(EPSILON) / 2, counts.size * runs, "exact", rng).reshape(-1, runs)
    return rake(noisy, tree.parent, tree.level_start)[1:].T


ONE_REGION = Hierarchy.from_paths([("all",)]), [CountOfCounts.from_ranks([0, 1, 1, 1])]
TWO_LEAVES = (
    Hierarchy.from_paths([("all", "north"), ("all", "south")]),
    [CountOfCounts.from_ranks([0, 1, 1]), CountOfCounts.from_ranks([0, 0, 1])],
)


def measured_row(query: Query, neighbours: Neighbours, runs: int, *, shrink: int = 1) -> Row:
    """Audit one region's noisy measurements in all cells that differ; ``shrink`` divides the noise scale."""
    method = GroupsMethod(("l1",), consistency="none")
    pair, measurement_plan = groups_pair(*ONE_REGION, (query,), (Epsilon(EPSILON),), MAX_SIZE, neighbours)
    cells = witness(audited_groups(measurement_plan, method, Epsilon(EPSILON)), pair)
    what = f"{query}, {words_of(neighbours)}"
    if shrink > 1:
        changed = measurement_plan.queries[0].sensitivity
        assert changed is not None
        taken = Sensitivity(changed.l1 // shrink, changed.l2_squared)
        cells = tuple(replace(cell, query=replace(cell.query, sensitivity=taken)) for cell in cells)
        what += f", sensitivity taken for {taken.l1}"
    scores = measured_scores(cells, runs, seeded(SEED + 10))
    return Row("measurement", what, EPSILON, runs, lower_bound(*scores), faulty=shrink > 1)


@dataclass(frozen=True, slots=True)
class Release:
    """A small release: what is measured, fitted and made consistent, its budget and its public bound K."""

    query: Query
    loss: Loss
    consistency: Consistency
    epsilon: Fraction = EPSILON
    max_size: int = MAX_SIZE

    @property
    def what(self) -> str:
        """Return it in words."""
        names = {"none": "one region", "matching": "Algorithm 1, two leaves", "bottom_up": "bottom-up, two leaves"}
        return f"{self.query} {self.loss.upper()}, {names[self.consistency]}, epsilon {self.epsilon}, K {self.max_size}"

    def costs(self, levels: int) -> tuple[Cost, ...]:
        """Return what each level costs; bottom-up spends everything on the leaves."""
        total = Epsilon(self.epsilon)
        if self.consistency == "bottom_up":
            return (*(total * 0,) * (levels - 1), total)
        return (total * Fraction(1, levels),) * levels


# Few cells, or little noise: each distinct noisy answer is post-processed once, and 200,000 runs share some thousand.
RELEASES = (
    Release("sizes", "l2", "none"),
    Release("ranks", "l1", "none"),
    Release("ranks", "l2", "none"),
    Release("cumulative", "l1", "none"),
    Release("cumulative", "l2", "none"),
    Release("cumulative", "l1", "bottom_up"),
    Release("cumulative", "l1", "matching", max_size=1),
    Release("cumulative", "l1", "matching", epsilon=Fraction(4)),
)


def released_row(release: Release, runs: int, reporter: Reporter) -> Row:
    """Audit what is released after post-processing: one region, or a small hierarchy made consistent."""
    tree, leaves = ONE_REGION if release.consistency == "none" else TWO_LEAVES
    levels, max_size = tree.levels, release.max_size
    pair, measurement_plan = groups_pair(tree, leaves, (release.query,) * levels, release.costs(levels), max_size)
    method = GroupsMethod((release.loss,) * levels, consistency=release.consistency)
    subject = audited_groups(measurement_plan, method, Epsilon(release.epsilon))
    progress = partial(reporter.progress, f"{NAME}: {release.what}")
    scores = bulk_scores(subject, pair, runs, seeded(SEED + 20), progress)
    return Row("release", release.what, release.epsilon, runs, lower_bound(*scores))


def measure(scalar: int, vector: int, fine: int, reporter: Reporter) -> list[Row]:
    """Return every row."""
    epsilons = (Fraction(1, 10), Fraction(1, 2), EPSILON, Fraction(2))
    rows = [
        scalar_row(f"seeded noise, epsilon {epsilon}", epsilon, scalar, seeded(SEED + 2 * k))
        for k, epsilon in enumerate(epsilons)
    ]
    rows.append(scalar_row("secure noise, epsilon 1", EPSILON, scalar, secure))
    rows += [counting_row(name, scalar) for name in MECHANISMS]
    for neighbours in ("add_remove", "replace"):
        rows += [measured_row(query, neighbours, vector) for query in ("sizes", "ranks", "cumulative")]
    rows += [released_row(release, vector, reporter) for release in RELEASES]
    rows.append(measured_row("sizes", "add_remove", vector, shrink=2))
    what = "1 % too little noise, epsilon 1"
    return [*rows, scalar_row(what, EPSILON, fine, seeded(SEED + 30), shrink=TOO_LITTLE)]


def histogram_rows(vector: int, reporter: Reporter) -> list[Row]:
    """Audit universal and unattributed histograms, as measured and as released."""
    audited = histograms.bounded(EPSILON, vector, seeded(SEED + 40), reporter, NAME)
    return [Row(audit.kind, audit.what, EPSILON, vector, lower_bound(*audit.scores), audit.faulty) for audit in audited]


def table_of(rows: Sequence[Row], title: str = TITLE) -> Table:
    """Return the table, one row a thing audited."""
    cells = tuple(
        (
            "planted fault" if row.faulty else row.kind,
            row.what,
            float(row.claimed),
            row.runs,
            row.bound.epsilon,
            not row.caught,
            "caught" if row.faulty else "at most",
            row.caught == row.faulty,
        )
        for row in rows
    )
    notes = (
        "Sound at 99.9 % for each row on its own: of a thousand honest rows one may lie above its claim.",
        "A low bound is no proof of privacy: the event may be weak. Post-processed answers are scored where the exact "
        "cumulative counts differ, and elsewhere may say more.",
        "Seeded noise is NOT PRIVATE; the tables are made.",
    )
    return Table(title, COLUMNS, cells, notes)


def failures_in(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return one line for every honest row above its claim and every planted fault below it."""
    return tuple(
        f"{row.what}: " + ("the planted fault was not caught" if row.faulty else "more privacy lost than claimed")
        for row in rows
        if row.caught != row.faulty
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``flaxman2019/bounds`` as CSV (two), PNG and PDF; needs no data."""
    sizes = (SMALL_SCALAR, SMALL_VECTOR, SMALL_FINE) if small else (SCALAR, VECTOR, FINE)
    rows, of_histograms = measure(*sizes, reporter), histogram_rows(sizes[1], reporter)
    tables = {"": table_of(rows), "_histograms": table_of(of_histograms, HISTOGRAMS)}
    panels = {"counts and groups": panel_of(rows), "histograms": panel_of(of_histograms)}
    files, failures = comparison(out / NAME, panels, "epsilon"), failures_in([*rows, *of_histograms])
    return publish(NAME, tables, out, reporter, files=files, failures=failures)


def panel_of(rows: Sequence[Row]) -> Panel:
    """Return the panel of a table: each bound next to its claim."""
    series = {
        "lower bound, 99.9 %": tuple(row.bound.epsilon for row in rows),
        "claimed": tuple(float(row.claimed) for row in rows),
    }
    return Panel(tuple(row.what for row in rows), series)
