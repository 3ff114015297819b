"""The public account of a release: what was measured at which cost, what was released, and what the folder promises.

What it is about, for its readers: title, date, the words for its units, and its privacy in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coco_opt._version import versions
from coco_opt.choices import Certificate
from coco_opt.config.model import Config
from coco_opt.files.geometry import Outlines
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import Cost, Rho, cost_of
from coco_opt.privacy.measurement import AS_STATED, Measurement, query_dict, record_dict
from coco_opt.privacy.queries import LevelQuery
from coco_opt.releases.kind import Released, kind_named, promise_of

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
        ABOUT: about_of(config, kind_named(measurement.measurement_plan.kind).unit),
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


ABOUT = "about"
"""The key of the manifest."""
_MOST_EPSILON = 20  # a guess is right with probability e^20 / (1 + e^20)
_MOST_RHO = 10  # an epsilon of about 33 at delta = 1/1000000


@dataclass(frozen=True, slots=True)
class Words:
    """What readers call one group and several, one entity and several, and the value that ranges are of."""

    group: str = "group"
    groups: str = "groups"
    entity: str = "entity"
    entities: str = "entities"
    value: str = "value"


def about_of(config: Config, unit: str) -> dict[str, Any]:
    """Return the manifest's entry: title and date where they are configured, and the words.

    Words are those of [output], else the public column of groups without its "_id"; ``unit`` is an entity's word.
    """
    output, columns = config.output, getattr(config.data, "columns", {})
    words: dict[str, str] = {"entity": unit}
    words.update((str(key), word) for key, word in output.words.items())
    column = columns.get("group_id", "") if "groups" not in config.private_tables else ""
    if "group" not in words and isinstance(column, str) and re.fullmatch(r"[^\W\d_]{3,}_id", column, re.IGNORECASE):
        words["group"] = column.lower().removesuffix("id").removesuffix("_")
    for one, several in (("group", "groups"), ("entity", "entities")):
        if one in words:
            words.setdefault(several, plural(words[one]))
    stated = {"title": output.title, "date": output.date}
    return {**{key: text for key, text in stated.items() if text}, "words": asdict(Words(**words))}


def plural(word: str) -> str:
    """Return the regular English plural of a word."""
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if re.search(r"(s|x|z|ch|sh)$", word) else f"{word}s"


def unit_words(manifest: Mapping[str, Any]) -> Words:
    """Return the words of a manifest, the default ones where it has none."""
    return Words(**manifest.get(ABOUT, {}).get("words", {}))


def title_of(manifest: Mapping[str, Any]) -> str:
    """Return the configured title, else the name of the data; where the ledger has none, that of the configuration."""
    name: str = manifest.get("config", {}).get("privacy", {}).get("dataset") or manifest["name"]
    return manifest.get(ABOUT, {}).get("title") or ("Release" if name == "release" else name)


def date_of(manifest: Mapping[str, Any]) -> str:
    """Return when the counts were true, "" where the configuration does not say."""
    return str(manifest.get(ABOUT, {}).get("date", ""))


def open_ends(manifest: Mapping[str, Any]) -> str:
    """Return what the last size, or the outer cells of values that were clamped, stand for; "" where for themselves."""
    if "max_size" in manifest:
        return f"Size {manifest['max_size']:,} means {manifest['max_size']:,} or more."
    domain = manifest.get("ranges", {})
    if domain.get("outside") != "clamp":
        return ""
    edges = domain["edges"] or range(domain["cells"] + 1)
    return f"The first cell means {edges[1] - 1:,} or less, and the last cell {edges[-2]:,} or more."


def protection(manifest: Mapping[str, Any]) -> str:
    """Return in a sentence whom the noise in a release protects."""
    entity = unit_words(manifest).entity
    if manifest["status"] == AS_STATED:
        return "Others published the noisy counts behind these figures; whom their noise protects is for them to say."
    if not manifest["private"]:
        return "These are trial figures: anybody can undo their noise, so they protect nobody (NOT PRIVATE)."
    cost = cost_of(manifest.get("budget") or manifest["cost"])
    if protects_hardly(cost):
        return (
            f"The noise in these figures is so little ({cost}) that it protects hardly anybody: share them where the "
            "records themselves may be shared, and nowhere else."
        )
    return (
        "These figures may be read and shared by anybody: before publication every count that is not called exact was "
        f"changed a little at random, which limits what they tell about whether any one {entity} was counted ({cost})."
    )


def protects_hardly(cost: Cost) -> bool:
    """Return whether a cost allows to be certain of what somebody's record says."""
    return cost.amount > (_MOST_RHO if isinstance(cost, Rho) else _MOST_EPSILON)
