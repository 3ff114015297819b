"""The public account of a release: what was asked at which cost, what was made of it, and what the folder promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.choices import Certificate
from coco_opt.config.model import Config
from coco_opt.files.versions import versions
from coco_opt.privacy.answers import Question
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.measurement import AS_STATED, Measurement, question_dict
from coco_opt.releases.kind import AnyKind, Released

FORMAT = "coco-opt release 2"

OF = "measurement"
"""The key of a question that says by which of several measurements it was asked, from 1."""
_AND = " + "

WORDS = {"add_remove": "one {unit} added or removed", "replace": "one {unit} replaced"}


def manifest_of(
    config: Config, measurement: Measurement, certificates: tuple[Certificate, ...], released: Released
) -> dict[str, Any]:
    """Return the manifest without the digests of files: public parameters, figures of the noisy result; no time."""
    return {
        **released.manifest,
        "format": FORMAT,
        "kind": measurement.asked.kind,
        "name": config.name,
        "status": measurement.status,
        "private": measurement.protects,
        "budget": budget_of(config, measurement),
        "levels": list(measurement.asked.levels),
        "measurement": measurement.identity,
        "receipt": "" if measurement.also else measurement.receipt,
        **({"measurements": [_entry(one) for one in measurement.every]} if measurement.also else {}),
        "config": config.as_dict(),
        "versions": versions(),
        "promises": ["integers", *released.promises],
        "solvers": {row.problem: _solver_row(row) for row in certificates},
    }


def budget_of(config: Config, measurement: Measurement) -> dict[str, Any]:
    """Return what a measurement cost, what that implies, and what each question cost at each level."""
    asked, privacy = measurement.asked, config.privacy
    stated = (
        {} if privacy.pair is None else {"asked": dict(zip(("epsilon", "delta"), map(str, privacy.pair), strict=True))}
    )
    return {
        **measurement.cost.as_dict(),
        **stated,
        "implied": Composition.of(measurement.questions).implied(privacy.delta),
        "neighbours": asked.neighbours,
        "noise": noise_of(measurement.sources),
        "questions": [
            {**question_dict(one), "level_name": asked.levels[one.level], **({OF: number} if measurement.also else {})}
            for number, each in enumerate(measurement.every, start=1)
            for one in each.asked.questions
        ],
    }


def _entry(measurement: Measurement) -> dict[str, Any]:
    """Return what the manifest says of one of several measurements; its questions stand in the budget."""
    return {
        "measurement": measurement.asked.digest,
        "answers": measurement.content,
        "status": measurement.status,
        "private": measurement.private,
        "noise": measurement.noise,
        "receipt": measurement.receipt,
        **measurement.asked.cost.as_dict(),
    }


def noise_of(sources: Sequence[str]) -> str:
    """Return where noise came from, each source once; ``sources_of`` reads it back."""
    return _AND.join(sources)


def sources_of(noise: str) -> list[str]:
    """Return the sources of noise that a manifest names."""
    return noise.split(_AND)


def spent_line(kind: AnyKind, config: Config, measurement: Measurement) -> str:
    """Return one line: the mode, and what privacy the measurement costs."""
    asked, noise = measurement.asked, noise_of(measurement.sources)
    shares = _shares(asked.questions, measurement.hierarchy.levels)
    if measurement.also:
        costs = ", ".join(str(one.asked.cost) for one in measurement.every)
        shares = f"{len(measurement.every)} measurements: {costs}"
    if measurement.status == AS_STATED:
        foreign = "" if not measurement.also else ": at least one of the measurements was"
        return (
            f"NOT MEASURED HERE{foreign or ':'} published by others, and private {AS_STATED}. Noise of these variances "
            f"would cost {measurement.cost} ({shares}); no ledger was touched, and nothing is vouched for"
        )
    if not measurement.protects:
        return (
            f"NOT PRIVATE: {noise} noise as for {measurement.cost} ({shares}); "
            "no privacy budget was spent, and these figures protect nobody"
        )
    exact = dict.fromkeys(f"{one.query} by {asked.levels[one.level]}" for one in asked.questions if one.exact)
    besides = f"; published without noise: {', '.join(exact)}" if exact else ""
    neighbours = WORDS[asked.neighbours].format(unit=kind.unit)
    meaning = Composition.of(measurement.questions).meaning(config.privacy.delta)
    return (
        f"PRIVATE: {measurement.cost} spent ({shares}; {meaning}), {noise} noise, "
        f"neighbours differ by {neighbours}{besides}"
    )


def _shares(questions: tuple[Question, ...], levels: int) -> str:
    """Return in a few words how the cost is shared."""
    noisy = [question for question in questions if question.cost is not None]
    costs = {level: [question.cost for question in noisy if question.level == level] for level in range(levels)}
    if levels == 1 and len(noisy) == 1:
        return "one question"
    amounts = {level: sum(cost.amount for cost in asked if cost) for level, asked in costs.items()}
    if len(set(amounts.values())) == 1:
        each = f"{next(iter(amounts.values()))} at each of {levels} levels" if levels > 1 else "one level"
    else:
        each = "by level, root first: " + ", ".join(str(amount) for amount in amounts.values())
    most = max(len(asked) for asked in costs.values())
    return each if most == 1 else f"{each}, {most} questions a level at most"


def _solver_row(row: Certificate) -> Mapping[str, Any]:
    """Return how well one kind of problem was solved, and where another solver had to answer."""
    fallbacks = [
        {"solver": one.solver, "reason": one.reason, "answered_by": one.used, "times": one.times}
        for one in row.fallbacks
    ]
    return {
        "solver": row.solver,
        "solves": row.solves,
        "worst_gap": row.gap,
        "worst_relative_gap": row.relative_gap,
        "worst_violation": row.violation,
        **({"fallbacks": fallbacks} if fallbacks else {}),
    }
