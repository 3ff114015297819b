"""Figure 7: where in NetTrace's unattributed histogram S-bar errs, over 200 samples.

The text lost the figure's epsilon; 1 is taken. Errors are grouped by the length of the run of equal counts a position
lies in, and by whether it is an end of the run or in its middle half.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.data import NET_TRACE_SOURCE, Counts, generated, original_or_simulated
from coco_experiments.hay2010.unattributed import FIT, fit, noisy_ranks
from coco_experiments.outcome import Cell, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.array_types import Floats

EPSILON = Fraction(1)
SAMPLES, SMALL_SAMPLES = 200, 20
SEED = 7
CLASSES = ((1, 1), (2, 9), (10, 99), (100, 2**62))
DRAWN = 6_000  # positions from the largest count on


def measure(data: Counts, sample: int) -> Floats:
    """Return S-bar's squared error at every rank (n,)."""
    errors: Floats = (fit(noisy_ranks(data.ranks, EPSILON, np.random.default_rng([SEED, sample]))) - data.ranks) ** 2
    return errors


def table_of(data: Counts, errors: Floats, samples: int) -> Table:
    """Return one row a class of run lengths."""
    _, start, length = np.unique(data.ranks, return_index=True, return_counts=True)
    rows: list[dict[str, Cell]] = []
    for least, most in CLASSES:
        chosen = (length >= least) & (length <= most)
        runs = [errors[at : at + size] for at, size in zip(start[chosen], length[chosen], strict=True)]
        if not runs:
            continue
        name = f"{least}" if least == most else f"{least} to {most}" if most < 2**62 else f"{least} or more"
        ends = np.concatenate([run[[0, -1]] for run in runs])
        middle = np.concatenate([run[run.size // 4 : run.size - run.size // 4] for run in runs])
        every = np.concatenate(runs)
        rows.append(
            {
                "run length": name,
                "runs": len(runs),
                "positions": every.size,
                "at the ends": float(ends.mean()),
                "all positions": float(every.mean()),
                "middle half": float(middle.mean()),
                "S~": 2.0 / float(EPSILON) ** 2,
            }
        )
    title = f"Figure 7: mean squared error a position of {FIT} on {data.label}, epsilon 1, {samples} samples"
    return Table.of(title, rows, ("Noise is seeded: NOT PRIVATE.",))


def statements(table: Table) -> list[Statement]:
    """Return Appendix C's statements next to the classes' errors."""
    rows = table.records()
    means, last = [row["all positions"] for row in rows], rows[-1]
    middle, exact, longest = last["middle half"], last["S~"], last["run length"]
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
            f"runs of {longest}: {last['at the ends']:.3g} at the ends, {middle:.3g} in the middle half",
            last["at the ends"] > middle,
        ),
        Statement(
            "Appendix C",
            "the error is reduced to zero in the middle of uniform subsequences",
            f"runs of {longest}: {middle:.3g} against {exact:g} of S~",
            middle < exact / 100,
        ),
    ]


def _plot(path: Path, data: Counts, errors: Floats) -> list[Path]:
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
    return draw(path, [[CurvePanel(f"{data.label}, epsilon 1", curves)]], style)


def plan(data: Path | None, small: bool) -> list[tuple[Counts, Sequence[int]]]:
    """Return NetTrace, or simulated data, with its samples."""
    if small:
        return [(generated(1_024), range(SMALL_SAMPLES))]
    return [(original_or_simulated(NET_TRACE_SOURCE, data), range(SAMPLES))]


def report(results: Sequence[Runs[Counts, Floats]], path: Path) -> Report:
    """Return the table, Appendix C's statements and the figure."""
    (runs,) = results
    errors: Floats = sum(runs.found, np.zeros(runs.case.values.size)) / len(runs.seeds)
    table = table_of(runs.case, errors, len(runs.seeds))
    return Report({"": table}, _plot(path, runs.case, errors), statements=statements(table))


FIGURE7 = Study("hay2010/figure7", plan, measure, report)
