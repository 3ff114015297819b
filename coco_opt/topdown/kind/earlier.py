"""Earlier releases that tables agree with: read and verified, and made facts of the later plan, before the payment.

What was published is public: the answers of an earlier release, over the attributes and regions that both have, are
exact facts of the later tables, closed and proven like any other (Kifer's slides: prior releases are constraints).
Groups say how many persons are in them: the sum over sizes of size x groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place
from coco_opt.files.folder import MANIFEST, file_digest, read_manifest
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.arrays import Int64Array
from coco_opt.privacy.cost import Cost, cost_of
from coco_opt.releases.read import read_release
from coco_opt.releases.verify import verify_release
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import TOTAL, LinearConstraint, Terms, counted
from coco_opt.topdown.invariants import RegionBounds
from coco_opt.topdown.kind.files import TablesRelease
from coco_opt.topdown.kind.section import AgreesConfig
from coco_opt.topdown.names import find, nearest
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.questions import AGREES
from coco_opt.topdown.schema import Schema

if TYPE_CHECKING:
    from coco_opt.groups.kind.files import Release as GroupsRelease

Plain = dict[str, Any]
"""What a plan, a measurement and a manifest say of an earlier release, as JSON-able values."""

_SIDES = re.compile("[<>=]")


@dataclass(frozen=True, eq=False, slots=True)
class Earlier:
    """What earlier releases bind, all with source "release", and what is said of each of them."""

    bounds: tuple[RegionBounds, ...] = ()
    linear: tuple[LinearConstraint, ...] = ()
    said: tuple[Plain, ...] = ()


def earlier_of(
    releases: Sequence[AgreesConfig], hierarchy: Hierarchy, levels: Sequence[str], schema: Schema, counts: Any = None
) -> Earlier:
    """Read earlier releases, verify them, and return what they bind in later tables; ``counts`` names conditions.

    Raises InputError: file-not-found, broken-release (a check of it fails), other-release (of another kind),
    other-regions, other-domain, unknown-attribute, unknown-value, nothing-new (nothing is left to estimate),
    inconsistent-facts (persons where a structural zero forbids them), bad-rule.
    """
    found = [_one(one, hierarchy, levels, schema, counts or {}, releases) for one in releases]
    return Earlier(
        tuple(bound for one in found for bound in one.bounds),
        tuple(fact for one in found for fact in one.linear),
        tuple(said for one in found for said in one.said),
    )


def _one(
    one: AgreesConfig,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    counts: Mapping[str, str],
    beside: Sequence[AgreesConfig],
) -> Earlier:
    from coco_opt.groups.kind.files import Release as GroupsRelease

    folder = one.release
    manifest, place = read_manifest(folder), Place(folder.name)
    failed = [check for check in verify_release(folder, [other.release for other in beside]) if not check.passed]
    if failed:
        message = f"this release fails a check, {failed[0].name}: {failed[0].detail}. Restore it, or agree with another"
        raise InputError("broken-release", message, place)
    release = read_release(folder)
    if isinstance(release, TablesRelease):
        if one.persons is not None or one.householders is not None:
            message = "is a release of tables: persons and householders are for one of groups, use on"
            raise InputError("other-release", message, place)
        bound, on = agreed_tables(release, hierarchy, levels, schema, one.on, name=manifest["name"])
        return Earlier((bound,), (), (_said(manifest, folder, bound.level, {"on": on}),))
    if isinstance(release, GroupsRelease):
        if one.on is not None:
            message = "is a release of groups: on is for one of tables, use persons and householders"
            raise InputError("other-release", message, place)
        counted_as = {name: _conditions(text, schema, counts) for name, text in _of_groups(one)}
        facts = agreed_groups(release, hierarchy, levels, schema, counted_as, name=manifest["name"])
        level = min(release.hierarchy.levels, hierarchy.levels) - 1
        return Earlier(facts.bounds, facts.linear, (_said(manifest, folder, level, {"groups": counted_as}),))
    message = f"is a release of {manifest['kind']}: tables agree with tables, and with groups"
    raise InputError("other-release", message, place)


def _of_groups(one: AgreesConfig) -> Iterator[tuple[str, str]]:
    yield "persons", TOTAL if one.persons is None else one.persons
    if one.householders is not None:
        yield "householders", one.householders


def _conditions(text: str, schema: Schema, counts: Mapping[str, str]) -> str:
    found = " ".join(counts.get(text, text).split())
    if not counted(found, schema).any():
        raise InputError("bad-rule", f"{text!r} counts no cell that can occur")
    return found


def agreed_tables(
    earlier: TablesRelease,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    on: Sequence[str] | None = None,
    name: str = "the earlier release",
) -> tuple[RegionBounds, dict[str, list[str]]]:
    """Return what tables published earlier bind in later ones, and the values of the attributes they share.

    ``on`` are attributes of the earlier tables (all unless given), of the same name and values in the later schema,
    where a grouping of all values counts as an attribute. They bind the last level that both have: what lies above are
    sums. Raises InputError; see ``earlier_of``.
    """
    level, region = _shared_regions(earlier.hierarchy, hierarchy, levels, name)
    shared = list(earlier.schema.names) if on is None else list(on)
    for one in shared:
        find(one, list(earlier.schema.names), "attribute", name)
    values = {one: _shared_values(one, earlier.schema, schema, name) for one in shared}
    text = " * ".join(shared) or TOTAL
    query = parse_query(text, schema, f"{text} (as in {name})")
    whole = all(factor.whole for factor in query.factors) and len(query.factors) == len(schema.names)
    if whole and level == hierarchy.levels - 1:
        message = f"{name!r} has published every cell of every region: nothing is left to measure; add an attribute"
        raise InputError("nothing-new", message)
    runs = earlier.runs
    here = earlier.hierarchy.level[runs.regions] == level
    codes = earlier.schema.decode(runs.cells[here])
    places = [
        np.array([values[factor.title].index(one) for one in _values(earlier.schema, factor.title)])[
            codes[factor.title]
        ]
        for factor in query.factors
    ]
    where = region[runs.regions[here]]
    answer = _answers(query, places, where.size)
    if (answer < 0).any():
        first = int(np.flatnonzero(answer < 0)[0])
        path = hierarchy.paths[hierarchy.level_range(level).start + int(where[first])]
        cell = earlier.schema.label(int(runs.cells[here][first]))
        message = f"{name!r} has persons with {cell} in {path!r}, whom the structural zeros of these tables forbid"
        raise InputError("inconsistent-facts", message)
    table = np.zeros((len(hierarchy.level_range(level)), query.answers), np.int64)
    np.add.at(table, (where, answer), runs.counts[here])
    return RegionBounds(query, level, table, table, "release"), {one: list(values[one]) for one in shared}


def agreed_groups(
    earlier: GroupsRelease,
    hierarchy: Hierarchy,
    levels: Sequence[str],
    schema: Schema,
    counted_as: Mapping[str, str],
    name: str = "the earlier release",
) -> Earlier:
    """Return what groups published earlier bind: ``persons`` in them and their ``householders``, by conditions.

    Persons are the sum of size x groups. Groups of max_size have as many or more: where a region has one its persons
    are a lower bound. A group of at least one person has one householder.
    """
    level, region = _shared_regions(earlier.hierarchy, hierarchy, levels, name)
    histograms = [earlier.histograms[v] for v in np.asarray(earlier.hierarchy.level_range(level)).tolist()]
    order = region[np.asarray(earlier.hierarchy.level_range(level))]
    persons, householders = (np.zeros(order.size, np.int64) for _ in range(2))
    persons[order] = [int(one.sizes @ one.counts) for one in histograms]
    householders[order] = [int(one.counts[one.sizes > 0].sum()) for one in histograms]
    open_ended = np.zeros(order.size, np.bool_)
    open_ended[order] = [bool((one.sizes >= int(earlier.manifest["max_size"])).any()) for one in histograms]
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


def _answers(query: Query, places: Sequence[Int64Array], rows: int) -> Int64Array:
    """Return the answer of each row by the places of its values, -1 where no cell can occur."""
    combined = np.zeros(rows, np.int64)
    for factor, place in zip(query.factors, places, strict=True):
        combined = combined * len(factor.answers) + place
    found = np.searchsorted(query.kept, combined)
    known = query.kept[np.minimum(found, query.kept.size - 1)] == combined
    return np.where(known, found, -1)


def _shared_regions(earlier: Hierarchy, later: Hierarchy, levels: Sequence[str], name: str) -> tuple[int, Int64Array]:
    """Return the last level that both have, and the place within it of each of the earlier's regions (-1 elsewhere).

    One hierarchy must be the other's upper part: every level that both have has the same regions.
    """
    last = min(earlier.levels, later.levels) - 1
    place = np.full(earlier.regions, -1, np.int64)
    for level in range(last + 1):
        mine, theirs = later.level_range(level), earlier.level_range(level)
        known = {path: at for at, path in enumerate(later.paths[mine.start : mine.stop])}
        paths = earlier.paths[theirs.start : theirs.stop]
        lacking = [path for path in paths if path not in known] or sorted(set(known) - set(paths))
        if lacking:
            where = "these tables" if lacking[0] not in known else repr(name)
            raise InputError(
                "other-regions",
                f"level {levels[level]!r}: the region {lacking[0]!r} is not in {where}. One hierarchy must be the "
                "other's upper part, with the same names: a later one may add levels below, or leave out the last ones",
            )
        if level == last:
            place[theirs.start : theirs.stop] = [known[path] for path in paths]
    return last, place


def _values(schema: Schema, name: str) -> tuple[str, ...]:
    return tuple(schema.attributes[name])


def _shared_values(name: str, earlier: Schema, later: Schema, release: str) -> tuple[str, ...]:
    """Return the values of a shared attribute in the later's order: of an attribute, or of a grouping of all values."""
    if name in later.attributes:
        mine = tuple(later.attributes[name])
    elif name in later.groupings:
        mine = tuple(later.groupings[name].groups)
        axis, labels = later.group_labels[name]
        of = later.names[axis]
        if (labels < 0).any():
            lost = later.attributes[of][int(np.flatnonzero(labels < 0)[0])]
            message = f"the grouping {name!r} leaves out the value {lost!r} of {of!r}, and {release!r} leaves out none"
            raise InputError("other-domain", message)
    else:
        hint = nearest(name, [*later.names, *later.groupings])
        message = (
            f"{release!r} has the attribute {name!r}, and these tables have no attribute or grouping of that name: "
            f"{hint}; or say with on = [...] which attributes to agree on"
        )
        raise InputError("unknown-attribute", message)
    theirs = earlier.attributes[name]
    for values, others, whose in ((theirs, mine, repr(release)), (mine, theirs, "these tables")):
        lacking = [value for value in values if value not in others]
        if lacking:
            message = (
                f"the value {lacking[0]!r} of {name!r} is in {whose} alone: use the same values, or make the attribute "
                f"coarser by a grouping named {name!r}"
            )
            raise InputError("other-domain", message)
    return mine


