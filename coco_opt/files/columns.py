"""What columns a table must have, and the check of the names it has: by name, and in the stated order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from coco_opt.errors import InputError, Place
from coco_opt.files.inputs import Input

_SHOWN = 12  # names of columns in a message


@dataclass(frozen=True, slots=True)
class Columns:
    """Name the first and last columns of a table; ``levels`` allows columns of any name in between (``middle``: what).

    ``blank`` names columns of integers that may be empty, which pandas then stores as decimal numbers.
    With ``others`` columns go by name in any order, counts named in ``optional`` may be there, and more are ignored.
    Errors on a private table name no column that the table alone knows: without a header, its first row of
    data looks like names.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    levels: bool = False
    middle: str = "one column a level, root first"
    min_levels: int = 0
    private: bool = True
    optional: tuple[str, ...] = ()
    others: bool = False
    blank: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The names that must occur."""
        return self.first + self.last

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of columns that hold counts."""
        return self.last + self.optional

    def renamed(self, names: Mapping[str, str]) -> Columns:
        """Return the same table with some columns called otherwise, by the name that they have here."""
        first, last, optional, blank = (
            tuple(names.get(name, name) for name in group)
            for group in (self.first, self.last, self.optional, self.blank)
        )
        return replace(self, first=first, last=last, optional=optional, blank=blank)

    def called(self, source: Input, names: Collection[str], row: int | None = None) -> dict[str, str]:
        """Return what the columns of this table are called there, by their names here. Raises InputError.

        Two of them cannot be one column: then one of them is missing.
        """
        called = source.called(names)
        own = {name: called[name] for name in (*self.required, *self.optional) if name in called}
        for there in set(own.values()) & set(names):
            same = [name for name, each in own.items() if each == there]
            if len(same) > 1:
                message = f"{' and '.join(same)} would both be this column: it has no other of their names"
                raise InputError("missing-column", message, Place(source.name, row, there))
        return own

    def selected(self, names: Sequence[str]) -> list[int]:
        """Return the places of the columns that are read, in the order in which they are named here."""
        if not self.others:
            return list(range(len(names)))
        return [names.index(name) for name in (*self.required, *self.optional) if name in names]

    def describe(self) -> str:
        """Return the expected header in words."""
        middle = (self.middle,) if self.levels else ()
        return ", ".join((*self.first, *middle, *self.last))

    def check(self, names: Sequence[str], file: str, header_row: int | None) -> None:
        """Raise InputError unless ``names`` is a header of this kind.

        Codes: no-header, missing-column, duplicate-column, unexpected-column, swapped-columns.
        """
        self._check_present(names, file, header_row)
        read = (*self.required, *self.optional)
        repeated = [name for name, times in Counter(names).items() if times > 1 and (not self.others or name in read)]
        if repeated:
            place = Place(file, header_row, self._shown(names, names.index(repeated[0])))
            raise InputError("duplicate-column", "two columns have this name", place)
        if self.others:
            return
        extra = [k for k, name in enumerate(names) if name not in self.required]
        unwanted = [k for k in extra if not self.levels or not names[k].strip()]
        if unwanted:
            place = Place(file, header_row, self._shown(names, unwanted[0]))
            raise InputError("unexpected-column", f"the columns must be {self.describe()}", place)
        if len(extra) < self.min_levels:
            raise InputError("missing-column", "no level column: name every level, root first", Place(file))
        split = len(names) - len(self.last)
        if tuple(names[: len(self.first)]) != self.first or tuple(names[split:]) != self.last:
            where = Place(file, header_row)
            raise InputError("swapped-columns", f"the columns must be, in this order, {self.describe()}", where)

    def _check_present(self, names: Sequence[str], file: str, header_row: int | None) -> None:
        missing = [name for name in self.required if name not in names]
        if header_row is not None and len(missing) == len(self.required):
            message = f"the first row must hold the column names {self.describe()}"
            raise InputError("no-header", message, Place(file, header_row))
        spaced = [name for name in names if name.strip() in missing]
        if spaced:
            place = Place(file, header_row, spaced[0].strip())
            raise InputError("missing-column", f"the table has {spaced[0]!r}: remove the spaces around the name", place)
        if missing:
            place = Place(file, header_row, missing[0])
            raise InputError("missing-column", f"the columns must be {self.describe()}; {self._listed(names)}", place)

    def shown(self, name: str) -> str | None:
        """Return the name of a column for a message; None for a column that a private table alone has."""
        return None if self.private and name not in (*self.required, *self.optional) else name

    def _shown(self, names: Sequence[str], position: int) -> str:
        hidden = self.private and names[position] not in self.required
        return f"#{position + 1}" if hidden else names[position]

    def _listed(self, names: Sequence[str]) -> str:
        """Say what columns a table has; of a private table, only the required columns."""
        named = [name for name in names if not self.private or name in self.required]
        unseen = len(names) - len(named[:_SHOWN])
        shown = ", ".join([*map(repr, named[:_SHOWN]), *([f"{unseen} not shown"] if unseen else [])])
        return (
            f"the table has {shown}: say what a column is called there by columns = "
            '{ name = "its name there" } in [data]'
        )


ENTITIES = Columns(first=("entity_id", "group_id"), others=True)
GROUPS = Columns(first=("group_id", "region_id"), private=False, others=True)
HIERARCHY = Columns(first=("region_id",), levels=True, min_levels=1, private=False)
SIZES = Columns(last=("size", "groups"), levels=True)


def hierarchy_columns(levels: Sequence[str] = ()) -> Columns:
    """Return the columns of a hierarchy with these levels; the rest is ignored. Without any, all columns are levels."""
    return Columns(first=("region_id", *levels), others=True, private=False) if levels else HIERARCHY
