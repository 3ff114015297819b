"""A measurement: what was asked, of which public facts, the answers, and what they cost. All that estimation reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.histograms.texts import Texts
from coco_opt.privacy.answers import LEAST_PIECE, Answers, NoisyPart, Question, gathered, offsets_of
from coco_opt.privacy.budget import NEIGHBOURS, Neighbours
from coco_opt.privacy.cost import Cost, cost_together, total

Int64 = NDArray[np.int64]

FOREIGN = "foreign"
"""The noise of who published answers that were not measured here: what protects whom is as they state."""
AS_STATED = "as its publisher states"

_TEXTS = 1 << 12


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Asked:
    """The public half of a measurement, its identity: changing any of it asks another question, and is paid for.

    ``kind`` names the kind of release; ``levels`` the hierarchy's levels, root first; ``region_ids`` the ids of regions
    in the user's files, None where a region has none. ``facts`` are JSON-able values of the kind's own (bounds of the
    domain, attributes, declared invariants); ``per_region`` int64[regions] and ``tables`` int64 vectors are public
    numbers. ``neighbours`` is by what databases differ. Raises ProblemError where the parts do not fit together.
    """

    kind: str
    hierarchy: Hierarchy
    levels: tuple[str, ...]
    questions: tuple[Question, ...]
    neighbours: Neighbours
    facts: Mapping[str, Any] = field(default_factory=dict)
    per_region: Mapping[str, Int64] = field(default_factory=dict)
    tables: Mapping[str, Int64] = field(default_factory=dict)
    region_ids: Sequence[str | None] = ()

    def __post_init__(self) -> None:
        if len(self.levels) != self.hierarchy.levels:
            raise ProblemError(f"{self.hierarchy.levels} levels need as many names")
        if self.neighbours not in NEIGHBOURS:
            raise ProblemError(f"unknown neighbours {self.neighbours!r}: use one of {', '.join(NEIGHBOURS)}")
        ids = self.region_ids or (None,) * self.hierarchy.regions
        object.__setattr__(self, "region_ids", Texts.of(ids))
        if len(self.region_ids) != self.hierarchy.regions:
            raise ProblemError(f"{self.hierarchy.regions} regions need as many ids, or none at all")
        names = [(question.level, question.query) for question in self.questions]
        if len(set(names)) < len(names):
            raise ProblemError("two questions of one level have one name")
        for name, regions in (("per_region", self.hierarchy.regions), ("tables", None)):
            checked = {key: _vector(key, values, regions) for key, values in getattr(self, name).items()}
            object.__setattr__(self, name, checked)
        object.__setattr__(self, "questions", tuple(self.questions))
        self.cost  # noqa: B018 - raises where nothing is asked, or in several units

    def __reduce__(self) -> tuple[Callable[..., Asked], tuple[Any, ...]]:
        values = (getattr(self, name) for name in self.__dataclass_fields__)
        return Asked, tuple(dict(value) if isinstance(value, Mapping) else value for value in values)

    @property
    def cost(self) -> Cost:
        """Return what measuring costs: the sum over levels and queries; a level's regions are charged once.

        An entity lies in one region of a level. Under "replace" it may move between two; the sensitivities count both.
        """
        return total(question.cost for question in self.questions if question.cost is not None)

    @property
    def digest(self) -> str:
        """Return the hexadecimal SHA-256 of all that is asked: equal where a measurement answers the same questions.

        Names of levels, ids of regions and the words of questions are labels; they change no answer and are left out.
        """
        code = hashlib.sha256()
        plain = {
            "kind": self.kind,
            "questions": [_identity(question) for question in self.questions],
            "neighbours": self.neighbours,
            "facts": self.facts,
        }
        regions = {f"region {name}": values for name, values in self.per_region.items()}
        tables = {f"table {name}": values for name, values in self.tables.items()}
        arrays = {"parent": self.hierarchy.parent, **regions, **tables}
        texts = {name: json.dumps(value, sort_keys=True) for name, value in plain.items()}
        texts["names"] = _json_list(self.hierarchy.names)
        stated = "{" + ", ".join(f'"{name}": {texts[name]}' for name in sorted(texts)) + "}"
        for part in (stated.encode(), *_encoded(arrays)):
            code.update(len(part).to_bytes(8, "little") + part)
        return code.hexdigest()

    def at(self, level: int) -> tuple[Question, ...]:
        """Return the noisy questions of a level."""
        return tuple(one for one in self.questions if one.level == level and not one.exact)

    def __repr__(self) -> str:
        return f"Asked({self.kind}, {self.hierarchy!r}, {len(self.questions)} questions, {self.cost})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Measurement:
    """What was asked and the sealed answers, one entry a question; as private as a release of them would be.

    ``noise`` names the source; ``private`` is False where its noise protects nobody, or was drawn elsewhere
    (``FOREIGN``). ``receipt`` is the hash of the ledger's entry that paid, "" for none. ``also`` are more measurements
    of the same data, to be estimated together with this one (``coco_opt.privacy.several``). Raises ProblemError where
    answers are not those of the questions.
    """

    asked: Asked
    answers: tuple[Answers, ...]
    noise: str
    private: bool
    receipt: str = ""
    also: tuple[Measurement, ...] = ()

    def __post_init__(self) -> None:
        if [one.question for one in self.answers] != list(self.asked.questions):
            raise ProblemError("a measurement needs the answers to all of its questions, in their order")
        for one in self.answers:
            expected = offsets_of(one.question, self.hierarchy, self.asked.per_region)
            if not np.array_equal(one.offsets, expected):
                raise ProblemError(f"{one.question.query!r}: the answers do not have their public number a region")

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.asked.hierarchy

    @property
    def every(self) -> tuple[Measurement, ...]:
        """Return the measurements that are estimated together: this one first, alone where there are no others."""
        return (replace(self, also=()), *self.also) if self.also else (self,)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Return the questions of all measurements that are estimated together."""
        return tuple(question for one in (self, *self.also) for question in one.asked.questions)

    @property
    def cost(self) -> Cost:
        """Return what the measurements cost together: a sum, in rho where their units differ."""
        return cost_together(question.cost for question in self.questions if question.cost is not None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return where the noise of the measurements came from, each source once."""
        return tuple(dict.fromkeys(one.noise for one in (self, *self.also)))

    @property
    def status(self) -> str:
        """Return "private", "NOT PRIVATE" where noise can be drawn again, or "as its publisher states"; the least."""
        stated = [status_of(one.private, one.noise) for one in (self, *self.also)]
        return next((words for words in ("NOT PRIVATE", AS_STATED) if words in stated), "private")

    @property
    def protects(self) -> bool:
        """Tell whether the noise of all measurements that are estimated together was drawn here, and protects."""
        return all(one.private for one in (self, *self.also))

    @property
    def identity(self) -> str:
        """Return the hexadecimal digest of all that was asked: of one measurement that of its questions."""
        return identity_of(one.asked.digest for one in (self, *self.also)) if self.also else self.asked.digest

    @property
    def content(self) -> str:
        """Return the hexadecimal SHA-256 of this measurement's questions and answers, however they are kept."""
        code = hashlib.sha256(self.asked.digest.encode())
        for one in self.answers:
            code.update(np.ascontiguousarray(one.values, dtype="<i8").data)
        return code.hexdigest()

    def parts(self) -> Iterator[NoisyPart]:
        """Yield the answers question after question, small regions together and large ones alone."""
        for place, one in enumerate(self.answers):
            begin, total = 0, int(one.offsets[-1])
            while begin < total:
                end = int(one.offsets[np.searchsorted(one.offsets, min(total, begin + LEAST_PIECE))])
                yield NoisyPart(place, begin, one.read(begin, end))
                begin = end

    def __repr__(self) -> str:
        return f"Measurement({self.asked!r}, {self.noise} noise: {self.status})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Drawing:
    """A measurement while its noise is drawn: ``stream`` yields its answers once, part after part; else the same."""

    asked: Asked
    stream: Iterable[NoisyPart]
    noise: str
    private: bool
    receipt: str = ""

    @property
    def status(self) -> str:
        """Return "private", or "NOT PRIVATE" where the noise can be drawn again."""
        return status_of(self.private, self.noise)

    def parts(self) -> Iterator[NoisyPart]:
        """Yield the answers, for the only time."""
        return iter(self.stream)

    def measurement(self) -> Measurement:
        """Draw all noise and return the measurement, held in memory."""
        asked = self.asked
        answers = gathered(asked.questions, self.parts(), asked.hierarchy, asked.per_region)
        return Measurement(asked, answers, self.noise, self.private, self.receipt)


def status_of(private: bool, noise: str) -> str:
    """Return in words whom noise protects, by its source: "NOT PRIVATE" where it can be drawn again."""
    return "private" if private else AS_STATED if noise == FOREIGN else "NOT PRIVATE"


def identity_of(digests: Iterable[str]) -> str:
    """Return the digest of what several measurements asked, by the digests of each, in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def question_dict(question: Question) -> dict[str, Any]:
    """Return plain values of a question for files and digests."""
    plain: dict[str, Any] = {
        "level": question.level,
        "query": question.query,
        "words": question.words,
        "size": question.size,
    }
    if question.cost is None or question.sensitivity is None:
        return {**plain, "law": "exact"}
    sensitivity = {"l1": question.sensitivity.l1, "l2_squared": question.sensitivity.l2_squared}
    return {**plain, **question.law.as_dict(), "sensitivity": sensitivity, "cost": question.cost.as_dict()}


def _identity(question: Question) -> dict[str, Any]:
    return {name: value for name, value in question_dict(question).items() if name != "words"}


def _vector(name: str, values: Any, regions: int | None) -> Int64:
    array = np.array(values)
    if array.dtype != np.int64 or array.ndim != 1 or (regions is not None and array.size != regions):
        raise ProblemError(f"the public numbers {name!r} must be int64{'' if regions is None else ', one a region'}")
    array.setflags(write=False)
    return array


def _json_list(texts: Sequence[str]) -> str:
    """Return what ``json`` makes of a list of texts, some at a time: at once they take five times as much."""
    pieces = (json.dumps(texts[at : at + _TEXTS])[1:-1] for at in range(0, len(texts), _TEXTS))
    return f"[{', '.join(pieces)}]"


def _encoded(arrays: Mapping[str, Int64]) -> list[bytes]:
    return [part for name in sorted(arrays) for part in (name.encode(), arrays[name].astype("<i8").tobytes())]
