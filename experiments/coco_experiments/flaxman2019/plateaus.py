"""Figure 1's plateaus over 15 databases: what of the figure does not depend on the seed, against reference values."""

from __future__ import annotations

from pathlib import Path

from coco_experiments.flaxman2019.setting import EPSILONS, NOT_PRIVATE, PAPERS, SMALL, TAILS, Database, residuals
from coco_experiments.outcome import Outcome, Reporter, Table, publish
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean, Reference
from coco_opt.audit.counting import MECHANISMS, MechanismName
from coco_opt.audit.privacy_loss import CAVEAT, empirical_privacy_loss

NAME = "flaxman2019/plateaus"
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
COLUMNS = (
    "mechanism",
    "epsilon",
    "figure",
    "measured",
    "standard error",
    "reference",
    "deviation of one database",
    "deviations apart",
    "within four",
)


def figures_of(database: Database, seed: int) -> dict[tuple[MechanismName, str], float]:
    """Return the three figures of every mechanism on one database, with the paper's sampler."""
    figures = {}
    for name, values in residuals(database, seed, "ratio").items():
        loss = empirical_privacy_loss(values)
        for figure, value in zip(
            FIGURES, (loss.mean_between(20, 100), loss.deviation, loss.residual_range), strict=True
        ):
            figures[name, figure] = value
    return figures


def measure(database: Database, seeds: tuple[int, ...], reporter: Reporter) -> dict[tuple[MechanismName, str], Mean]:
    """Return the mean of every figure over databases."""
    runs = []
    for done, seed in enumerate(seeds, 1):
        runs.append(figures_of(database, seed))
        reporter.progress(NAME, done, len(seeds))
    return {key: Mean.of([run[key] for run in runs]) for key in runs[0]}


def table_of(means: dict[tuple[MechanismName, str], Mean], *, compare: bool) -> Table:
    """Return the table, one row a figure and mechanism; ``compare`` adds the references."""
    rows = []
    for figure in FIGURES:
        for name in MECHANISMS:
            mean, reference = means[name, figure], REFERENCES[name, figure] if compare else None
            apart = None if reference is None else abs(mean.value - reference.value) / reference.deviation
            rows.append(
                (
                    name,
                    EPSILONS[name],
                    figure,
                    mean.value,
                    mean.standard_error,
                    None if reference is None else reference.value,
                    None if reference is None else reference.deviation,
                    apart,
                    None if apart is None else apart <= BAND,
                )
            )
    databases = means["GDPC", LOSS].runs
    notes = (f"The loss is {CAVEAT}.", TAILS, "The maximum depends on the seed and is not compared.", NOT_PRIVATE)
    return Table(f"Flaxman 2019: plateaus of Figure 1, {databases} databases", COLUMNS, tuple(rows), notes)


def failures_in(table: Table) -> tuple[str, ...]:
    """Return one line for every figure further than four deviations from its reference."""
    return tuple(
        f"{row['mechanism']}, {row['figure']}: {row['deviations apart']:.1f} deviations from the reference"
        for row in table.records()
        if row["within four"] is False
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``flaxman2019/plateaus`` as CSV, PNG and PDF; needs no data."""
    means = measure(SMALL if small else PAPERS, SMALL_SEEDS if small else SEEDS, reporter)
    table = table_of(means, compare=not small)
    panels = {}
    for figure in FIGURES:
        series = {"measured": tuple(means[name, figure].value for name in MECHANISMS)}
        if not small:
            series["reference"] = tuple(REFERENCES[name, figure].value for name in MECHANISMS)
        errors = {"measured": tuple(means[name, figure].standard_error for name in MECHANISMS)}
        panels[figure] = Panel(MECHANISMS, series, errors)
    files = comparison(out / NAME, panels, "")
    return publish(NAME, {"": table}, out, reporter, files=files, failures=failures_in(table))
