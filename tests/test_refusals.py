"""What people pass by mistake from Python is refused by name, never taken for something else."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import coco_opt as co
from coco_opt.errors import CocoOptError

MASKED = np.ma.masked_array([3, 1, 4], mask=[False, True, False])
TREE = co.Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
COST = co.Epsilon(Fraction(1))


def estimated(threads: object = 1, groups: object = (6, 3, 3)) -> object:
    north, south = (co.CountOfCounts.from_runs([size], [3]) for size in (1, 2))
    noisy = co.measure_hierarchy(
        [north + south, north, south],
        TREE,
        groups,  # type: ignore[arg-type]
        queries=["cumulative"] * 2,
        costs=COST.shared(["1/2", "1/2"]),
        max_size=4,
        neighbours="add_remove",
        source=co.SeededNoise(1),
    )
    return co.estimate_groups(noisy, threads=threads)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: co.IsotonicL1(MASKED), "masked entries"),
        (lambda: co.CountOfCounts.from_runs(MASKED, [1, 2, 3]), "masked array"),
        (lambda: co.measure_ranges(MASKED, COST, source=co.SeededNoise(1)), "masked array"),
        (lambda: co.TableCounts.from_counts(TREE, co.Schema({"s": ["f"]}), MASKED[:2, None]), "masked array"),
        (lambda: co.CountOfCounts.from_runs([1, 2], [1.0, 2.0]), "must hold integers"),
        (lambda: co.Epsilon(0.1), "a float is no exact cost"),  # type: ignore[arg-type]
        (lambda: co.Hierarchy.from_paths(["nation/north"]), "a path is a sequence of names"),
        (lambda: co.Schema({"sex": "fm"}), "needs a list of names"),
        (lambda: estimated(groups=[6.0, 3.0, 3.0]), "public numbers of groups must hold integers"),
        (lambda: estimated(0), "threads must be an integer of at least 1, not 0"),
        (lambda: estimated(1.5), "threads must be an integer"),
        (lambda: estimated("2"), "threads must be an integer"),
        (lambda: co.solve_many([], threads=-1), "threads must be an integer"),
    ],
)
def test_a_mistake_is_named(mistake: Callable[[], object], words: str) -> None:
    with pytest.raises(CocoOptError, match=words):
        mistake()
