"""The public account of a release: what was asked at which cost, what was made of it, and what the folder promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coco_opt.choices import Certificate
from coco_opt.config.model import Config
from coco_opt.files.versions import versions
from coco_opt.privacy.answers import Question
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.measurement import Measurement, question_dict
from coco_opt.releases.kind import AnyKind, Released

FORMAT = "coco-opt release 2"

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
        "private": measurement.private,
        "budget": budget_of(config, measurement),
        "levels": list(measurement.asked.levels),
        "measurement": measurement.asked.digest,
        "receipt": measurement.receipt,
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
        **asked.cost.as_dict(),
        **stated,
        "implied": Composition.of(asked.questions).implied(privacy.delta),
        "neighbours": asked.neighbours,
        "noise": measurement.noise,
        "questions": [{**question_dict(one), "level_name": asked.levels[one.level]} for one in asked.questions],
    }


def spent_line(kind: AnyKind, config: Config, measurement: Measurement) -> str:
    """Return one line: the mode, and what privacy the measurement costs."""
    asked = measurement.asked
    shares = _shares(asked.questions, measurement.hierarchy.levels)
    if not measurement.private:
        return (
            f"NOT PRIVATE: {measurement.noise} noise as for {asked.cost} ({shares}); "
            "no privacy budget was spent, and these figures protect nobody"
        )
    exact = dict.fromkeys(f"{one.query} by {asked.levels[one.level]}" for one in asked.questions if one.exact)
    besides = f"; published without noise: {', '.join(exact)}" if exact else ""
    neighbours = WORDS[asked.neighbours].format(unit=kind.unit)
    meaning = Composition.of(asked.questions).meaning(config.privacy.delta)
    return (
        f"PRIVATE: {asked.cost} spent ({shares}; {meaning}), {measurement.noise} noise, "
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
