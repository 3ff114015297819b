"""What a release of tables asks of a checked configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, Protocol

from coco_opt.runs.settings import RunSettings
from coco_opt.topdown.method import Estimation, WholeRule


class GroupingSettings(Protocol):
    """An attribute made coarser."""

    @property
    def of(self) -> str:
        """Return the attribute."""
        ...

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Return each group's values."""
        ...


class InvariantSettings(Protocol):
    """A query that is exact at a level."""

    @property
    def query(self) -> str:
        """Return the query."""
        ...

    @property
    def level(self) -> str:
        """Return the level's name."""
        ...


class PassSettings(Protocol):
    """Queries fitted together."""

    @property
    def queries(self) -> Sequence[str]:
        """Return the queries."""
        ...

    @property
    def tolerance(self) -> float:
        """Return within how many persons later passes keep their answers."""
        ...


class TopdownSettings(Protocol):
    """How tables are measured and made whole."""

    @property
    def attributes(self) -> Mapping[str, Sequence[str]]:
        """Return the values of every attribute."""
        ...

    @property
    def groupings(self) -> Mapping[str, GroupingSettings]:
        """Return the coarser attributes."""
        ...

    @property
    def structural_zeros(self) -> Sequence[str] | None:
        """Return the rules of cells that cannot occur."""
        ...

    @property
    def workload(self) -> Sequence[str]:
        """Return the queries that matter."""
        ...

    @property
    def strategy(self) -> str | Sequence[str]:
        """Return the name of a strategy, or its queries."""
        ...

    @property
    def shares(self) -> Literal["uniform"] | Sequence[Fraction]:
        """Return the queries' shares of a level's budget."""
        ...

    @property
    def invariants(self) -> Sequence[InvariantSettings]:
        """Return what is exact."""
        ...

    @property
    def passes(self) -> Sequence[PassSettings]:
        """Return groups of queries in order of importance."""
        ...

    @property
    def estimation(self) -> Estimation:
        """Return what a region is fitted to."""
        ...

    @property
    def rounding(self) -> WholeRule:
        """Return how tables become whole."""
        ...

    @property
    def microdata(self) -> bool:
        """Return whether one row a person is written."""
        ...


class TablesSettings(RunSettings, Protocol):
    """A checked configuration of a release of tables."""

    @property
    def topdown(self) -> TopdownSettings:
        """Return how tables are measured and made whole."""
        ...
