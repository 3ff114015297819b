"""Earlier releases that tables agree with: read, verified and made constraints of the later plan before the payment.

What was published is public: the answers of an earlier release, over the attributes and regions that both have, are
exact constraints of the later tables, closed and proven like any other (Kifer's slides: prior releases are
constraints).
The number of persons in groups is the sum over sizes of size x groups.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.files.folder import MANIFEST, file_digest, read_columns, read_manifest
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.cost import Cost, cost_of
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.privacy.promise import Promise, joint
from coco_opt.releases.kind import promise_of
from coco_opt.releases.release_in_memory import read_release
from coco_opt.releases.verify import verify_release
from coco_opt.topdown.constraint import TOTAL, UNBOUNDED, LinearConstraint, RegionBounds, Terms, counted
from coco_opt.topdown.kind.files import EXACT, EXACT_COLUMNS, TablesRelease
from coco_opt.topdown.kind.section import AgreesConfig
from coco_opt.topdown.names import find, nearest
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import AGREES

if TYPE_CHECKING:
    from coco_opt.groups.kind.files import Release as GroupsRelease

Plain = dict[str, Any]
"""What a plan, a measurement and a manifest say of an earlier release, as JSON-able values."""

_SIDES = re.compile("[<>=]")


@dataclass(frozen=True, eq=False, slots=True)
class Earlier:
    """The constraints from earlier releases, all with source "release", and a description of each release."""

    bounds: tuple[RegionBounds, ...] = ()
    linear: tuple[LinearConstraint, ...] = ()
    said: tuple[Plain, ...] = ()


def earlier_of(
    releases: Sequence[AgreesConfig], hierarchy: Hierarchy, levels: Sequence[str], schema: Schema, counts: Any = None
) -> Earlier:
    """Read and verify earlier releases, and return their constraints on later tables; ``counts`` names conditions.

    Raises InputError: file-not-found, broken-release (a check of it fails), other-release (of another kind),
    other-regions, other-domain, unknown-attribute, unknown-value, nothing-new (nothing is left to estimate),
    inconsistent-facts (persons where a structural zero forbids them), bad-rule.
    """
    parts = [_agreed_release(agreement, hierarchy, levels, schema, counts or {}, releases) for agreement in releases]
    return Earlier(
        tuple(bound for part in parts for bound in part.bounds),
        tuple(constraint for part in parts for constraint in part.linear),
        tuple(description for part in parts for description in part.said),
    )


def _agreed_release(
    agreement: AgreesConfig,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    counts: Mapping[str, str],
    configs: Sequence[AgreesConfig],
) -> Earlier:
    from coco_opt.groups.kind.files import Release as GroupsRelease

    folder = agreement.release
    manifest, place = read_manifest(folder), Place(folder.name)
    failed = [check for check in verify_release(folder, [config.release for config in configs]) if not check.passed]
    if failed:
        message = f"this release fails a check, {failed[0].name}: {failed[0].detail}. Restore it, or agree with another"
        raise InputError("broken-release", message, place)
    release = read_release(folder)
    if isinstance(release, TablesRelease):
        if agreement.persons is not None or agreement.householders is not None:
            message = "is a release of tables: persons and householders are for one of groups, use on"
            raise InputError("other-release", message, place)
        bound, on = agreed_tables(release, hierarchy, levels, schema, agreement.on, name=manifest["name"])
        exact = exact_answers(folder, release, hierarchy, schema, on, bound.level)
        return Earlier((bound, *exact), (), (_description(manifest, folder, bound.level, {"on": on}),))
    if isinstance(release, GroupsRelease):
        if agreement.on is not None:
            message = "is a release of groups: on is for one of tables, use persons and householders"
            raise InputError("other-release", message, place)
        stated = {"persons": TOTAL if agreement.persons is None else agreement.persons}
        stated |= {} if agreement.householders is None else {"householders": agreement.householders}
        counted_as = {name: _conditions(text, schema, counts) for name, text in stated.items()}
        constraints = agreed_groups(release, hierarchy, levels, schema, counted_as, name=manifest["name"])
        level = min(release.hierarchy.levels, hierarchy.levels) - 1
        return Earlier(
            constraints.bounds, constraints.linear, (_description(manifest, folder, level, {"groups": counted_as}),)
        )
    message = f"is a release of {manifest['kind']}: tables agree with tables, and with groups"
    raise InputError("other-release", message, place)


def _conditions(text: str, schema: Schema, counts: Mapping[str, str]) -> str:
    conditions = " ".join(counts.get(text, text).split())
    if not counted(conditions, schema).any():
        raise InputError("bad-rule", f"{text!r} counts no cell that can occur")
    return conditions


def agreed_tables(
    earlier: TablesRelease,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    on: Sequence[str] | None = None,
    name: str = "the earlier release",
) -> tuple[RegionBounds, dict[str, list[str]]]:
    """Return the constraints that earlier tables put on later ones, and the values of shared attributes.

    ``on`` are attributes of the earlier tables (default: all), with the same name and values in the later schema, where
    a grouping of all values counts as an attribute. The constraints hold at the last level that both have: the levels
    above are sums. Raises InputError; see ``earlier_of``.
    """
    level, region = _shared_regions(earlier.hierarchy, hierarchy, levels, name)
    shared = list(earlier.schema.names) if on is None else list(on)
    for attribute in shared:
        find(attribute, list(earlier.schema.names), "attribute", name)
    values = {attribute: _shared_values(attribute, earlier.schema, schema, name) for attribute in shared}
    text = " * ".join(shared) or TOTAL
    query = parse_query(text, schema, f"{text} (as in {name})")
    complete = all(factor.complete for factor in query.factors) and len(query.factors) == len(schema.names)
    if complete and level == hierarchy.levels - 1:
        message = f"{name!r} has published every cell of every region: nothing is left to measure; add an attribute"
        raise InputError("nothing-new", message)
    first = earlier.hierarchy.level_range(level)
    runs = earlier.runs.part(first.start, first.stop)
    codes = earlier.schema.decode(runs.cells)
    places = [
        np.array([values[factor.title].index(value) for value in earlier.schema.attributes[factor.title]])[
            codes[factor.title]
        ]
        for factor in query.factors
    ]
    where = region[first.start + runs.owners]
    answer = _answers(query, places, where.size)
    if (answer < 0).any():
        wrong = int(np.flatnonzero(answer < 0)[0])
        path = hierarchy.paths[hierarchy.level_range(level).start + int(where[wrong])]
        cell = earlier.schema.label(int(runs.cells[wrong]))
        message = f"{name!r} has persons with {cell} in {path!r}, whom the structural zeros of these tables forbid"
        raise InputError("inconsistent-facts", message)
    table = np.zeros((len(hierarchy.level_range(level)), query.answers), np.int64)
    np.add.at(table, (where, answer), runs.counts)
    return RegionBounds(query, level, table, table, "release"), {
        attribute: list(values[attribute]) for attribute in shared
    }


def exact_answers(
    folder: Path, earlier: TablesRelease, hierarchy: Hierarchy, schema: Schema, shared: Collection[str], last: int
) -> Iterator[RegionBounds]:
    """Yield answers that earlier tables state as exact: no noise was ever added to them, so now they are public.

    ``shared`` are the attributes that both have with the same values, ``last`` the last level that both have. Unlike
    the rest of what was published these hold for the true tables too, and unbiased estimates may use them.
    """
    if not (folder / EXACT).exists():
        return
    rows = read_columns(folder / EXACT, EXACT_COLUMNS).to_pandas()
    rows = rows[(rows.lower == rows.upper) & (rows.level <= last)]
    for (text, level), stated in rows.groupby(["query", "level"]):
        query = parse_query(text, earlier.schema)
        if not {factor.title for factor in query.factors} <= set(shared) & set(earlier.schema.names):
            continue
        query = parse_query(text, schema, f"{text}, exact")
        places, first = {label: at for at, label in enumerate(query.labels())}, hierarchy.level_range(level).start
        lower = np.zeros((len(hierarchy.level_range(level)), query.answers), np.int64)
        upper = np.full(lower.shape, UNBOUNDED)
        for path, answer, value in zip(stated.region, stated.answer, stated.lower, strict=True):
            if answer in places:  # else a structural zero of the later tables
                at = hierarchy.index(path) - first, places[answer]
                lower[at] = upper[at] = value
        yield RegionBounds(query, int(level), lower, upper, "public")


def agreed_groups(
    earlier: GroupsRelease,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    counted_as: Mapping[str, str],
    name: str = "the earlier release",
) -> Earlier:
    """Return the constraints from earlier groups: their ``persons`` and ``householders``, by conditions.

    Persons are the sum of size x groups. A group of max_size may have more persons: in a region with
    such a group the sum is a lower bound. A group of at least one person has one householder.
    """
    level, region = _shared_regions(earlier.hierarchy, hierarchy, levels, name)
    histograms = [earlier.histograms[v] for v in np.asarray(earlier.hierarchy.level_range(level)).tolist()]
    order = region[np.asarray(earlier.hierarchy.level_range(level))]
    persons, householders = (np.zeros(order.size, np.int64) for _ in range(2))
    persons[order] = [int(histogram.sizes @ histogram.counts) for histogram in histograms]
    householders[order] = [int(histogram.counts[histogram.sizes > 0].sum()) for histogram in histograms]
    open_ended = np.zeros(order.size, np.bool_)
    open_ended[order] = [bool((histogram.sizes >= int(earlier.manifest["max_size"])).any()) for histogram in histograms]
    upper = {"persons": np.where(open_ended, UNBOUNDED, persons), "householders": householders}
    lower = {"persons": persons, "householders": householders}
    bounds: list[RegionBounds] = []
    linear: list[LinearConstraint] = []
    label = _SIDES.sub("-", name)
    for what, conditions in counted_as.items():
        if conditions == TOTAL:
            query = parse_query(TOTAL, schema, f"{TOTAL} ({what} of {label})")
            sides = lower[what][:, None], upper[what][:, None]
            bounds.append(RegionBounds(query, level, *sides, "release"))
        else:
            terms: Terms = ((1, conditions),)
            text = f"[{conditions}] ({what} of {label})"
            linear.append(LinearConstraint(text, terms, level, lower[what], upper[what], "release"))
    return Earlier(tuple(bounds), tuple(linear))


def _answers(query: Query, places: Sequence[Ints], rows: int) -> Ints:
    """Return the index of each row's answer from the positions of its values, -1 where no cell can occur."""
    combined = np.zeros(rows, np.int64)
    for factor, place in zip(query.factors, places, strict=True):
        combined = combined * len(factor.answers) + place
    position = np.searchsorted(query.combinations, combined)
    occurs = query.combinations[np.minimum(position, query.combinations.size - 1)] == combined
    return np.where(occurs, position, -1)


