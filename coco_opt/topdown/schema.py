"""What a table counts: named attributes with named values, the cells of their product, and which of them can occur.

Structural zeros are rules as text: ``age = under_18 & residence = military | college`` forbids every such cell. A rule
is a conjunction (``&``) of conditions on different attributes; a condition is ``attribute = values`` or
``attribute != values``, values being alternatives (``|``) and spans (``0..14``) in the attribute's declared order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError
from coco_opt.histograms.arrays import as_int64
from coco_opt.topdown.names import check_name, find, read_values

MAX_CELLS = 2**27
KEYWORDS = ("total", "detail", "identity", "cumulative")


@dataclass(frozen=True, slots=True)
class ValueGroups:
    """Named groups of an attribute's values, for queries: each value lies in at most one.

    ``of`` is the attribute; a group lists values as text, ``"0..4 | 7"`` or a sequence of such texts.
    """

    of: str
    groups: Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Schema:
    """Attributes, their values, and the cells of their product in C order, the last attribute running fastest.

    Parameters
    ----------
    attributes : mapping of str to sequence of str
        The values of each attribute.
    structural_zeros : sequence of str, default ()
        Rules that name impossible combinations, such as "age = child & work = yes".
    groupings : mapping, optional
        Groups of an attribute's values by name, such as bands of ages.

    Attributes
    ----------
    allowed : ndarray of int64, shape (size,)
        The cells that no rule forbids. Every table of a release has these ``size`` cells, in this order.
    position : ndarray of int64, shape (cells,)
        The place of a cell among the allowed cells; -1 where it is forbidden.

    Raises
    ------
    InputError
        With a code, the rule and the nearest valid name: bad-name, bad-schema, bad-rule, unknown-attribute,
        unknown-value, bad-range, no-cells.

    Notes
    -----
    O(cells x rules).

    Examples
    --------
    >>> from coco_opt import Schema
    >>> schema = Schema({"age": ["child", "adult"], "work": ["yes", "no"]}, ["age = child & work = yes"])
    >>> schema.cells, schema.size, schema.allowed.tolist()
    (4, 3, [1, 2, 3])
    """

    attributes: Mapping[str, Sequence[str]]
    structural_zeros: Sequence[str] = ()
    groupings: Mapping[str, ValueGroups] = field(default_factory=dict)
    rules: tuple[Rule, ...] = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    allowed: Ints = field(init=False)
    position: Ints = field(init=False)
    group_labels: Mapping[str, tuple[int, Ints]] = field(init=False)

    def __post_init__(self) -> None:
        for name, values in self.attributes.items():
            if isinstance(values, str):
                raise InputError("bad-schema", f"attribute {name!r} needs a list of names of values, not a text")
        attributes = {name: tuple(values) for name, values in self.attributes.items()}
        _check_attributes(attributes)
        shape = tuple(len(values) for values in attributes.values())
        rules = tuple(parse_rule(text, attributes) for text in self.structural_zeros)
        free = np.ones(shape, np.bool_)
        for rule in rules:
            free &= ~rule.forbidden(shape)
        allowed = np.flatnonzero(free.reshape(-1)).astype(np.int64)
        if allowed.size == 0:
            raise InputError("no-cells", "the structural zeros leave no cell: remove or narrow a rule")
        position = np.full(free.size, -1, np.int64)
        position[allowed] = np.arange(allowed.size)
        groupings = dict(self.groupings)
        labels = {name: _group_labels(name, groups, attributes) for name, groups in groupings.items()}
        for array in (allowed, position, *(array for _, array in labels.values())):
            array.setflags(write=False)
        for name, value in (
            ("attributes", attributes),
            ("structural_zeros", tuple(self.structural_zeros)),
            ("groupings", groupings),
            ("rules", rules),
            ("shape", shape),
            ("allowed", allowed),
            ("position", position),
            ("group_labels", labels),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Schema, (self.attributes, self.structural_zeros, self.groupings)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the attributes' names in order."""
        return tuple(self.attributes)

    @property
    def cells(self) -> int:
        """Return the number of cells of the product, forbidden cells included."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Return the number of cells that can occur."""
        return int(self.allowed.size)

    def with_groupings(self, names: Collection[str]) -> Schema:
        """Return the schema with some of its groupings only."""
        groupings = {name: groups for name, groups in self.groupings.items() if name in names}
        return Schema(self.attributes, self.structural_zeros, groupings)

    def encode(self, codes: Mapping[str, npt.ArrayLike]) -> Ints:
        """Return the place of every record's cell among the allowed cells, int64[records].

        ``codes`` has, for every attribute, a value's index per record. Raises InputError (structural-zero).
        """
        columns = [as_int64(codes[name], f"column {name!r}") for name in self.names]
        cells = self.position[np.ravel_multi_index(columns, self.shape)]
        if (cells < 0).any():
            message = "a record lies in a cell that a structural zero forbids: correct the data or the rules"
            raise InputError("structural-zero", message)
        return cells

    def decode(self, cells: npt.ArrayLike) -> dict[str, Ints]:
        """Return the value indices, by attribute, of cells given by their places among the allowed cells."""
        codes = np.unravel_index(self.allowed[as_int64(cells, "cells")], self.shape)
        return {name: code.astype(np.int64) for name, code in zip(self.attributes, codes, strict=True)}

    def label(self, cell: int) -> str:
        """Return an allowed cell in words, ``hispanic = no, race = white``."""
        return self.product_label(int(self.allowed[cell]))

    def product_label(self, cell: int) -> str:
        """Return a cell of the product in words, allowed or not."""
        codes = np.unravel_index(cell, self.shape)
        pairs = zip(self.attributes.items(), codes, strict=True)
        return ", ".join(f"{name} = {values[int(code)]}" for (name, values), code in pairs)

    def labels(self) -> list[str]:
        """Return all allowed cells in words."""
        return [self.label(cell) for cell in range(self.size)]

    def __repr__(self) -> str:
        what = " x ".join(f"{name} {size}" for name, size in zip(self.attributes, self.shape, strict=True))
        forbidden = f", {self.cells - self.size:,} structural zeros" if self.size < self.cells else ""
        return f"Schema({what}: {self.cells:,} cells{forbidden})"


