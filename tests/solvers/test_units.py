"""Every package on every continuous problem at counts and noise of all sizes, beside CVXPY's plain form."""

from __future__ import annotations

from itertools import product

import pytest
from coco_experiments.bench.units import NOISE, PERSONS, compared, instances

SIZES = list(product(PERSONS, NOISE))


def falls_short(persons: int, noise: int) -> list[str]:
    """Return which packages fall short of their plain form at these sizes."""
    return [
        f"{row[0]} by {row[3]}: {row[4]}, {row[5]} beside {row[6]}"
        for case, problem in instances(persons, noise).items()
        for row in compared(case, persons, noise, problem)
        if row[7]
    ]


def test_no_package_falls_short_of_its_plain_form() -> None:
    assert falls_short(10**4, 10) == []


@pytest.mark.slow
@pytest.mark.parametrize(("persons", "noise"), SIZES)
def test_no_package_falls_short_of_its_plain_form_at_any_size(persons: int, noise: int) -> None:
    assert falls_short(persons, noise) == []
