"""Noise saved at equal (epsilon, delta) by composing privacy loss distributions in place of zCDP's conversion.

Two allocations of a budget: Kuo's three levels, one cumulative query each with an equal share (Kuo et al. 2018), and
the shares of the 2020 redistricting data, eleven queries at five levels, a person replaced changing two answers of each
(Abowd et al. 2022). Either accounting buys a rho from the same epsilon and delta; variances go down as it goes up.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from coco_experiments.kifer2019.redistricting import LEVEL_SHARES, SHARES
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.composition import bought
from coco_opt.privacy.cost import Rho, Sensitivity
from coco_opt.privacy.loss_distributions import composed

NAME = "beyond/loss_distributions"
Allocation = tuple[tuple[Fraction, Sensitivity], ...]
PAIRS = tuple((Fraction(epsilon), Fraction(1, 10**power)) for epsilon in ("1/2", "1", "4", "16") for power in (6, 10))
COLUMNS = ("allocation", "queries", "epsilon", "delta", "rho by zCDP", "rho", "variance saved", "delta reached")


def allocations() -> dict[str, Allocation]:
    """Return the shares and sensitivities of all queries, by allocation."""
    levels, total = 3, sum(LEVEL_SHARES)
    census = tuple(
        (Fraction(of_level, total) * Fraction(part, sum(parts)), Sensitivity(2, 2))
        for of_level, parts in zip(LEVEL_SHARES, SHARES, strict=True)
        for part in parts
    )
    return {"Kuo, three levels": ((Fraction(1, levels), Sensitivity(1, 1)),) * levels, "2020 redistricting": census}


def rows(pairs: tuple[tuple[Fraction, Fraction], ...]) -> list[tuple[Cell, ...]]:
    """Return a row for each allocation and pair of epsilon and delta."""
    lines: list[tuple[Cell, ...]] = []
    for name, shares in allocations().items():
        for epsilon, delta in pairs:
            by_zcdp, rho = rho_of_epsilon_delta(epsilon, delta), bought(epsilon, delta, shares)
            parts = [(Rho(rho * share).distribution(sensitivity), sensitivity) for share, sensitivity in shares]
            reached = composed(parts).delta(epsilon) / float(delta)
            amounts = (float(epsilon), float(delta), float(by_zcdp), float(rho))
            lines.append((name, len(shares), *amounts, 1 - float(by_zcdp / rho), reached))
    return lines


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Print both rhos and the share of the variance that is saved; fails where nothing is, or delta is exceeded."""
    notes = (
        "Variance saved: of every noisy answer, at the same epsilon and delta.",
        "Delta reached: what privacy loss distributions certify of the delta asked for, at most 1.",
    )
    pairs = PAIRS[2:3] if small else PAIRS
    table = Table("rho that epsilon and delta buy: by zCDP, by loss distributions", COLUMNS, tuple(rows(pairs)), notes)
    failures = [
        f"{row['allocation']}, epsilon {row['epsilon']}, delta {row['delta']}: saved {row['variance saved']}"
        for row in table.records()
        if not (float(str(row["variance saved"])) > 0 and 0.98 < float(str(row["delta reached"])) <= 1)
    ]
    reporter.progress(NAME, 1, 1)
    return publish(NAME, {"": table}, out, reporter, failures=failures)
