"""Figure 3: one sequence with a long run of equal counts and a unique one, a noisy draw of it, and S-bar.

The paper's own sequence is in its drawing only; this one has its two features, twenty equal counts and then a count
that occurs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.theory import EqualRuns
from coco_experiments.hay2010.unattributed import FIT, RAW, fit, noisy_ranks
from coco_experiments.outcome import Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.array_types import Floats, Ints

EPSILON = Fraction(1)
SAMPLES, SMALL_SAMPLES = 1_000, 50
SEED = 3
RUN = 20
SEQUENCE = np.array([10] * RUN + [14, 18, 18, 18, 20], dtype=np.int64)


def measure(sequence: Ints, seed: int) -> tuple[Floats, Floats]:
    """Return a noisy sequence and its fit."""
    noisy = noisy_ranks(sequence, EPSILON, np.random.default_rng([SEED, seed]))
    return noisy, fit(noisy)


def table_of(noisy: Floats, fitted: Floats) -> Table:
    """Return one row a position."""
    raw, smooth = (((values - SEQUENCE) ** 2).mean(axis=0) for values in (noisy, fitted))
    rows = (
        {
            "position": rank + 1,
            "count": int(count),
            "one draw of S~": float(noisy[0, rank]),
            "its S-bar": float(fitted[0, rank]),
            "mean squared error of S~": float(raw[rank]),
            "of S-bar": float(smooth[rank]),
        }
        for rank, count in enumerate(SEQUENCE)
    )
    title = f"Figure 3: a sequence, one draw at epsilon 1 and errors over {len(noisy)} draws"
    note = "Noise is seeded: NOT PRIVATE. The sequence is made up; the paper's is not given in numbers."
    return Table.of(title, rows, (note,))


def statements(noisy: Floats, fitted: Floats) -> list[Statement]:
    """Return Example 5's statements next to the means over all draws."""
    run = float(((fitted[:, :RUN] - SEQUENCE[:RUN]) ** 2).mean())
    alone = float(((fitted[:, RUN] - SEQUENCE[RUN]) ** 2).mean())
    raw = 2.0 / float(EPSILON) ** 2
    bound = EqualRuns(np.array([RUN])).harmonic(float(EPSILON)) / RUN
    equal = float(np.isclose(noisy[:, RUN], fitted[:, RUN]).mean())
    return [
        Statement(
            "Example 5",
            f"in the run of {RUN} equal counts {FIT} averages out the noise",
            f"squared error a count {run:.3g} against {raw:g} of {RAW} (bound 2 H({RUN}) / {RUN} = {bound:.3g})",
            run <= raw / 4,
        ),
        Statement(
            "Example 5",
            f"at the twenty-first, a unique count, {FIT} equals {RAW}",
            f"equal in {equal:.0%} of the draws; squared error {alone:.3g} against {raw:g}",
            equal > 0.5,
        ),
    ]


def report(results: Sequence[Runs[Ints, tuple[Floats, Floats]]], path: Path) -> Report:
    """Return the table, the statements, and the figure of the first draw."""
    noisy, fitted = (np.stack(samples) for samples in zip(*results[0].found, strict=True))
    x = list(range(1, SEQUENCE.size + 1))
    lines = {"true counts": SEQUENCE.astype(float), RAW: noisy[0], FIT: fitted[0]}
    curves = tuple(Curve(name, x, values.tolist(), theory=name == "true counts") for name, values in lines.items())
    style = AxisStyle("rank", "count", "linear", "linear")
    figures = draw(path, [[CurvePanel("one draw, epsilon 1", curves)]], style)
    return Report({"": table_of(noisy, fitted)}, figures, statements=statements(noisy, fitted))


FIGURE3 = Study(
    "hay2010/figure3", lambda _, small: [(SEQUENCE, range(SMALL_SAMPLES if small else SAMPLES))], measure, report
)
