"""A schema as JSON-able values and back, for manifests and sealed files.

The order of attributes is the order of cells, and that of a grouping's groups the order of answers: both are lists of
pairs, for a JSON object has no order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.errors import InputError
from coco_opt.topdown.schema import Schema, ValueGroups


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
