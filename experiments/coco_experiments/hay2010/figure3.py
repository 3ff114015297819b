"""Figure 3: one sequence with a long run of equal counts and a unique one, a noisy draw of it, and S-bar.

The paper's own sequence is in its drawing only; this one has its two features, twenty equal counts and then a count
that occurs once.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.theory import Runs
from coco_experiments.hay2010.unattributed import FIT, RAW, fit, noisy_ranks
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish, statements_table, write_csv
from coco_opt.array_types import Floats

NAME = "hay2010/figure3"
EPSILON = Fraction(1)
SAMPLES, SMALL_SAMPLES = 1_000, 50
SEED = 3
RUN = 20
SEQUENCE = np.array([10] * RUN + [14, 18, 18, 18, 20], dtype=np.int64)

COLUMNS = ("position", "count", "one draw of S~", "its S-bar", "mean squared error of S~", "of S-bar")


def draws(samples: int) -> tuple[Floats, Floats]:
    """Return noisy sequences and their fits, (samples, n) each."""
    noisy = np.stack([noisy_ranks(SEQUENCE, EPSILON, np.random.default_rng([SEED, i])) for i in range(samples)])
    return noisy, np.stack([fit(sample) for sample in noisy])


def table_of(noisy: Floats, fitted: Floats) -> Table:
    """Return one row a position."""
    raw, smooth = (((values - SEQUENCE) ** 2).mean(axis=0) for values in (noisy, fitted))
    rows = tuple(
        (rank + 1, int(count), float(noisy[0, rank]), float(fitted[0, rank]), float(raw[rank]), float(smooth[rank]))
        for rank, count in enumerate(SEQUENCE)
    )
    return Table(
        f"Figure 3: a sequence, one draw at epsilon 1 and errors over {len(noisy)} draws",
        COLUMNS,
        rows,
        ("Noise is seeded: NOT PRIVATE. The sequence is made up; the paper's is not given in numbers.",),
    )


def statements(noisy: Floats, fitted: Floats) -> list[Statement]:
    """Return Example 5's statements next to the means over all draws."""
    run = float(((fitted[:, :RUN] - SEQUENCE[:RUN]) ** 2).mean())
    alone = float(((fitted[:, RUN] - SEQUENCE[RUN]) ** 2).mean())
    raw = 2.0 / float(EPSILON) ** 2
    bound = Runs(np.array([RUN])).harmonic(float(EPSILON)) / RUN
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


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Draw figure 3 and write CSV, PNG and PDF; needs no data. Small: fewer draws for the means."""
    noisy, fitted = draws(SMALL_SAMPLES if small else SAMPLES)
    table, claims = table_of(noisy, fitted), statements(noisy, fitted)
    x = list(range(1, SEQUENCE.size + 1))
    lines = {"true counts": SEQUENCE.astype(float), RAW: noisy[0], FIT: fitted[0]}
    curves = tuple(Curve(name, x, values.tolist(), theory=name == "true counts") for name, values in lines.items())
    style = AxisStyle("rank", "count", "linear", "linear")
    figures = draw(out / NAME, [[CurvePanel("one draw, epsilon 1", curves)]], style)
    files = [write_csv(out / f"{NAME}_statements.csv", statements_table(claims)), *figures]
    return publish(NAME, {"": table}, out, reporter, files=files, statements=claims)
