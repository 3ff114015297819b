"""Figure 7: where in NetTrace's unattributed histogram S-bar errs, over 200 samples.

The text lost the figure's epsilon; 1 is taken. Errors are grouped by the length of the run of equal counts a position
lies in, and by whether it is an end of the run or in its middle half.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.data import NET_TRACE_SOURCE, Counts, generated, original_or_simulated
from coco_experiments.hay2010.unattributed import FIT, fit, noisy_ranks
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish, statements_table, write_csv
from coco_opt.array_types import Floats, Ints

NAME = "hay2010/figure7"
EPSILON = Fraction(1)
SAMPLES, SMALL_SAMPLES = 200, 20
SEED = 7
CLASSES = ((1, 1), (2, 9), (10, 99), (100, 2**62))
DRAWN = 6_000  # positions from the largest count on

COLUMNS = ("run length", "runs", "positions", "at the ends", "all positions", "middle half", "S~")


def position_errors(ranks: Ints, samples: int, reporter: Reporter) -> Floats:
    """Return S-bar's mean squared error at every rank (n,)."""
    total = np.zeros(ranks.size)
    for sample in range(samples):
        total += (fit(noisy_ranks(ranks, EPSILON, np.random.default_rng([SEED, sample]))) - ranks) ** 2
        reporter.progress(NAME, sample + 1, samples)
    return total / samples


def table_of(data: Counts, errors: Floats, samples: int) -> Table:
    """Return one row a class of run lengths."""
    _, start, length = np.unique(data.ranks, return_index=True, return_counts=True)
    rows = []
    for least, most in CLASSES:
        chosen = (length >= least) & (length <= most)
        runs = [errors[at : at + size] for at, size in zip(start[chosen], length[chosen], strict=True)]
        if not runs:
            continue
        name = f"{least}" if least == most else f"{least} to {most}" if most < 2**62 else f"{least} or more"
        ends = np.concatenate([run[[0, -1]] for run in runs])
        middle = np.concatenate([run[run.size // 4 : run.size - run.size // 4] for run in runs])
        every = np.concatenate(runs)
        exact = 2.0 / float(EPSILON) ** 2
        rows.append((name, len(runs), every.size, float(ends.mean()), float(every.mean()), float(middle.mean()), exact))
    return Table(
        f"Figure 7: mean squared error a position of {FIT} on {data.label}, epsilon 1, {samples} samples",
        COLUMNS,
        tuple(rows),
        ("Noise is seeded: NOT PRIVATE.",),
    )


def statements(table: Table) -> list[Statement]:
    """Return Appendix C's statements next to the classes' errors."""
    rows = [[float(cell) for cell in row[3:7] if cell is not None] for row in table.rows]
    means = [every for _, every, _, _ in rows]
    middle, exact = rows[-1][2], rows[-1][3]
    longest = str(table.rows[-1][0])
    return [
        Statement(
            "Appendix C",
            "the error is larger where counts occur once or a few times and falls as runs get longer",
            "by run length: " + " / ".join(f"{value:.3g}" for value in means),
            means == sorted(means, reverse=True),
        ),
        Statement(
            "Appendix C",
            "some error remains where the count changes",
            f"runs of {longest}: {rows[-1][0]:.3g} at the ends, {middle:.3g} in the middle half",
            rows[-1][0] > middle,
        ),
        Statement(
            "Appendix C",
            "the error is reduced to zero in the middle of uniform subsequences",
            f"runs of {longest}: {middle:.3g} against {exact:g} of S~",
            middle < exact / 100,
        ),
    ]


def _plot(out: Path, data: Counts, errors: Floats) -> list[Path]:
    drawn = min(DRAWN, errors.size)
    x = list(range(1, drawn + 1))
    truth = data.ranks[::-1][:drawn].astype(float)
    root = np.sqrt(errors[::-1][:drawn])
    curves = (
        Curve("true counts", x, truth.tolist()),
        Curve(f"error of {FIT}", x, root.tolist()),
        Curve("error of S~", x, [np.sqrt(2.0) / float(EPSILON)] * drawn, theory=True),
    )
    style = AxisStyle("rank, largest count first", "count, or root mean squared error", "log", "symlog", marks=False)
    return draw(out / NAME, [[CurvePanel(f"{data.label}, epsilon 1", curves)]], style)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure figure 7 and write CSV, PNG and PDF; small: twenty samples of simulated data."""
    counts = generated(1_024) if small else original_or_simulated(NET_TRACE_SOURCE, data)
    samples = SMALL_SAMPLES if small else SAMPLES
    errors = position_errors(counts.ranks, samples, reporter)
    table = table_of(counts, errors, samples)
    claims = statements(table)
    files = [write_csv(out / f"{NAME}_statements.csv", statements_table(claims)), *_plot(out, counts, errors)]
    return publish(NAME, {"": table}, out, reporter, files=files, statements=claims)
