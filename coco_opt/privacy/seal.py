"""Sealed noisy measurements of groups: what a release is finished from, however often it is interrupted.

The file (``sealed_file``) holds public parameters and noisy values, and nothing else that depends on private data.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.measurements import Measurements
from coco_opt.privacy.sealed_file import Reader, Sealing, read_sealed, write_sealed

Int64 = NDArray[np.int64]

_FORMAT = "coco-opt sealed measurements 1"
_NONE = -1
_SHARED = ("max_size", "neighbours", "noise", "private", "mechanism")
_OLDER = {"mechanism": "geometric"}  # what files written before a field was known mean


def seal(measurements: Measurements, path: Path) -> str:
    """Write measurements to a new file of mode 0600, durably, and return its digest (hexadecimal SHA-256).

    O(values) time; memory of the header beside them. Raises InputError (file-exists, cannot-write), ProblemError
    for measurements whose regions of one level differ in the law of their noise.
    """
    return write_sealed(path, _FORMAT, _header(measurements), _arrays(measurements))


def unseal(path: Path, digest: str | None = None) -> tuple[Measurements, str]:
    """Read sealed measurements and their digest; the file is closed again.

    Raises InputError: file-not-found, unreadable-file, damaged-seal (its bytes are not those that were written, or
    not those of ``digest``).
    """
    header, reader, found = read_sealed(path, _FORMAT, digest)
    return _parse(header, reader), found


SEALING = Sealing(seal, unseal)


def _arrays(measurements: Measurements) -> Iterator[Int64]:
    answers = measurements.answers
    yield measurements.hierarchy.parent
    yield measurements.group_counts
    yield np.array([_NONE if one is None else len(one.values) for one in answers], dtype=np.int64)
    yield np.array([one is not None and one.pooled for one in answers], dtype=np.int64)
    for answer in answers:
        if answer is not None:
            yield answer.values
            if answer.lengths is not None:
                yield answer.lengths


def _header(measurements: Measurements) -> dict[str, Any]:
    return {
        "names": list(measurements.hierarchy.names),
        **{name: getattr(measurements, name) for name in _SHARED},
        # Named for the first mechanism, so that files of both read alike: amounts in its unit, parameters of its law.
        "epsilons": [str(amount) for amount in measurements.amounts],
        "scales": [str(parameter) for parameter in _parameters(measurements)],
        "queries": list(measurements.queries),
        "losses": list(measurements.losses),
    }


def _parameters(measurements: Measurements) -> list[Fraction]:
    """Return the scale or variance of each level's noise, 0 where it was not measured."""
    parameters: list[Fraction] = []
    for level, amount in enumerate(measurements.amounts):
        found = {answer.parameter for answer in measurements.level(level)} if amount else {Fraction(0)}
        if len(found) != 1:
            raise ProblemError(f"the regions of level {level} have noise of different scales: they cannot be sealed")
        parameters.extend(found)
    return parameters


def _parse(header: dict[str, Any], reader: Reader) -> Measurements:
    shared: dict[str, Any] = {name: {**_OLDER, **header}[name] for name in _SHARED}
    queries, amounts = header["queries"], [Fraction(text) for text in header["epsilons"]]
    parameters = [Fraction(text) for text in header["scales"]]
    regions = len(header["names"])
    hierarchy = Hierarchy(reader.take(regions), tuple(header["names"]))
    counts, sizes, pooled = (reader.take(regions) for _ in range(3))

    def answer(region: int) -> Measurement | None:
        size, level = int(sizes[region]), int(hierarchy.level[region])
        if size == _NONE:
            return None
        noise = {"parameter": parameters[level], "amount": amounts[level]}
        facts: dict[str, Any] = {"query": queries[level], **noise, **shared}
        values = reader.take(size)
        lengths = reader.take(size) if pooled[region] else None
        place: dict[str, Any] = {"region": hierarchy.paths[region], "groups": int(counts[region])}
        return Measurement(values=values, lengths=lengths, **place, **facts)

    answers = tuple(answer(region) for region in range(regions))
    levels: dict[str, Any] = {"queries": tuple(queries), "amounts": tuple(amounts), "losses": tuple(header["losses"])}
    return Measurements(hierarchy, counts, answers=answers, **levels, **shared)
