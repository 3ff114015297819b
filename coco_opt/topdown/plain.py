"""A schema as JSON-able values and back, for manifests and sealed files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.errors import InputError
from coco_opt.topdown.schema import Schema, ValueGroups


def plain_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON-able values."""
    groupings = {
        name: {"of": one.of, "groups": {key: _texts(texts) for key, texts in one.groups.items()}}
        for name, one in schema.groupings.items()
    }
    # Pairs, for the order of attributes is the order of cells, and a JSON object has none.
    attributes = [[name, list(values)] for name, values in schema.attributes.items()]
    return {"attributes": attributes, "structural_zeros": list(schema.structural_zeros), "groupings": groupings}


def schema_of(plain: Mapping[str, Any]) -> Schema:
    """Return the schema of plain values; raise InputError (bad-schema, or what ``Schema`` says of it)."""
    wrong = False
    try:
        groupings = {name: ValueGroups(one["of"], one["groups"]) for name, one in plain["groupings"].items()}
        parts = (dict(plain["attributes"]), list(plain["structural_zeros"]), groupings)
    except (KeyError, TypeError, ValueError, AttributeError):
        wrong = True
    if wrong:
        raise InputError("bad-schema", "the schema is not one that was written here")
    return Schema(*parts)


def _texts(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)
