"""The section ``[topdown]``: attributes, queries, what is exact, and how tables of persons are made whole."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import Section
from coco_opt.config.values import KeyedError, one_of, split_shares

Strategy = Literal["workload", "identity", "optimised"]
Estimation = Literal["full", "classic", "bottom_up"]
TableRounding = Literal["nearest", "unbiased"]
_STRATEGIES = ("workload", "identity", "optimised")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(one, str) and one for one in value):
        raise ValueError("must be a list of texts, and not be empty")
    return tuple(value)


def _attributes(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not value:
        raise ValueError('must be a table such as { sex = ["female", "male"] }')
    found = {}
    for name, values in value.items():
        try:
            found[name] = _texts(values)
        except ValueError:
            raise ValueError(f"{name!r} must be a list of the names of its values") from None
    return found


def _strategy(value: object) -> str | tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return _texts(value)
    if value in _STRATEGIES:
        return str(value)
    raise ValueError(f"must be one of {', '.join(_STRATEGIES)}, or a list of queries")


def _query_shares(value: object) -> Literal["uniform"] | tuple[Fraction, ...]:
    return split_shares(value, "a query of the strategy")


Texts = Annotated[tuple[str, ...], PlainValidator(_texts)]


class InvariantConfig(Section):
    """A query whose true answers hold exactly in every region of a level (its column's name) and above."""

    query: str
    level: str


class PassConfig(Section):
    """Queries fitted together; later passes keep their answers within ``tolerance`` persons."""

    queries: Texts
    tolerance: Annotated[float, Field(ge=0.0)] = 0.0


class GroupingConfig(Section):
    """An attribute made coarser: named groups of the values of the attribute ``of``."""

    of: str
    groups: Annotated[dict[str, tuple[str, ...]], PlainValidator(_attributes)]


class TopdownConfig(Section):
    """How tables of persons are measured and made whole, from the root down."""

    attributes: Annotated[dict[str, tuple[str, ...]], PlainValidator(_attributes)]
    groupings: dict[str, GroupingConfig] = Field(default_factory=dict)
    structural_zeros: Texts | None = None
    workload: Texts
    strategy: Annotated[Strategy | tuple[str, ...], PlainValidator(_strategy)] = "workload"
    shares: Annotated[Literal["uniform"] | tuple[Fraction, ...], PlainValidator(_query_shares)] = "uniform"
    invariants: Annotated[tuple[InvariantConfig, ...], Field(strict=False)] = ()
    passes: Annotated[tuple[PassConfig, ...], Field(strict=False)] = ()
    estimation: Annotated[Estimation, one_of("full", "classic", "bottom_up")] = "full"
    rounding: Annotated[TableRounding, one_of("nearest", "unbiased")] = "nearest"
    microdata: bool = False

    @model_validator(mode="after")
    def _shares_fit(self) -> TopdownConfig:
        if self.shares == "uniform":
            return self
        if self.strategy == "optimised":
            raise KeyedError("shares", 'are what strategy = "optimised" computes: remove them')
        asked = {"identity": 1, "workload": len(self.workload)}.get(
            self.strategy if isinstance(self.strategy, str) else "", len(self.strategy)
        )
        if len(self.shares) != asked:
            raise KeyedError("shares", f"has {len(self.shares)} entries, but the strategy has {asked} queries")
        return self

    def plain(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return self.model_dump(mode="json", exclude_none=True)