def _shared_regions(earlier: Hierarchy, later: Hierarchy, levels: Sequence[str], name: str) -> tuple[int, Ints]:
    """Return the last level that both have, and each earlier region's position within it (-1 for other levels).

    One hierarchy must be the other's upper part: every level that both have has the same regions.
    """
    last = min(earlier.levels, later.levels) - 1
    place = np.full(earlier.regions, -1, np.int64)
    for level in range(last + 1):
        mine, theirs = later.level_range(level), earlier.level_range(level)
        positions = {path: position for position, path in enumerate(later.paths[mine.start : mine.stop])}
        paths = earlier.paths[theirs.start : theirs.stop]
        lacking = [path for path in paths if path not in positions] or sorted(set(positions) - set(paths))
        if lacking:
            where = "these tables" if lacking[0] not in positions else repr(name)
            raise InputError(
                "other-regions",
                f"level {levels[level]!r}: the region {lacking[0]!r} is not in {where}. One hierarchy must be the "
                "other's upper part, with the same names: a later one may add levels below, or leave out the last ones",
            )
        if level == last:
            place[theirs.start : theirs.stop] = [positions[path] for path in paths]
    return last, place


def _shared_values(name: str, earlier: Schema, later: Schema, release: str) -> tuple[str, ...]:
    """Return the values of a shared attribute in the later's order: of an attribute, or of a grouping of all values."""
    advice = f"make the attribute coarser by a grouping named {name!r}"
    if name in later.attributes:
        mine = tuple(later.attributes[name])
        advice += (
            f', and give the attribute another name, which [data] says of its column: columns = {{ NAME = "{name}" }}'
        )
    elif name in later.groupings:
        mine = tuple(later.groupings[name].groups)
        axis, labels = later.group_labels[name]
        attribute = later.names[axis]
        if (labels < 0).any():
            lost = later.attributes[attribute][int(np.flatnonzero(labels < 0)[0])]
            message = (
                f"the grouping {name!r} leaves out the value {lost!r} of {attribute!r}, and {release!r} leaves out none"
            )
            raise InputError("other-domain", message)
    else:
        hint = nearest(name, [*later.names, *later.groupings])
        message = (
            f"{release!r} has the attribute {name!r}, and these tables have no attribute or grouping of that name: "
            f"{hint}; or say with on = [...] which attributes to agree on"
        )
        raise InputError("unknown-attribute", message)
    theirs = earlier.attributes[name]
    for values, other_values, whose in ((theirs, mine, repr(release)), (mine, theirs, "these tables")):
        lacking = [value for value in values if value not in other_values]
        if lacking:
            message = f"the value {lacking[0]!r} of {name!r} is in {whose} alone: use the same values, or {advice}"
            raise InputError("other-domain", message)
    return mine


