"""The public account of a release: what was measured at which cost, what was released, and what the folder promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from coco_opt._version import versions
from coco_opt.choices import Certificate
from coco_opt.config.model import Config
from coco_opt.files.geometry import Outlines
from coco_opt.kinds import kind_row
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.measurement import AS_STATED, Measurement, query_dict, record_dict
from coco_opt.privacy.queries import LevelQuery
from coco_opt.releases.about import ABOUT, about_of
from coco_opt.releases.kind import Released, promise_of

FORMAT = "coco-opt release 2"

OF = "measurement"
"""The key of a query that says to which of several measurements it belongs, counted from 1."""
_AND = " + "


def manifest_of(
    config: Config,
    measurement: Measurement,
    certificates: tuple[Certificate, ...],
    released: Released,
    outlines: Outlines | None = None,
) -> dict[str, Any]:
    """Return the manifest without the digests of files: public parameters, figures of the noisy result; no time."""
    return {
        **released.manifest,
        "format": FORMAT,
        "kind": measurement.measurement_plan.kind,
        "name": config.name,
        "status": measurement.status,
        "private": measurement.protects,
        "budget": budget_of(config, measurement),
        "levels": list(measurement.measurement_plan.levels),
        ABOUT: about_of(config, kind_row(measurement.measurement_plan.kind).load().unit),
        "measurement": measurement.identity,
        "receipt": "" if measurement.several else measurement.receipt,
        **({"measurements": _measurement_entries(measurement)} if measurement.several else {}),
        "config": config.as_dict(),
        "versions": versions(),
        **({} if outlines is None else {"geometry": {"file": outlines.file, "sha256": outlines.digest}}),
        "promises": ["integers", *released.promises],
        "solvers": {row.problem: _solver_row(row) for row in certificates},
    }


def budget_of(config: Config, measurement: Measurement) -> dict[str, Any]:
    """Return what a measurement cost, what that implies, and what each query cost at each level."""
    measurement_plan, privacy = measurement.measurement_plan, config.privacy
    pair_entry = (
        {} if privacy.pair is None else {"asked": dict(zip(("epsilon", "delta"), map(str, privacy.pair), strict=True))}
    )
    return {
        **measurement.cost.as_dict(),
        **pair_entry,
        "implied": Composition.of(measurement.queries, adaptive=measurement.several).implied(privacy.delta),
        "neighbours": measurement_plan.neighbours,
        "promise": promise_of(*(part.measurement_plan for part in measurement.every)).as_dict(),
        "noise": noise_of(measurement.sources),
        "questions": [
            {
                **query_dict(query),
                "level_name": measurement_plan.levels[query.level],
                **({OF: number} if measurement.several else {}),
            }
            for number, record in enumerate(measurement.records(), start=1)
            for query in record.queries
        ],
    }


def _measurement_entries(measurement: Measurement) -> list[dict[str, Any]]:
    """Return the manifest's entries for several measurements; their queries stand in the budget.

    Where the answers of a look are not ``read``, its cost counts all the same.
    """
    unread = measurement.unread_looks
    records = measurement.records(contents=True)
    return [{**record_dict(record), **({"read": False} if record in unread else {})} for record in records]


def noise_of(sources: Sequence[str]) -> str:
    """Return the sources of the noise as one text, each source once; ``sources_of`` reads it back."""
    return _AND.join(sources)


def sources_of(noise: str) -> list[str]:
    """Return the sources of noise that a manifest names."""
    return noise.split(_AND)


def spent_line(config: Config, measurement: Measurement) -> str:
    """Return one line: the status of the measurement, the privacy it costs, and all that is exact."""
    measurement_plan, noise = measurement.measurement_plan, noise_of(measurement.sources)
    shares = _shares(measurement_plan.queries, measurement.hierarchy.levels)
    if measurement.several:
        costs = [str(record.cost) for record in measurement.records()]
        unread = ", the last by a look that is not read" if measurement.unread_looks else ""
        shares = f"{len(costs)} measurements: {', '.join(costs)}{unread}"
    if measurement.status == AS_STATED:
        foreign = "" if not measurement.several else ": at least one of the measurements was"
        return (
            f"NOT MEASURED HERE{foreign or ':'} published by others, and private {AS_STATED}. Noise of these variances "
            f"would cost at most {measurement.cost} ({shares}); no ledger was touched, and nothing is vouched for"
        )
    if not measurement.protects:
        return (
            f"NOT PRIVATE: {noise} noise as for {measurement.cost} ({shares}); "
            "no privacy budget was spent, and these figures protect nobody"
        )
    promise = promise_of(*(part.measurement_plan for part in measurement.every))
    meaning = Composition.of(measurement.queries, adaptive=measurement.several).meaning(config.privacy.delta)
    return f"PRIVATE: {measurement.cost} spent ({shares}; {meaning}), {noise} noise, {promise.words}"


def _shares(queries: tuple[LevelQuery, ...], levels: int) -> str:
    """Return in a few words how levels and queries share the cost."""
    noisy = [query for query in queries if query.cost is not None]
    costs = {level: [query.cost for query in noisy if query.level == level] for level in range(levels)}
    if levels == 1 and len(noisy) == 1:
        return "one query"
    amounts = {level: sum(cost.amount for cost in level_costs if cost) for level, level_costs in costs.items()}
    if len(set(amounts.values())) == 1:
        shares = f"{next(iter(amounts.values()))} at each of {levels} levels" if levels > 1 else "one level"
    else:
        shares = "by level, root first: " + ", ".join(str(amount) for amount in amounts.values())
    most = max(len(level_costs) for level_costs in costs.values())
    return shares if most == 1 else f"{shares}, at most {most} queries a level"


def _solver_row(row: Certificate) -> Mapping[str, Any]:
    """Return how well one kind of problem was solved, and where a fallback solver answered."""
    fallbacks = [
        {"solver": fallback.solver, "reason": fallback.reason, "answered_by": fallback.used, "times": fallback.times}
        for fallback in row.fallbacks
    ]
    return {
        "solver": row.solver,
        "solves": row.solves,
        "worst_gap": row.gap,
        "worst_relative_gap": row.relative_gap,
        "worst_violation": row.violation,
        **({"fallbacks": fallbacks} if fallbacks else {}),
        **({"missed": asdict(row.missed)} if row.missed else {}),
    }
