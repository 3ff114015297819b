"""Structural zeros as text: ``age = under_18 & residence = military | college`` forbids every such cell.

A rule is a conjunction (``&``) of conditions on different attributes; a condition is ``attribute = values`` or
``attribute != values``, values being alternatives (``|``) and spans (``0..14``) in the attribute's declared order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from coco_opt.array_types import Flags
from coco_opt.errors import InputError
from coco_opt.topdown.names import find, read_values


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
