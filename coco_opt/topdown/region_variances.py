"""Variances of noise that differ between the regions of a level, and regions of a level that were not measured.

A spine can bypass a region: its children take its place, with the budget of both levels, and what lies below them was
not measured again. So regions of one level fall into classes of the same variances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy.noise_distributions import DiscreteGaussian

VARIANCES = "variances"
"""The parameter of a measurement that states them, and the name of the public numbers that state regions' classes."""


@dataclass(frozen=True, eq=False, slots=True)
class RegionVariances:
    """The discrete Gaussian noise of a level whose regions differ.

    ``classes`` int64[regions of the level] are the regions' classes, ``stated`` by name of a query sigma^2 of each
    class, None where its regions were not measured. Raises ProblemError for numbers that are no classes, variances that
    are not positive, and a query that no class measures.
    """

    level: int
    classes: Ints
    stated: Mapping[str, tuple[Fraction | None, ...]]

    def __post_init__(self) -> None:
        count = {len(variances) for variances in self.stated.values()}
        if len(count) != 1 or not self.classes.size:
            raise ProblemError(f"level {self.level}: variances by region need one number for each class and query")
        if self.classes.min() < 0 or self.classes.max() >= count.pop():
            raise ProblemError(f"level {self.level}: a region's class of variances is out of range")
        for name, variances in self.stated.items():
            measured = [variance for variance in variances if variance is not None]
            if not measured or min(measured) <= 0:
                raise ProblemError(f"level {self.level}, {name!r}: variances must be positive, and one be stated")
        self.classes.setflags(write=False)

    def __reduce__(self) -> tuple[Callable[..., RegionVariances], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return RegionVariances, (self.level, self.classes, dict(self.stated))

    def least(self, name: str) -> Fraction:
        """Return the least sigma^2 of a query's noise."""
        return min(variance for variance in self.stated[name] if variance is not None)

    @property
    def unmeasured(self) -> int:
        """Return how many regions have no answers to any query."""
        empty = np.all([[value is None for value in variances] for variances in self.stated.values()], axis=0)
        return int(np.count_nonzero(empty[self.classes]))

    def of(self, name: str) -> Floats:
        """Return the exact variances [regions of the level] of a query's noise, infinite where it was not measured."""
        by_class = [np.inf if value is None else DiscreteGaussian(value).variance for value in self.stated[name]]
        return np.asarray(np.array(by_class, np.float64)[self.classes])

    def precisions(self, name: str) -> Floats:
        """Return 1 / (2 sigma^2) [regions of the level] of a query's noise, 0 where it was not measured."""
        by_class = [0.0 if value is None else float(1 / (2 * value)) for value in self.stated[name]]
        return np.asarray(np.array(by_class, np.float64)[self.classes])

    def plain(self) -> list[Any]:
        """Return JSON-able values of all but the regions' classes."""
        texts = {
            name: [None if value is None else str(value) for value in variances]
            for name, variances in self.stated.items()
        }
        return [self.level, texts]

    @classmethod
    def read(cls, plain: Sequence[Any], tables: Mapping[str, Ints]) -> RegionVariances:
        """Return what ``plain`` stated, with the regions' classes from a measurement's public numbers."""
        level, texts = plain
        stated = {
            name: tuple(None if text is None else Fraction(text) for text in values) for name, values in texts.items()
        }
        return cls(int(level), tables[classes_name(level)].copy(), stated)


def classes_name(level: int) -> str:
    """Return the name of the public numbers that state the classes of a level's regions."""
    return f"{VARIANCES} {level}"