def _description(manifest: Mapping[str, Any], folder: Path, level: int, what: Plain) -> Plain:
    """Return the description of an earlier release: with its name, not its path, so folders may be moved."""
    budget = manifest["budget"]
    cost = cost_of(budget)
    return {
        "release": manifest["name"],
        "kind": manifest["kind"],
        "manifest": file_digest(folder / MANIFEST),
        "measurement": manifest["measurement"],
        "receipt": manifest["receipt"],
        "private": manifest["private"],
        "status": manifest["status"],
        "dataset": manifest["config"]["privacy"].get("dataset"),
        "budget": {**cost.as_dict(), "neighbours": budget["neighbours"], "promise": budget["promise"]},
        "level": level,
        **what,
        AGREES: manifest.get(AGREES, []),
    }


def check_account(config: Config, releases: Sequence[Plain]) -> None:
    """Raise ConfigError where a release and an earlier one cannot be in one account."""
    private, dataset = config.privacy.noise != "seeded", config.privacy.dataset
    for release in releases:
        name = release["release"]
        if private and not release["private"]:
            message = f"{name!r} is NOT PRIVATE: a private release cannot repeat what nothing protects"
            raise config.error(f"topdown.{AGREES}", message)
        if private and release["dataset"] not in (None, dataset):
            message = (
                f"is of {dataset!r}, and {name!r} of {release['dataset']!r}: releases of the same persons are paid "
                "from one account; use one name"
            )
            raise config.error("privacy.dataset", message)


