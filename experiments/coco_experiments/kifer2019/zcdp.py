"""The slides' tables of noise variances: six levels, identity queries, pure against zero-concentrated privacy.

A person replaced changes an identity query's answers by 2 in all (L1) and by the root of 2 (L2). Laplace noise has
variance 2 (2 levels / epsilon)^2; Gaussian noise levels / rho, rho being what the standard conversion gives for epsilon
and delta. Next to them what this program would draw: geometric noise, and rho by the tight conversion (Canonne, Kamath
and Steinke 2020), which buys the same epsilon and delta with less noise.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish
from coco_opt.privacy import Epsilon, Rho
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.cost import Sensitivity

NAME = "kifer2019/zcdp"
LEVELS = 6
PERSON = Sensitivity(2, 2)  # L1, and L2 squared
LAPLACE = (288.0, 72.0, 32.0, 18.0, 11.5)
PUBLISHED: dict[Fraction, tuple[float, ...]] = {
    Fraction(1, 10**14): (785.6, 199.4, 89.9, 51.3, 33.3),
    Fraction(1, 10**9): (509.3, 130.3, 59.2, 34.0, 22.2),
    Fraction(1, 10**6): (343.5, 88.8, 40.7, 23.6, 15.6),
}
"""Variances for epsilon = 1 to 5, by delta."""
HALF_A_DIGIT = 0.05 + 1e-9
COLUMNS = ("delta", "epsilon", "noise", "published", "formula", "drawn here", "tight conversion")


def laplace_variance(epsilon: int) -> float:
    """Return 2 (L1 sensitivity x levels / epsilon)^2."""
    return 2.0 * float(Fraction(PERSON.l1 * LEVELS, epsilon)) ** 2


def gaussian_variance(rho: Fraction) -> float:
    """Return the variance that a level's share of rho buys: L2 sensitivity^2 levels / (2 rho)."""
    return float(PERSON.l2_squared * LEVELS / (2 * rho))


def rows() -> list[tuple[Cell, ...]]:
    """Return a row for each delta and epsilon, the Laplace rows first."""
    lines: list[tuple[Cell, ...]] = []
    for epsilon, published in enumerate(LAPLACE, 1):
        drawn = (Epsilon(Fraction(epsilon)) * Fraction(1, LEVELS)).distribution(PERSON).variance
        lines.append(("0", epsilon, "Laplace", published, laplace_variance(epsilon), drawn, None))
    for delta, variances in PUBLISHED.items():
        for epsilon, published in enumerate(variances, 1):
            rho, tight = (
                rho_of_epsilon_delta(Fraction(epsilon), delta, conversion) for conversion in ("standard", "tight")
            )
            drawn = (Rho(rho) * Fraction(1, LEVELS)).distribution(PERSON).variance
            row = (
                _name(delta),
                epsilon,
                "Gaussian",
                published,
                gaussian_variance(rho),
                drawn,
                gaussian_variance(tight),
            )
            lines.append(row)
    return lines


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Print published variances next to the formulas'; fails where a last digit differs."""
    notes = (
        "Published: slides on zCDP. A variance here is that of one answer at one of six levels.",
        "Laplace noise has less variance; by the tight conversion Gaussian noise does at delta 1e-6 up to epsilon 2.",
    )
    table = Table("variance of an identity query's answer, six levels", COLUMNS, tuple(rows()), notes)
    failures = [
        f"delta {row['delta']}, epsilon {row['epsilon']}: {row['formula']} is not the published {row['published']}"
        for row in table.records()
        if abs(float(str(row["formula"])) - float(str(row["published"]))) > HALF_A_DIGIT
    ]
    reporter.progress(NAME, 1, 1)
    claims = tuple(
        Statement(
            f"slides, delta {delta}, epsilon 1 to {len(values)}",
            ", ".join(f"{value:g}" for value in values),
            ", ".join(f"{row['formula']:.1f}" for row in table.records() if row["delta"] == delta),
            not any(failure.startswith(f"delta {delta},") for failure in failures),
        )
        for delta, values in _published().items()
    )
    return publish(NAME, {"": table}, out, reporter, failures=failures, statements=claims)


def _published() -> dict[str, tuple[float, ...]]:
    return {"0": LAPLACE} | {_name(delta): variances for delta, variances in PUBLISHED.items()}


def _name(delta: Fraction) -> str:
    return f"1e-{len(str(delta.denominator)) - 1}"
