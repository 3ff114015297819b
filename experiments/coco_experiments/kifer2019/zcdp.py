"""The slides' tables of noise variances: six levels, identity queries, pure against zero-concentrated privacy.

A person replaced changes an identity query's answers by 2 in all (L1) and by the root of 2 (L2). Laplace noise has
variance 2 (2 levels / epsilon)^2; Gaussian noise levels / rho, rho being what the standard conversion gives for epsilon
and delta. Next to them what this program would draw: geometric noise, and rho by the tight conversion (Canonne, Kamath
and Steinke 2020), which buys the same epsilon and delta with less noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.outcome import Cell, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.privacy import Cost, Epsilon, Rho
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.cost import Sensitivity

LEVELS = 6
PERSON = Sensitivity(2, 2)  # L1, and L2 squared
PUBLISHED: dict[str, tuple[float, ...]] = {
    "0": (288.0, 72.0, 32.0, 18.0, 11.5),
    "1e-14": (785.6, 199.4, 89.9, 51.3, 33.3),
    "1e-9": (509.3, 130.3, 59.2, 34.0, 22.2),
    "1e-6": (343.5, 88.8, 40.7, 23.6, 15.6),
}
"""Variances for epsilon = 1 to 5, by delta; of Laplace noise at delta 0."""
HALF_A_DIGIT = 0.05 + 1e-9


def laplace_variance(epsilon: int) -> float:
    """Return 2 (L1 sensitivity x levels / epsilon)^2."""
    return 2.0 * float(Fraction(PERSON.l1 * LEVELS, epsilon)) ** 2


def gaussian_variance(rho: Fraction) -> float:
    """Return the variance that a level's share of rho buys: L2 sensitivity^2 levels / (2 rho)."""
    return float(PERSON.l2_squared * LEVELS / (2 * rho))


def measure(delta: str, seed: int) -> list[dict[str, Cell]]:
    """Return a row for each epsilon at one delta."""
    rows: list[dict[str, Cell]] = []
    for epsilon, published in enumerate(PUBLISHED[delta], 1):
        cost: Cost = Epsilon(Fraction(epsilon))
        formula, tight, noise = laplace_variance(epsilon), None, "Laplace"
        if delta != "0":
            standard, better = (
                rho_of_epsilon_delta(Fraction(epsilon), Fraction(delta), conversion)
                for conversion in ("standard", "tight")
            )
            cost, formula, tight, noise = (
                Rho(standard),
                gaussian_variance(standard),
                gaussian_variance(better),
                "Gaussian",
            )
        drawn = (cost * Fraction(1, LEVELS)).distribution(PERSON).variance
        row: dict[str, Cell] = {"delta": delta, "epsilon": epsilon, "noise": noise, "published": published}
        rows.append({**row, "formula": formula, "drawn here": drawn, "tight conversion": tight})
    return rows


def report(results: Sequence[Runs[str, list[dict[str, Cell]]]], path: Path) -> Report:
    """Return published variances next to the formulas'; it fails where a last digit differs."""
    notes = (
        "Published: slides on zCDP. A variance here is that of one answer at one of six levels.",
        "Laplace noise has less variance; by the tight conversion Gaussian noise does at delta 1e-6 up to epsilon 2.",
    )
    table = Table.of(
        "variance of an identity query's answer, six levels", (row for runs in results for row in runs.found[0]), notes
    )
    wrong = [row for row in table.records() if abs(row["formula"] - row["published"]) > HALF_A_DIGIT]
    failures = (
        f"delta {row['delta']}, epsilon {row['epsilon']}: {row['formula']} is not the published {row['published']}"
        for row in wrong
    )
    statements = (
        Statement(
            f"slides, delta {delta}, epsilon 1 to {len(values)}",
            ", ".join(f"{value:g}" for value in values),
            ", ".join(f"{row['formula']:.1f}" for row in table.records() if row["delta"] == delta),
            all(row["delta"] != delta for row in wrong),
        )
        for delta, values in PUBLISHED.items()
    )
    return Report({"": table}, failures=failures, statements=statements)


ZCDP = Study("kifer2019/zcdp", lambda _, small: seeded(PUBLISHED), measure, report)
