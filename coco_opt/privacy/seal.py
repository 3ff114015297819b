"""Sealed noisy measurements as a private file: what a release is finished from, however often it is interrupted.

The file holds public parameters and noisy values, and nothing else that depends on private data. Layout: a line
naming the format, the length of a JSON header (8 bytes, little-endian), the header, int64 arrays (little-endian), and
the SHA-256 of all that. The same measurements give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, Place, ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.measurements import Measurements
from coco_opt.privacy.private_files import Chunk, write_private

Int64 = NDArray[np.int64]

_MAGIC = b"coco-opt sealed measurements 1\n"
_DIGEST_BYTES = 32
_NONE = -1
_SHARED = ("max_size", "neighbours", "noise", "private", "mechanism")
_OLDER = {"mechanism": "geometric"}  # what files written before a field was known mean


def seal(measurements: Measurements, path: Path) -> str:
    """Write measurements to a new file of mode 0600, durably, and return its digest (hexadecimal SHA-256).

    O(values) time; memory of the header beside them. Raises InputError (file-exists, cannot-write), ProblemError
    for measurements whose regions of one level differ in the law of their noise.
    """
    digest = hashlib.sha256()

    def hashed() -> Iterator[Chunk]:
        for chunk in _content(measurements):
            digest.update(chunk)
            yield chunk
        yield digest.digest()

    write_private(path, hashed())
    return digest.hexdigest()


def unseal(path: Path, digest: str | None = None) -> tuple[Measurements, str]:
    """Read sealed measurements and their digest; the file is closed again.

    Raises InputError: file-not-found, unreadable-file, damaged-seal (its bytes are not those that were written, or
    not those of ``digest``).
    """
    content = _read(path)
    body, stored = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    found = hashlib.sha256(body).hexdigest()
    sound = found == stored.hex() and body[: len(_MAGIC)] == _MAGIC
    if not sound or (digest is not None and digest != found):
        raise InputError("damaged-seal", "is not the sealed file that was written: restore it", Place(path.name))
    return _parse(body), found


def _read(path: Path) -> memoryview:
    reason = ""
    try:
        return memoryview(path.read_bytes())
    except FileNotFoundError:
        raise InputError("file-not-found", "the sealed measurements are missing", Place(path.name)) from None
    except OSError as error:
        reason = error.strerror or "unknown reason"
    raise InputError("unreadable-file", f"cannot be read: {reason}", Place(path.name))


def _content(measurements: Measurements) -> Iterator[Chunk]:
    header = json.dumps(_header(measurements), sort_keys=True).encode()
    yield _MAGIC
    yield len(header).to_bytes(8, "little")
    yield header
    answers = measurements.answers
    yield from map(_bytes, (measurements.hierarchy.parent, measurements.group_counts))
    yield _bytes(np.array([_NONE if one is None else len(one.values) for one in answers], dtype=np.int64))
    yield _bytes(np.array([one is not None and one.pooled for one in answers], dtype=np.int64))
    for answer in answers:
        if answer is not None:
            yield _bytes(answer.values)
            if answer.lengths is not None:
                yield _bytes(answer.lengths)


def _bytes(array: Int64) -> bytes:
    return array.astype("<i8", copy=False).tobytes()


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


class _Reader:
    """Integers taken one after the other; copies, for the header leaves them unaligned in the file's bytes."""

    def __init__(self, body: memoryview, at: int) -> None:
        self._body, self._at = body, at

    def take(self, count: int) -> Int64:
        taken = np.frombuffer(self._body, dtype="<i8", count=count, offset=self._at)
        self._at += taken.nbytes
        return taken.astype(np.int64)


def _parse(body: memoryview) -> Measurements:
    start = len(_MAGIC) + 8
    stop = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    header: dict[str, Any] = json.loads(bytes(body[start:stop]))
    shared: dict[str, Any] = {name: {**_OLDER, **header}[name] for name in _SHARED}
    queries, amounts = header["queries"], [Fraction(text) for text in header["epsilons"]]
    parameters = [Fraction(text) for text in header["scales"]]
    reader, regions = _Reader(body, stop), len(header["names"])
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
