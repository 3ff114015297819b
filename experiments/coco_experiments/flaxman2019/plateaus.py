"""Figure 1's plateaus over 15 databases: what of the figure does not depend on the seed, against reference values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from coco_experiments.flaxman2019.setting import EPSILONS, NOT_PRIVATE, PAPERS, SMALL, TAILS, Database, residuals
from coco_experiments.outcome import Record, Table
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean, Reference
from coco_experiments.study import Report, Runs, Study
from coco_opt.audit.counting import MECHANISMS, MechanismName
from coco_opt.audit.privacy_loss import CAVEAT, empirical_privacy_loss

SEEDS = tuple(range(15))
SMALL_SEEDS = SEEDS[:3]
BAND = 4.0  # standard deviations over databases

LOSS, DEVIATION, RANGE = "mean |EPL|, 20 to 100", "deviation of residuals", "residual range K"
FIGURES = (LOSS, DEVIATION, RANGE)
# The standard deviation is that of one database, and so is the band: the mean of 15 lies well inside it.
REFERENCES: dict[tuple[MechanismName, str], Reference] = {
    ("GDPC", LOSS): Reference(0.0251, 0.0005, 15),
    ("RDPC", LOSS): Reference(0.0257, 0.0007, 15),
    ("ADPC", LOSS): Reference(0.0212, 0.0005, 15),
    ("GDPC", DEVIATION): Reference(55.9, 0.6, 15),
    ("RDPC", DEVIATION): Reference(55.9, 0.9, 15),
    ("ADPC", DEVIATION): Reference(56.2, 0.5, 15),
    ("GDPC", RANGE): Reference(184.0, 3.0, 15),
    ("RDPC", RANGE): Reference(181.0, 3.0, 15),
    ("ADPC", RANGE): Reference(186.0, 3.0, 15),
}
Found = dict[tuple[MechanismName, str], float]


def measure(database: Database, seed: int) -> Found:
    """Return the three figures of every mechanism on one database, with the paper's sampler."""
    figures = Found()
    for name, values in residuals(database, seed, "ratio").items():
        loss = empirical_privacy_loss(values)
        of_loss = loss.mean_between(20, 100), loss.deviation, loss.residual_range
        figures |= {(name, figure): value for figure, value in zip(FIGURES, of_loss, strict=True)}
    return figures


def plan(data: Path | None, small: bool) -> list[tuple[Database, Sequence[int]]]:
    """Return the paper's databases, or smaller ones; no data are needed."""
    return [(SMALL, SMALL_SEEDS) if small else (PAPERS, SEEDS)]


def report(results: Sequence[Runs[Database, Found]], path: Path) -> Report:
    """Return one row a figure and mechanism; it fails further than four deviations from a reference."""
    (runs,) = results
    means = {key: Mean.of([found[key] for found in runs.found]) for key in runs.found[0]}
    rows, failures, panels = list[Record](), list[str](), {}
    for figure, name in product(FIGURES, MECHANISMS):
        mean, reference = means[name, figure], REFERENCES[name, figure] if runs.case == PAPERS else None
        apart = None if reference is None else abs(mean.value - reference.value) / reference.deviation
        rows.append(
            {
                "mechanism": name,
                "epsilon": EPSILONS[name],
                "figure": figure,
                **mean.cells(),
                "reference": reference and reference.value,
                "deviation of one database": reference and reference.deviation,
                "deviations apart": apart,
                "within four": None if apart is None else apart <= BAND,
            }
        )
        if apart is not None and apart > BAND:
            failures.append(f"{name}, {figure}: {apart:.1f} deviations from the reference")
    for figure in FIGURES:
        series = {"measured": tuple(means[name, figure].value for name in MECHANISMS)}
        if runs.case == PAPERS:
            series["reference"] = tuple(REFERENCES[name, figure].value for name in MECHANISMS)
        errors = {"measured": tuple(means[name, figure].standard_error for name in MECHANISMS)}
        panels[figure] = Panel(MECHANISMS, series, errors)
    notes = (f"The loss is {CAVEAT}.", TAILS, "The maximum depends on the seed and is not compared.", NOT_PRIVATE)
    table = Table.of(f"Flaxman 2019: plateaus of Figure 1, {len(runs.seeds)} databases", rows, notes)
    return Report({"": table}, comparison(path, panels, ""), failures)


PLATEAUS = Study("flaxman2019/plateaus", plan, measure, report)