def spent_in_all(cost: Cost, neighbours: str, releases: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Return the total cost of a release and all earlier releases it rests on: amounts by unit and neighbours.

    A measurement that several releases use is counted once.
    """
    paid = {(release["receipt"], release["measurement"]): release["budget"] for release in chain_of(releases)}
    amounts: dict[tuple[str, str], Cost] = {(cost.unit, neighbours): cost}
    for budget in paid.values():
        earlier = cost_of(budget)
        key = earlier.unit, budget["neighbours"]
        amounts[key] = amounts[key] + earlier if key in amounts else earlier
    return [{**amount.as_dict(), "neighbours": which} for (_, which), amount in amounts.items()]


def chain_of(releases: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield earlier releases and, after each, the releases that it agrees with."""
    for release in releases:
        yield release
        yield from chain_of(release.get(AGREES, ()))


def account_line(measurement_plan: MeasurementPlan, releases: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence that names the earlier releases these tables agree with, the cost of all, and its promise."""
    cost, neighbours, chain = measurement_plan.cost, measurement_plan.neighbours, list(chain_of(releases))
    earlier = ", ".join(f"{release['release']!r} ({cost_of(release['budget'])})" for release in chain)
    amounts = [
        f"{cost_of(amount)} (neighbours: {amount['neighbours']})" for amount in spent_in_all(cost, neighbours, releases)
    ]
    stated = (Promise.of(release["budget"]["promise"]) for release in chain)
    promise = joint((promise_of(measurement_plan), *stated))
    together = " and ".join(amounts) + ("" if promise is None else f", where {promise.words}")
    return f"Agrees exactly with {earlier}; this release costs {cost}, together they cost {together}"