def _said(manifest: Mapping[str, Any], folder: Path, level: int, what: Plain) -> Plain:
    """Return what is said of an earlier release; its name is its own, so that its folder may be moved."""
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
        "budget": {**cost.as_dict(), "neighbours": budget["neighbours"]},
        "level": level,
        **what,
        AGREES: manifest.get(AGREES, []),
    }


def check_account(config: Config, said: Sequence[Plain]) -> None:
    """Raise ConfigError where a release and an earlier one cannot stand in one account."""
    private, dataset = config.privacy.noise != "seeded", config.privacy.dataset
    for one in said:
        name = one["release"]
        if private and not one["private"]:
            message = f"{name!r} is NOT PRIVATE: a private release cannot repeat what nothing protects"
            raise config.error(f"topdown.{AGREES}", message)
        if private and one["dataset"] not in (None, dataset):
            message = (
                f"is of {dataset!r}, and {name!r} of {one['dataset']!r}: releases of the same persons are paid from "
                "one account; use one name"
            )
            raise config.error("privacy.dataset", message)


def spent_in_all(cost: Cost, neighbours: str, said: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Return what a release and all that it agrees with, and they with, cost: amounts by unit and neighbours.

    A measurement that several releases were made of is counted once.
    """
    paid = {(one["receipt"], one["measurement"]): one["budget"] for one in chain_of(said)}
    amounts: dict[tuple[str, str], Cost] = {(cost.unit, neighbours): cost}
    for budget in paid.values():
        earlier = cost_of(budget)
        key = earlier.unit, budget["neighbours"]
        amounts[key] = amounts[key] + earlier if key in amounts else earlier
    return [{**amount.as_dict(), "neighbours": which} for (_, which), amount in amounts.items()]


def chain_of(said: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield earlier releases and, after each, those that it agrees with itself."""
    for one in said:
        yield one
        yield from chain_of(one.get(AGREES, ()))


def account_line(cost: Cost, neighbours: str, said: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence which earlier releases these tables agree with, and what all cost together."""
    earlier = ", ".join(f"{one['release']!r} ({cost_of(one['budget'])})" for one in chain_of(said))
    amounts = [f"{cost_of(one)} (neighbours: {one['neighbours']})" for one in spent_in_all(cost, neighbours, said)]
    return f"Agrees exactly with {earlier}; this release costs {cost}, together they cost {' and '.join(amounts)}"
