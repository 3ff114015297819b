"""What every query of every level costs: exact parts of a budget, and the noise they buy.

Variances of noise that differ between the regions of a level, and regions of a level that were not measured.

A spine can bypass a region: its children take its place, with the budget of both levels, and what lies below them was
not measured again. So regions of one level fall into classes of the same variances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import NEIGHBOURS, Neighbours, parse_fraction
from coco_opt.privacy.cost import Cost, Sensitivity, total
from coco_opt.privacy.noise_distributions import DiscreteGaussian, NoiseDistribution
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

Costs = tuple[tuple[Cost, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablePlan:
    """The cost of each query at each level, in one unit.

    Parameters
    ----------
    queries : tuple of Query
        What is measured.
    costs : sequence of sequence of Epsilon or Rho, [levels][queries]
        The cost of each query at each level, root first; a query of cost 0 is not measured.
    neighbours : {"add_remove", "replace"}, default "add_remove"
        By what neighbouring data sets differ: one person is added or removed, or replaced.
    rows : int, default 1
        The public maximum of rows of one person. It multiplies the L1 sensitivity of every query, and its square the
        squared L2 sensitivity.

    Raises
    ------
    ProblemError
        All costs are zero or of several units, queries share a name, or noise is too wide for 64 bits.

    Notes
    -----
    A row is in one region of a level, so the regions of a level are charged once, and the plan costs the sum over
    levels and queries.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Rho, Schema, Strategy, TablePlan, parse_queries
    >>> strategy = Strategy.uniform(parse_queries(["total", "sex"], Schema({"sex": ["female", "male"]})))
    >>> TablePlan.product(strategy, Rho(Fraction(1)), levels=2).cost == Rho(Fraction(1))
    True
    """

    queries: tuple[Query, ...]
    costs: Costs
    neighbours: Neighbours = "add_remove"
    rows: int = 1

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ProblemError("a person has at least one row")
        if self.neighbours not in NEIGHBOURS:
            raise ProblemError(f"unknown neighbours {self.neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
        names = [query.name for query in self.queries]
        if not names or len(set(names)) < len(names):
            raise ProblemError("a plan needs at least one query, and queries of different names")
        costs = tuple(tuple(level) for level in self.costs)
        if any(len(level) != len(names) for level in costs):
            raise ProblemError(f"{len(names)} queries need as many costs at every level")
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "costs", costs)
        if not self.cost:
            raise ProblemError("a plan that costs nothing measures nothing: at least one cost must be above zero")
        for level, query in self.measured_queries:
            self.distribution(level, query)

    @classmethod
    def of_levels(
        cls, strategy: Strategy, costs: Sequence[Cost], neighbours: Neighbours = "add_remove", rows: int = 1
    ) -> TablePlan:
        """Share the cost of each level, root first, by the strategy."""
        each = tuple(tuple(cost * share for share in strategy.shares) for cost in costs)
        return cls(strategy.queries, each, neighbours, rows)

    @classmethod
    def product(
        cls,
        strategy: Strategy,
        cost: Cost,
        levels: int,
        *,
        level_shares: Sequence[str | int | Fraction] | None = None,
        neighbours: Neighbours = "add_remove",
    ) -> TablePlan:
        """Share a cost over levels, and each level's cost over the queries of a strategy.

        Parameters
        ----------
        strategy : Strategy
            The queries and their shares of a level's budget.
        cost : Epsilon or Rho
            The cost of all levels together.
        levels : int
            The number of levels.
        level_shares : sequence of str, int or Fraction, optional
            The share of each level, root first; even shares if they are left out.
        neighbours : {"add_remove", "replace"}, default "add_remove"
            By what neighbouring data sets differ.

        Raises
        ------
        ProblemError
            There is not one share for each level, or they do not sum to exactly 1.
        """
        shares = [Fraction(1, max(1, levels))] * levels if level_shares is None else level_shares
        if len(shares) != levels:
            raise ProblemError(f"{levels} levels need as many shares, not {len(shares)}")
        return cls.of_levels(strategy, cost.shared(shares), neighbours)

    @property
    def levels(self) -> int:
        """Return the number of levels."""
        return len(self.costs)

    @property
    def measured_queries(self) -> tuple[tuple[int, int], ...]:
        """Return the (level, query) pairs that cost something, root first."""
        return tuple((lv, q) for lv, level in enumerate(self.costs) for q, cost in enumerate(level) if cost)

    @property
    def cost(self) -> Cost:
        """Return what measuring costs: the sum over levels and queries."""
        return total(cost for level in self.costs for cost in level)

    def sensitivity(self, query: int) -> Sensitivity:
        """Return by how much one person changes the answers to a query in all regions of a level."""
        return self.queries[query].sensitivity(self.neighbours).of_rows(self.rows)

    def distribution(self, level: int, query: int) -> NoiseDistribution:
        """Return the distribution of one answer's noise; raise ProblemError where the query is not measured."""
        measured_query, cost = self.queries[query], self.costs[level][query]
        if not cost:
            raise ProblemError(f"query {measured_query.name!r} is not measured at level {level}")
        return cost.distribution(self.sensitivity(query))

    def variance(self, level: int, query: int) -> float:
        """Return the exact variance of one answer's noise (people squared); infinite where not measured."""
        return self.distribution(level, query).variance if self.costs[level][query] else math.inf

    def __repr__(self) -> str:
        levels = " / ".join(str(total(level).amount) for level in self.costs)
        names = ", ".join(query.name for query in self.queries)
        return f"TablePlan({names}; {self.cost} by level: {levels}; {self.neighbours})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Strategy:
    """Queries and their shares of a level's budget.

    Parameters
    ----------
    queries : tuple of Query
        What is measured, with names of their own.
    shares : tuple of Fraction
        The share of each query, above zero; they sum to exactly 1.

    Raises
    ------
    ProblemError
        The shares are not like this, or two queries have one name.

    Examples
    --------
    >>> from coco_opt import Schema, Strategy, parse_queries
    >>> schema = Schema({"sex": ["female", "male"]})
    >>> [str(share) for share in Strategy.uniform(parse_queries(["total", "sex"], schema)).shares]
    ['1/2', '1/2']
    """

    queries: tuple[Query, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        queries = tuple(self.queries)
        shares = tuple(parse_fraction(share) for share in self.shares)
        names = [query.name for query in queries]
        if not queries or len(queries) != len(shares):
            raise ProblemError(f"{len(queries)} queries need as many shares, and at least one")
        if len(set(names)) < len(names):
            raise ProblemError(f"two queries of the strategy have one name: {', '.join(names)}")
        if not all(shares):
            raise ProblemError("a share of 0 measures nothing: leave the query out of the strategy")
        if sum(shares, Fraction(0)) != 1:
            raise ProblemError(f"the shares sum to {sum(shares, Fraction(0))}, not to 1")
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "shares", shares)

    @classmethod
    def uniform(cls, queries: Sequence[Query]) -> Strategy:
        """Give every query the same share: "all marginals of the workload" where they are the workload."""
        return cls(tuple(queries), (Fraction(1, max(1, len(queries))),) * len(queries))

    @classmethod
    def identity(cls, schema: Schema) -> Strategy:
        """Measure every cell and nothing else."""
        return cls.uniform([parse_query("detail", schema)])

    def __repr__(self) -> str:
        shares = ", ".join(f"{query.name}: {share}" for query, share in zip(self.queries, self.shares, strict=True))
        return f"Strategy({shares})"


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
