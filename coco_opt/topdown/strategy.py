"""Which queries to measure and with what shares of a level's budget, so that a workload's answers come out well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import parse_fraction
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema


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
