"""A measurement: its plan, the public numbers, the noisy answers, and their cost. Estimation reads nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.histograms.texts import Texts
from coco_opt.privacy.blocks import Division
from coco_opt.privacy.budget import NEIGHBOURS, Neighbours
from coco_opt.privacy.cost import Cost, cost_together, total
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import (
    LEAST_PIECE,
    Answers,
    Exact,
    LevelQuery,
    NoisyPart,
    answers_in_all,
    gathered,
    noisy_parts,
    offsets_of,
)

FOREIGN = "foreign"
"""The noise of answers that others published: their publisher states what it protects."""
AS_STATED = "as its publisher states"

_TEXTS = 1 << 12


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """What is stated of a measurement without its answers: which it is, and what it cost.

    ``digest`` is that of its plan, ``content`` that of its plan and its answers; ``noise``, ``private`` and ``receipt``
    are as in ``Measurement``.
    """

    digest: str
    content: str
    noise: str
    private: bool
    receipt: str
    queries: tuple[LevelQuery, ...]

    @property
    def cost(self) -> Cost:
        """Return what the measurement cost."""
        return cost_together(query.cost for query in self.queries if query.cost is not None)


@dataclass(frozen=True, eq=False, repr=False)
class MeasurementPlan:
    """The public half of a measurement, and its identity: changing any of it makes another measurement, paid for anew.

    ``kind`` names the kind of release; ``levels`` the hierarchy's levels, root first; ``region_ids`` the ids of regions
    in the user's files, None where a region has none. ``parameters`` are JSON-able values of the kind's own (bounds of
    the domain, attributes, declared invariants); ``per_region`` int64[regions] and ``tables`` int64 vectors are public
    numbers. ``neighbours`` is by what databases differ. ``look`` is the earlier measurement whose answers chose the
    queries: its cost belongs to whatever is released. Raises ProblemError where the parts do not fit together.
    """

    kind: str
    hierarchy: Hierarchy
    levels: tuple[str, ...]
    queries: tuple[LevelQuery, ...]
    neighbours: Neighbours
    parameters: Mapping[str, Any] = field(default_factory=dict)
    per_region: Mapping[str, Ints] = field(default_factory=dict)
    tables: Mapping[str, Ints] = field(default_factory=dict)
    region_ids: Sequence[str | None] = ()
    look: MeasurementRecord | None = None

    def __post_init__(self) -> None:
        if len(self.levels) != self.hierarchy.levels:
            raise ProblemError(f"{self.hierarchy.levels} levels need as many names")
        if self.neighbours not in NEIGHBOURS:
            raise ProblemError(f"unknown neighbours {self.neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
        ids = self.region_ids or (None,) * self.hierarchy.regions
        object.__setattr__(self, "region_ids", Texts.of(ids))
        if len(self.region_ids) != self.hierarchy.regions:
            raise ProblemError(f"{self.hierarchy.regions} regions need as many ids, or none at all")
        names = [(query.level, query.name) for query in self.queries]
        if len(set(names)) < len(names):
            raise ProblemError("two queries of one level have one name")
        for name, regions in (("per_region", self.hierarchy.regions), ("tables", None)):
            checked = {key: _vector(key, values, regions) for key, values in getattr(self, name).items()}
            object.__setattr__(self, name, checked)
        object.__setattr__(self, "queries", tuple(self.queries))
        self.cost  # noqa: B018 - raises where no query has noise, or costs have several units

    def __reduce__(self) -> tuple[Callable[..., MeasurementPlan], tuple[Any, ...]]:
        values = (getattr(self, name) for name in self.__dataclass_fields__)
        return MeasurementPlan, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)

    @property
    def cost(self) -> Cost:
        """Return what measuring costs: the sum over levels and queries; a level's regions are charged once.

        An entity lies in one region of a level. Under "replace" it may move between two; the sensitivities count both.
        """
        return total(query.cost for query in self.queries if query.cost is not None)

    @cached_property
    def digest(self) -> str:
        """Return the hexadecimal SHA-256 of the plan: equal where a measurement answers the same queries.

        Names of levels, ids of regions and the words of queries are labels; they change no answer and are left out.
        """
        code = hashlib.sha256()
        plain = {
            "kind": self.kind,
            "questions": [_identity(query) for query in self.queries],
            "neighbours": self.neighbours,
            "facts": self.parameters,
            **({} if self.look is None else {"look": [self.look.digest, self.look.content]}),
        }
        regions = {f"region {name}": values for name, values in self.per_region.items()}
        tables = {f"table {name}": values for name, values in self.tables.items()}
        arrays = {"parent": self.hierarchy.parent, **regions, **tables}
        texts = {name: [json.dumps(value, sort_keys=True).encode()] for name, value in plain.items()}
        texts["names"] = [b"[", *_separated([[piece] for piece in _json_pieces(self.hierarchy.names)]), b"]"]
        entries = [[f'"{name}": '.encode(), *texts[name]] for name in sorted(texts)]
        _update(code, [b"{", *_separated(entries), b"}"])
        for name in sorted(arrays):
            _update(code, [name.encode()])
            _update(code, [np.ascontiguousarray(arrays[name], "<i8").view(np.uint8).data])
        return code.hexdigest()

    @cached_property
    def regions_digest(self) -> str:
        """Return the hexadecimal SHA-256 of the regions: their names, parents and ids in the user's files."""
        code = hashlib.sha256()
        for texts in (self.hierarchy.names, self.region_ids):
            _update(code, list(_json_pieces(texts)))
        _update(code, [np.ascontiguousarray(self.hierarchy.parent, "<i8").view(np.uint8).data])
        return code.hexdigest()

    def answers_to(self, query: LevelQuery) -> tuple[int, int]:
        """Return the number of answers to a query in all regions, and the most in one region."""
        return answers_in_all(query, self.hierarchy, self.per_region)

    @property
    def answers(self) -> int:
        """Return the number of answers to all queries."""
        return sum(self.answers_to(query)[0] for query in self.queries)

    def at(self, level: int) -> tuple[LevelQuery, ...]:
        """Return the noisy queries of a level."""
        return tuple(query for query in self.queries if query.level == level and not query.exact)

    def __repr__(self) -> str:
        return f"MeasurementPlan({self.kind}, {self.hierarchy!r}, {len(self.queries)} queries, {self.cost})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Measurement:
    """A plan and its sealed noisy answers, one entry for each query; as private as a release of them would be.

    It is returned by ``measure_hierarchy``, ``measure_tables``, ``measure_ranges`` and ``read_measurement``.

    Parameters
    ----------
    measurement_plan : MeasurementPlan
        The queries, the public numbers they depend on, neighbours and costs.
    answers : tuple of Answers
        The noisy integers of each query, with the query and its noise distribution.
    noise : str
        The source of the noise.
    private : bool
        False if the noise protects nobody, or was drawn elsewhere.
    receipt : str, default ""
        The hash of the ledger's entry that paid; empty if none did.
    also : tuple of Measurement, default ()
        More measurements of the same data, to be estimated together with this measurement.

    Raises
    ------
    ProblemError
        The answers are not those of the queries.
    """

    measurement_plan: MeasurementPlan
    answers: tuple[Answers, ...]
    noise: str
    private: bool
    receipt: str = ""
    also: tuple[Measurement, ...] = ()

    def __post_init__(self) -> None:
        if [answers.query for answers in self.answers] != list(self.measurement_plan.queries):
            raise ProblemError("a measurement needs the answers to all of its queries, in their order")
        for answers in self.answers:
            expected = offsets_of(answers.query, self.hierarchy, self.measurement_plan.per_region)
            if not np.array_equal(answers.offsets, expected):
                raise ProblemError(f"{answers.query.name!r}: the answers do not have their public number a region")

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.measurement_plan.hierarchy

    @property
    def every(self) -> tuple[Measurement, ...]:
        """Return the measurements that are estimated together: first this, alone where there are no others."""
        return (replace(self, also=()), *self.also) if self.also else (self,)

    @property
    def unread_looks(self) -> tuple[MeasurementRecord, ...]:
        """Return the looks that chose the queries of these measurements, and whose answers are not among them."""
        plans = [measurement.measurement_plan for measurement in (self, *self.also)]
        looks = {plan.look.content: plan.look for plan in plans if plan.look is not None}
        digests = {look.digest for look in looks.values()}
        read = {each.content for each in (self, *self.also) if each.measurement_plan.digest in digests}
        return tuple(look for content, look in looks.items() if content not in read)

    def records(self, *, contents: bool = False) -> tuple[MeasurementRecord, ...]:
        """Return what is stated of each measurement that is estimated, then of looks that are not read.

        The digests of their answers are left out without ``contents``, which takes O(answers).
        """
        return (*(each.record(contents=contents) for each in (self, *self.also)), *self.unread_looks)

    def record(self, *, contents: bool = True) -> MeasurementRecord:
        """Return what is stated of this measurement alone; see ``records``."""
        plan, content = self.measurement_plan, self.content if contents else ""
        return MeasurementRecord(plan.digest, content, self.noise, self.private, self.receipt, plan.queries)

    @property
    def several(self) -> bool:
        """Return whether more than this measurement is paid for and released: others, or a look."""
        return len(self.records()) > 1

    @property
    def queries(self) -> tuple[LevelQuery, ...]:
        """Return the queries of all measurements that are estimated together, and of looks that are not read."""
        return tuple(query for record in self.records() for query in record.queries)

    @property
    def cost(self) -> Cost:
        """Return what the measurements and their looks cost together: a sum, in rho where their units differ."""
        return cost_together(query.cost for query in self.queries if query.cost is not None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return where the noise of the measurements came from, each source once."""
        return tuple(dict.fromkeys(record.noise for record in self.records()))

    @property
    def status(self) -> str:
        """Return "private", "NOT PRIVATE" where noise can be drawn again, or "as its publisher states"; the least."""
        stated = [status_of(record.private, record.noise) for record in self.records()]
        return next((words for words in ("NOT PRIVATE", AS_STATED) if words in stated), "private")

    @property
    def protects(self) -> bool:
        """Return whether the noise of all measurements that are estimated together was drawn here, and protects."""
        return all(record.private for record in self.records())

    @property
    def identity(self) -> str:
        """Return the hexadecimal digest of all plans; of a single measurement, that of its plan."""
        digests = [record.digest for record in self.records()]
        return identity_of(digests) if len(digests) > 1 else digests[0]

    @property
    def content(self) -> str:
        """Return the hexadecimal SHA-256 of this measurement's queries and answers, however they are stored."""
        code = hashlib.sha256(self.measurement_plan.digest.encode())
        for answers in self.answers:
            code.update(np.ascontiguousarray(answers.values, dtype="<i8").data)
        return code.hexdigest()

    def parts(self) -> Iterator[NoisyPart]:
        """Yield the answers query after query, small regions together and large regions alone."""
        for place, answers in enumerate(self.answers):
            begin, total = 0, int(answers.offsets[-1])
            while begin < total:
                end = int(answers.offsets[np.searchsorted(answers.offsets, min(total, begin + LEAST_PIECE))])
                yield NoisyPart(place, begin, answers.read(begin, end))
                begin = end

    def __repr__(self) -> str:
        return f"Measurement({self.measurement_plan!r}, {self.noise} noise: {self.status})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Drawing:
    """A measurement while its noise is drawn: ``stream`` yields its answers once, part after part; else the same.

    Whoever writes it asks ``division`` how its answers are drawn by an executor; None where they are drawn in order.
    """

    measurement_plan: MeasurementPlan
    stream: Iterable[NoisyPart]
    noise: str
    private: bool
    receipt: str = ""
    division: Division | None = None

    @classmethod
    def of(
        cls,
        measurement_plan: MeasurementPlan,
        exact: Iterable[Exact],
        source: NoiseSource,
        progress: Progress | None = None,
    ) -> Drawing:
        """Return the noisy answers to a plan's queries, from exact answers that come part after part.

        See ``noisy_parts``. O(answers); memory is that of one part.
        """
        hierarchy, tables = measurement_plan.hierarchy, measurement_plan.per_region
        parts = noisy_parts(measurement_plan.queries, exact, hierarchy, tables, source, progress)
        return cls(measurement_plan, parts, source.name, source.private)

    @property
    def status(self) -> str:
        """Return "private", or "NOT PRIVATE" where the noise can be drawn again."""
        return status_of(self.private, self.noise)

    def parts(self) -> Iterator[NoisyPart]:
        """Yield the answers, for the only time."""
        return iter(self.stream)

    def measurement(self) -> Measurement:
        """Draw all noise and return the measurement, held in memory."""
        measurement_plan = self.measurement_plan
        answers = gathered(
            measurement_plan.queries, self.parts(), measurement_plan.hierarchy, measurement_plan.per_region
        )
        return Measurement(measurement_plan, answers, self.noise, self.private, self.receipt)


def status_of(private: bool, noise: str) -> str:
    """Return in words whom noise protects, by its source: "NOT PRIVATE" where it can be drawn again."""
    return "private" if private else AS_STATED if noise == FOREIGN else "NOT PRIVATE"


def identity_of(digests: Iterable[str]) -> str:
    """Return the digest of several measurements' plans, from the digest of each, in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def query_dict(query: LevelQuery) -> dict[str, Any]:
    """Return plain values of a query for files and digests."""
    plain: dict[str, Any] = {
        "level": query.level,
        "query": query.name,
        "words": query.words,
        "size": query.size,
    }
    if query.cost is None or query.sensitivity is None:
        return {**plain, "law": "exact"}
    sensitivity = {"l1": query.sensitivity.l1, "l2_squared": query.sensitivity.l2_squared}
    return {
        **plain,
        **query.distribution.as_dict(),
        "sensitivity": sensitivity,
        "cost": query.cost.as_dict(),
    }


def record_dict(record: MeasurementRecord) -> dict[str, Any]:
    """Return plain values of what is stated of a measurement, but its queries."""
    return {
        "measurement": record.digest,
        "answers": record.content,
        "status": status_of(record.private, record.noise),
        "private": record.private,
        "noise": record.noise,
        "receipt": record.receipt,
        **record.cost.as_dict(),
    }


def _identity(query: LevelQuery) -> dict[str, Any]:
    return {name: value for name, value in query_dict(query).items() if name != "words"}


def _vector(name: str, values: Any, regions: int | None) -> Ints:
    array = np.asarray(values)
    array = array.copy() if array.flags.writeable else array  # no caller can change it
    if array.dtype != np.int64 or array.ndim != 1 or (regions is not None and array.size != regions):
        raise ProblemError(f"the public numbers {name!r} must be int64{'' if regions is None else ', one a region'}")
    array.setflags(write=False)
    return array


def _json_pieces(texts: Sequence[str | None]) -> Iterator[bytes]:
    """Yield the entries of a list of texts as ``json`` writes them, some at a time: together they take much more."""
    for start in range(0, len(texts), _TEXTS):
        plain = texts.plain(start, start + _TEXTS) if isinstance(texts, Texts) else None
        if plain is None:
            yield json.dumps(texts[start : start + _TEXTS])[1:-1].encode()
        else:
            yield b'"' + b'", "'.join(plain) + b'"'


def _separated(entries: Iterable[Sequence[bytes]]) -> list[bytes]:
    """Return the pieces of all entries, a comma between one entry and the next."""
    return [piece for entry in entries for piece in (b", ", *entry)][1:]


def _update(code: Any, pieces: Sequence[bytes | memoryview]) -> None:
    """Hash pieces as one text behind its length, without joining them."""
    code.update(sum(map(len, pieces)).to_bytes(8, "little"))
    for piece in pieces:
        code.update(piece)