def _check_attributes(attributes: Mapping[str, Sequence[str]]) -> None:
    if not attributes:
        raise InputError("bad-schema", "a schema needs at least one attribute")
    for name, values in attributes.items():
        _check_unreserved(name, "an attribute's name")
        if not values:
            raise InputError("bad-schema", f"attribute {name!r} needs at least one value")
        for value in values:
            check_name(value, f"a value of {name!r}")
        plain = [normalize("NFC", value) for value in values]  # as the records' are compared
        if len(set(plain)) < len(plain):
            twice = next(value for value in plain if plain.count(value) > 1)
            raise InputError("bad-schema", f"attribute {name!r} has the value {twice!r} twice")
    cells = prod(len(values) for values in attributes.values())
    if cells > MAX_CELLS:
        raise InputError("bad-schema", f"{cells:,} cells are more than {MAX_CELLS:,}: use fewer attributes or values")


def _check_unreserved(name: object, what: str) -> None:
    check_name(name, what)
    if name in KEYWORDS:
        raise InputError("bad-name", f"{what} must not be {name!r}, which queries use: choose another")


def _group_labels(name: str, grouping: ValueGroups, attributes: Mapping[str, Sequence[str]]) -> tuple[int, Ints]:
    """Return the attribute and the group of each of its values, -1 for those in none."""
    _check_unreserved(name, "a grouping's name")
    if name in attributes:
        raise InputError("bad-schema", f"the grouping {name!r} has the name of an attribute: choose another")
    axis = find(grouping.of, list(attributes), "attribute", f"grouping {name}")
    values = attributes[grouping.of]
    labels = np.full(len(values), -1, np.int64)
    if not grouping.groups:
        raise InputError("bad-schema", f"the grouping {name!r} needs at least one group")
    for index, (group, members) in enumerate(grouping.groups.items()):
        check_name(group, f"a group of {name!r}")
        for text in [members] if isinstance(members, str) else members:
            for place in read_values(text, grouping.of, values, f"{name}.{group}"):
                if labels[place] not in (-1, index):
                    raise InputError("bad-schema", f"grouping {name!r}: {values[place]!r} lies in two groups")
                labels[place] = index
    return axis, labels


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """A forbidden combination: ``conditions`` [(attribute, bool[values])], all of which a forbidden cell meets."""

    text: str
    conditions: tuple[tuple[int, Flags], ...]

    def forbidden(self, shape: Sequence[int]) -> Flags:
        """Return which cells the rule forbids, bool of the attributes' shape (broadcast, not filled)."""
        masks = [
            mask.reshape([-1 if axis == attribute else 1 for axis in range(len(shape))])
            for attribute, mask in self.conditions
        ]
        return reduce(np.logical_and, masks)


def parse_rule(text: str, attributes: Mapping[str, Sequence[str]]) -> Rule:
    """Return the rule of a text. Raises InputError: bad-rule, unknown-attribute, unknown-value, bad-range."""
    names = list(attributes)
    conditions: list[tuple[int, Flags]] = []
    for part in text.split("&"):
        left, equals, right = part.partition("=")
        if not equals or not left.strip().rstrip("!").strip() or not right.strip() or "=" in right:
            raise InputError(
                "bad-rule", f"{text!r}: a rule reads 'attribute = value | value & attribute != value', not {part!r}"
            )
        differs = left.rstrip().endswith("!")
        name = left.rstrip().removesuffix("!").strip()
        attribute = find(name, names, "attribute", text)
        if any(attribute == other for other, _ in conditions):
            raise InputError("bad-rule", f"{text!r}: give {name!r} one condition, with '|' between its values")
        mask = np.zeros(len(attributes[name]), np.bool_)
        mask[read_values(right, name, attributes[name], text)] = True
        conditions.append((attribute, ~mask if differs else mask))
    return Rule(text, tuple(conditions))


def plain_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON-able values."""
    return {
        "attributes": [[name, list(values)] for name, values in schema.attributes.items()],
        "structural_zeros": list(schema.structural_zeros),
        "groupings": [[name, grouping.of, _groups(grouping)] for name, grouping in schema.groupings.items()],
    }


def schema_of(plain: Mapping[str, Any]) -> Schema:
    """Return the schema of plain values; raise InputError (bad-schema, or what ``Schema`` says of it)."""
    wrong = False
    try:
        attributes = {_text(name): _texts(values) for name, values in plain["attributes"]}
        zeros = _texts(plain["structural_zeros"])
        groupings = {
            _text(name): ValueGroups(_text(of), {_text(group): _texts(texts) for group, texts in groups})
            for name, of, groups in plain["groupings"]
        }
        sizes = (len(attributes), len(groupings)), (len(plain["attributes"]), len(plain["groupings"]))
        wrong = sizes[0] != sizes[1]
    except (KeyError, TypeError, ValueError):
        wrong = True
    if wrong:
        raise InputError("bad-schema", "the schema is not one that was written here")
    return Schema(attributes, zeros, groupings)


def _groups(grouping: ValueGroups) -> list[list[Any]]:
    return [[group, [texts] if isinstance(texts, str) else list(texts)] for group, texts in grouping.groups.items()]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(values: Sequence[object]) -> list[str]:
    if not isinstance(values, list):
        raise TypeError
    return [_text(value) for value in values]
