"""What the paper says in words beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coco_experiments.experiment import Table

COLUMNS = ("where", "published", "measured", "holds")


@dataclass(frozen=True, slots=True)
class Statement:
    """A published statement in short, the measured figures that answer it, and whether it holds here."""

    where: str
    published: str
    measured: str
    holds: bool


def statements_table(title: str, statements: Sequence[Statement], notes: Sequence[str] = ()) -> Table:
    """Return the statements as a table."""
    rows = tuple((one.where, one.published, one.measured, one.holds) for one in statements)
    return Table(title, COLUMNS, rows, tuple(notes))
