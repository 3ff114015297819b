"""Sealed noisy measurements of tables: public parameters, public facts and noisy answers, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.sealed_file import Reader, Sealing, read_sealed, write_sealed
from coco_opt.topdown.invariants import Invariant, Invariants, RegionBounds
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.plain import plain_schema, schema_of
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import parse_query
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]

_FORMAT = "coco-opt sealed tables 1"


def seal_tables(measurements: TableMeasurements, path: Path) -> str:
    """Write measurements to a new file of mode 0600, durably, and return its digest (hexadecimal SHA-256).

    Raises InputError (file-exists, cannot-write).
    """
    return write_sealed(path, _FORMAT, _header(measurements), _arrays(measurements))


def unseal_tables(path: Path, digest: str | None = None) -> tuple[TableMeasurements, str]:
    """Read sealed measurements and their digest; raises InputError: file-not-found, unreadable-file, damaged-seal."""
    header, reader, found = read_sealed(path, _FORMAT, digest)
    return _parse(header, reader), found


TABLES_SEALING = Sealing(seal_tables, unseal_tables)


def _header(measurements: TableMeasurements) -> dict[str, Any]:
    facts = measurements.invariants
    return {
        "names": list(measurements.hierarchy.names),
        "schema": plain_schema(measurements.schema),
        "queries": [[query.text, query.name] for query in measurements.queries],
        "amounts": [[str(amount) for amount in level] for level in measurements.amounts],
        "mechanism": measurements.mechanism,
        "neighbours": measurements.neighbours,
        "noise": measurements.noise,
        "private": measurements.private,
        "bounds": [[one.query.text, one.query.name, one.level] for one in facts.bounds],
        "declared": [[one.query.text, one.query.name, one.level] for one in facts.declared],
    }


def _arrays(measurements: TableMeasurements) -> Iterator[Int64]:
    yield measurements.hierarchy.parent
    for level in measurements.answers:
        yield from (answer for answer in level if answer is not None)
    for one in measurements.invariants.bounds:
        yield one.lower
        yield one.upper


def _parse(header: dict[str, Any], reader: Reader) -> TableMeasurements:
    hierarchy = Hierarchy(reader.take(len(header["names"])), tuple(header["names"]))
    schema = schema_of(header["schema"])
    queries = tuple(parse_query(text, schema, name) for text, name in header["queries"])
    amounts = tuple(tuple(Fraction(amount) for amount in level) for level in header["amounts"])
    plan = TablePlan(queries, amounts, header["mechanism"], header["neighbours"])

    def table(level: int, answers: int) -> Int64:
        regions = len(hierarchy.level_range(level))
        return reader.take(regions * answers).reshape(regions, answers)

    answers = tuple(
        tuple(table(level, query.answers) if amount else None for query, amount in zip(queries, row, strict=True))
        for level, row in enumerate(amounts)
    )
    facts = _facts(header, hierarchy, schema, table)
    return TableMeasurements(hierarchy, schema, plan, answers, header["noise"], header["private"], facts)


def _facts(header: dict[str, Any], hierarchy: Hierarchy, schema: Schema, table: Any) -> Invariants:
    bounds = []
    for text, name, level in header["bounds"]:
        query = parse_query(text, schema, name)
        lower, upper = table(level, query.answers), table(level, query.answers)
        bounds.append(RegionBounds(query, level, lower, upper))
    declared = [Invariant(parse_query(text, schema, name), level) for text, name, level in header["declared"]]
    return Invariants(hierarchy, schema, tuple(bounds), tuple(declared))
