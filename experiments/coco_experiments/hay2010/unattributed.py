"""The unattributed estimators of section 3 on one draw of noise, their squared errors, and figures 3 and 7.

Figure 3: one sequence with a long run of equal counts and a unique one, a noisy draw of it, and S-bar.

The paper's own sequence is in its drawing only; this one has its two features, twenty equal counts and then a count
that occurs once.

Figure 7: where in NetTrace's unattributed histogram S-bar errs, over 200 samples.

The text lost the figure's epsilon; 1 is taken. Errors are grouped by the length of the run of equal counts a position
lies in, and by whether it is an end of the run or in its middle half.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.data import NET_TRACE_SOURCE, Counts, generated, original_or_simulated
from coco_experiments.hay2010.strategies import EqualRuns
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt import solving
from coco_opt.array_types import Floats, Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_opt.ranges import measure_sorted, round_nonnegative

RAW, SORTED, FIT = "S~", "S~r", "S-bar"
GEOMETRIC, GEOMETRIC_L1 = "S-bar, geometric noise", "S-bar p = 1, geometric noise"
ESTIMATORS = (RAW, SORTED, FIT, GEOMETRIC, GEOMETRIC_L1)


def noisy_ranks(ranks: Ints, epsilon: Fraction, rng: np.random.Generator) -> Floats:
    """Return sorted counts (n,) with Laplace noise of scale 1 / epsilon (NOT PRIVATE: seeded)."""
    return ranks + rng.laplace(0.0, 1.0 / float(epsilon), ranks.size)


def fit(noisy: Floats) -> Floats:
    """Return S-bar (n,): the certified isotonic regression in squares."""
    value: Floats = solving.solve(IsotonicL2(noisy)).value
    return value


def estimates(ranks: Ints, epsilon: Fraction, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return every estimator's answer (n,) on one draw of Laplace and one of geometric noise."""
    noisy = noisy_ranks(ranks, epsilon, rng)
    source = SeededNoise(int(rng.integers(2**62)))
    (geometric,) = measure_sorted(ranks, Epsilon(epsilon), source=source).answers
    return {
        RAW: noisy,
        SORTED: round_nonnegative(np.sort(noisy)),
        FIT: fit(noisy),
        GEOMETRIC: solving.solve(IsotonicL2(geometric.values)).value,
        GEOMETRIC_L1: solving.solve(IsotonicL1(geometric.values)).value,
    }


def squared_error(estimate: NDArray[Any], ranks: Ints) -> float:
    """Return the sum of squared errors (Definition 2.3, before the expectation)."""
    difference = np.asarray(estimate - ranks, dtype=np.float64)
    return float(difference @ difference)


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
    """Return the table, the statements, and the figure of the first draw in which the unique count keeps its answer."""
    noisy, fitted = (np.stack(samples) for samples in zip(*results[0].found, strict=True))
    example = int(np.isclose(noisy[:, RUN], fitted[:, RUN]).argmax())
    x = list(range(1, SEQUENCE.size + 1))
    lines = {"true counts": SEQUENCE.astype(float), RAW: noisy[example], FIT: fitted[example]}
    curves = tuple(Curve(name, x, values.tolist(), theory=name == "true counts") for name, values in lines.items())
    style = AxisStyle("rank", "count", "linear", "linear")
    figures = draw(path, [[CurvePanel("one draw, epsilon 1", curves)]], style)
    return Report({"": table_of(noisy, fitted)}, figures, statements=statements(noisy, fitted))


FIGURE3 = Study(
    "hay2010/figure3", lambda _, small: [(SEQUENCE, range(SMALL_SAMPLES if small else SAMPLES))], measure, report
)


POSITIONS_SAMPLES, POSITIONS_SMALL_SAMPLES = 200, 20
POSITIONS_SEED = 7
CLASSES = ((1, 1), (2, 9), (10, 99), (100, 2**62))
DRAWN = 6_000  # positions from the largest count on


def measure_positions(data: Counts, sample: int) -> Floats:
    """Return S-bar's squared error at every rank (n,)."""
    errors: Floats = (
        fit(noisy_ranks(data.ranks, EPSILON, np.random.default_rng([POSITIONS_SEED, sample]))) - data.ranks
    ) ** 2
    return errors


def table_of_positions(data: Counts, errors: Floats, samples: int) -> Table:
    """Return one row a class of run lengths."""
    _, start, length = np.unique(data.ranks, return_index=True, return_counts=True)
    rows: list[Record] = []
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


def statements_positions(table: Table) -> list[Statement]:
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
        return [(generated(1_024), range(POSITIONS_SMALL_SAMPLES))]
    return [(original_or_simulated(NET_TRACE_SOURCE, data), range(POSITIONS_SAMPLES))]


def report_positions(results: Sequence[Runs[Counts, Floats]], path: Path) -> Report:
    """Return the table, Appendix C's statements and the figure."""
    (runs,) = results
    errors: Floats = sum(runs.found, np.zeros(runs.case.values.size)) / len(runs.seeds)
    table = table_of_positions(runs.case, errors, len(runs.seeds))
    return Report({"": table}, _plot(path, runs.case, errors), statements=statements_positions(table))


FIGURE7 = Study("hay2010/figure7", plan, measure_positions, report_positions)
