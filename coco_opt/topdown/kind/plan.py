"""Plan the queries of a configuration of tables from checked public tables, and read the private table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.config.model import Config
from coco_opt.config.sections import AUTO, DataSection
from coco_opt.config.values import KeyedError
from coco_opt.errors import HierarchyError, InputError, Place, ProblemError
from coco_opt.files.inputs import InputLike
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import is_plain_name
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.releases.kind import Plan
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, RegionBounds
from coco_opt.topdown.facilities import Facilities, FacilityType, zeros_of
from coco_opt.topdown.feasibility.conflict import Proof
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.invariants import Invariant, Stated
from coco_opt.topdown.kind.automatic import choice_digest, choice_tables, resolved
from coco_opt.topdown.kind.earlier_releases import account_line, check_account, earlier_of
from coco_opt.topdown.kind.files import RESERVED
from coco_opt.topdown.measuring.automatic import optimised_strategy
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import Contradiction, check_exact, contradictions, proved
from coco_opt.topdown.measuring.public_files import read_bounds, read_facilities
from coco_opt.topdown.measuring.records import Located, read_records
from coco_opt.topdown.names import find
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.table_queries import AGREES, TableQueries

T = TypeVar("T")
_SHOWN, _MOST = 10, 1000  # contradictions that are described, and that are counted


@dataclass(frozen=True, eq=False, slots=True)
class TablesDetail:
    """The planned queries and constraints, the workload, and the public regions (None for simulated data)."""

    table_queries: TableQueries
    workload: tuple[Query, ...]
    public: PublicRegions | None = None


def plan_tables(config: Config) -> Plan:
    """Read the public tables and plan the queries; constraints that no integer table meets are refused and named.

    Raises ConfigError, InputError, HierarchyError, ProblemError.
    """
    schema = schema_of_config(config)
    workload = workload_of(config, schema)
    public = read_regions(config.data.table_of("hierarchy"))
    bounds, linear = stated_constraints(config, public, schema)
    releases, counts = config.method.agrees_with, config.method.counts
    earlier = blamed(config, AGREES, lambda: earlier_of(releases, public.hierarchy, public.levels, schema, counts))
    check_account(config, earlier.said)
    invariants = _invariants(config, public, schema)

    def planned(written: Config, keys: Mapping[str, Any] | None = None, proof: Proof | None = None) -> Plan:
        config, chosen = resolved(written, public.hierarchy, schema, workload, keys)
        table_queries = TableQueries(
            public.hierarchy,
            schema,
            table_plan_of(config, schema, workload, config.levels_cost(public.hierarchy.levels)),
            invariants,
            (*bounds, *earlier.bounds),
            (*linear, *earlier.linear),
            earlier.said,
        )
        proof = proved(table_queries) if proof is None else proof  # about the constraints alone, whatever is spent
        measurement_plan = table_queries.measurement_plan(public.levels, public.region_ids)
        return Plan(
            config,
            measurement_plan,
            TablesDetail(table_queries, workload, public),
            tuple(_notes(config, measurement_plan, table_queries, proof)),
            partial(planned, proof=proof),
            chosen=chosen,
            ranking=tuple if keys else partial(choice_tables, written, config, public.hierarchy, schema, workload),
            promised=tuple(_promised(table_queries, proof)),
            choice=choice_digest(written),
        )

    return planned(config)


def _notes(
    config: Config, measurement_plan: MeasurementPlan, table_queries: TableQueries, proof: Proof
) -> Iterator[str]:
    """Yield what to know before a payment: where cells are guesses, no table may exist, or no intervals will be."""
    from coco_opt.topdown.estimating.posterior.result import NOT_CONNECTED

    tree, schema = table_queries.hierarchy, table_queries.schema
    if table_queries.earlier:
        yield account_line(measurement_plan, table_queries.earlier)
    if table_queries.leaves_cells_open:
        attributes = " * ".join(name for name, values in schema.attributes.items() if len(values) > 1)
        yield (
            f"Cells are not measured: the counts of {attributes} in the released tables are guesses, shared out in "
            'proportion to the measured margins. If you will look at them, add "detail" to topdown.workload'
        )
    if proof.verdict == "undecided":
        yield (
            f"UNDECIDED whether any integer table meets all public constraints ({proof.how}): neither such a table nor "
            "a contradiction was found. The plan is not refused, but if there is no such table, no tables can be "
            "estimated after the payment. To decide it before, state fewer overlapping constraints, or the same ones "
            "for larger regions"
        )
    if config.method.estimation == "posterior":
        # Whatever the answers of the exact ones are.
        exact = [
            RegionBounds.exact(
                each.query, each.level, np.zeros((len(tree.level_range(each.level)), each.query.answers), np.int64)
            )
            for each in table_queries.invariants
        ]
        bounds = (*table_queries.bounds, *exact)
        if not ConstraintSystem.of(tree, schema, bounds, table_queries.linear).by_sums:
            yield f"{NOT_CONNECTED}. For intervals, leave out what crosses other constraints, before it is paid"


def _promised(table_queries: TableQueries, proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield what holds in the released tables without being measured: public constraints."""
    number = len(table_queries.constraints)
    if number:
        verdict = "proved that integer tables meet" if proof.verdict == "holds" else "UNDECIDED whether any tables meet"
        yield "Public constraints", f"{number} stated; {verdict} them all ({proof.how})"


def read_tables(plan: Plan) -> TableCounts:
    """Open the private table and count persons; raises InputError, whose message holds no private value.

    Declared invariants are checked against the public bounds here, before anything is paid.
    """
    data = plan.config.data
    return count_records(plan, data.table_of("records"), None if data.groups is None else data.table_of("groups"))


def count_records(
    plan: Plan, records: InputLike, groups: InputLike | None = None, located: Located | None = None
) -> TableCounts:
    """Count records in the plan's regions and cells; ``groups`` says where they lie if they themselves do not."""
    detail: TablesDetail = plan.detail
    assert detail.public is not None
    rows, spill, bins = plan.config.method.rows_a_person, plan.config.output.private, plan.config.method.bins
    schema, public = detail.table_queries.schema, detail.public
    counts = read_records(public, records, schema, rows, spill, bins=bins, groups=groups, located=located)
    check_exact(counts, detail.table_queries)
    return counts


def contradiction_remarks(plan: Plan, private: TableCounts) -> tuple[str, ...]:
    """Return where the private table contradicts public constraints, with the rows that are too many: PRIVATE."""
    found = list(islice(contradictions(private, plan.detail.table_queries), _MOST + 1))
    shown, places, hierarchy = found[:_SHOWN], dict[int, Place](), private.hierarchy

    def locate(place_of: Callable[[range, Ints], Place]) -> None:
        for number, broken in enumerate(shown):
            if broken.answer > broken.upper:
                leaves = hierarchy.leaf_range(broken.region)
                first = leaves.start - hierarchy.leaves[0]
                places[number] = place_of(range(first, first + len(leaves)), np.flatnonzero(broken.row > 0.0))

    if not found:
        return ()
    data = plan.config.data
    if any(broken.answer > broken.upper for broken in shown):
        groups = None if data.groups is None else data.table_of("groups")
        count_records(plan, data.table_of("records"), groups, locate)
    number = f"more than {_MOST:,}" if len(found) > _MOST else f"{len(found):,}"
    summary = (
        f"Stated bounds, facilities or constraints that the private table contradicts: {number}. A release meets what "
        "is stated, so persons come out elsewhere: correct the statement or the rows before you pay. This is private"
    )
    return (summary, *(_in_words(hierarchy, broken, places.get(number)) for number, broken in enumerate(shown)))


def _in_words(hierarchy: Hierarchy, broken: Contradiction, place: Place | None) -> str:
    low, high = f"{broken.lower:,}", f"{broken.upper:,}"
    sides = low if low == high else f"{low} to {high}" if broken.upper < UNBOUNDED else f"at least {low}"
    where = "" if place is None else f", in {place}"
    label = broken.label.split(": ")[-1]
    return f"{label!r} of {hierarchy.path(broken.region)!r}: stated {sides}, found {broken.answer:,}{where}"


def schema_of_config(config: Config) -> Schema:
    """Return the schema. Raises ConfigError, which names the wrong key."""
    section = config.method
    _check_columns(config)
    zeros = own = tuple(section.structural_zeros or ())
    if section.facilities is not None:
        blamed(config, "facilities", lambda: _check_types(section.facilities, section.values))
        zeros += blamed(config, "facilities", lambda: zeros_of(section.facilities.attribute, facility_types(config)))
    groupings = {name: ValueGroups(grouping.of, dict(grouping.groups)) for name, grouping in section.groupings.items()}
    blamed(config, "attributes", lambda: _check_names(section.values))
    blamed(config, "groupings", lambda: _check_names({name: group.groups for name, group in groupings.items()}))
    blamed(config, "attributes", lambda: Schema(section.values))
    blamed(config, "structural_zeros", lambda: Schema(section.values, own))
    blamed(config, "facilities" if zeros != own else "structural_zeros", lambda: Schema(section.values, zeros))
    return blamed(config, "groupings", lambda: Schema(section.values, zeros, groupings))


def _check_names(named: Mapping[str, Iterable[str]]) -> None:
    """Raise InputError (bad-name) where names look alike; the names of a stored measurement are read as they are."""
    for name in chain(named, *named.values()):
        if not is_plain_name(name):
            raise InputError("bad-name", f"{name!r} has a space around it, or holds a character that nobody sees")


def _check_types(facilities: Any, values: Mapping[str, Sequence[str]]) -> None:
    """Raise InputError where the attribute, or a type, is none: the rules that types imply would not name it."""
    find(facilities.attribute, tuple(values), "attribute", "attribute")
    for name in facilities.types:
        find(name, tuple(values[facilities.attribute]), f"value of {facilities.attribute!r}", f"types.{name}")


def facility_types(config: Config) -> dict[str, FacilityType]:
    """Return the types of facilities that a configuration declares. Raises InputError."""
    types = config.method.facilities.types
    return {
        name: FacilityType(facility.least, facility.most, facility.may, tuple(facility.must))
        for name, facility in types.items()
    }


def stated_constraints(
    config: Config, public: PublicRegions, schema: Schema
) -> tuple[tuple[RegionBounds, ...], tuple[LinearConstraint, ...]]:
    """Return the bounds and constraints that files and texts state. Raises ConfigError, InputError."""
    section, data = config.method, config.data
    bounds: list[RegionBounds] = []
    if data.bounds is not None:
        bounds += read_bounds(data.table_of("bounds"), public.hierarchy, schema, section.bounds_source)
    linear = list(constraints_of(config, public.hierarchy, public.levels, schema))
    if (section.facilities is None) != (data.facilities is None):
        present, missing = ("data", "topdown") if section.facilities is None else ("topdown", "data")
        raise config.error(f"{present}.facilities", f"needs {missing}.facilities too")
    if section.facilities is not None:
        types, options = blamed(config, "facilities", lambda: facility_types(config)), section.facilities
        counts = read_facilities(data.table_of("facilities"), public, list(types))
        facilities = Facilities(options.attribute, types, counts, options.source)
        implied = blamed(config, "facilities", lambda: facilities.constraints(schema, public.hierarchy.levels - 1))
        bounds += implied[0]
        linear += implied[1]
    stated: list[Stated] = [*bounds, *linear]
    for constraint in stated:
        if constraint.source == "data" and config.privacy.neighbours != "replace":
            message = (
                'constraints taken from the data change when a person is added or removed: use neighbours = "replace"'
            )
            raise config.error("privacy.neighbours", message)
    return tuple(bounds), tuple(linear)


def constraints_of(
    config: Config, hierarchy: Hierarchy, levels: Sequence[str], schema: Schema
) -> Iterator[LinearConstraint]:
    """Yield the constraints that a configuration states as text. Raises ConfigError."""
    for number, constraint in enumerate(config.method.constraints):
        key = f"constraints.{number}"
        if constraint.level is not None and constraint.level not in levels:
            message = f"{constraint.level!r} is no level of the hierarchy, which are {', '.join(levels)}"
            raise config.error(f"topdown.{key}.level", message)
        level = None if constraint.level is None else levels.index(constraint.level)
        yield blamed(
            config,
            key,
            lambda constraint=constraint, level=level: LinearConstraint.of(
                constraint.holds,
                hierarchy,
                schema,
                level,
                counts=config.method.counts,
                regions=constraint.regions,
                source=constraint.source,
            ),
        )


def workload_of(config: Config, schema: Schema) -> tuple[Query, ...]:
    """Return the queries to look at. Raises ConfigError."""
    return blamed(config, "workload", lambda: parse_queries(config.method.workload, schema))


def _check_columns(config: Config) -> None:
    """Raise ConfigError unless attributes can be columns of a release; many programs ignore the case of names.

    Names of columns in the user's files must be of attributes or of the tables.
    """
    problem: KeyedError | None = None
    try:
        if isinstance(config.data, DataSection):  # an estimation elsewhere has no data
            config.data.check_columns(tuple(config.method.attributes))
    except KeyedError as error:
        problem = error
    if problem is not None:
        raise config.error(f"data.{problem.key}", str(problem))
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in config.method.attributes:
        earlier = seen.setdefault(name.casefold(), name)
        if name.casefold() in RESERVED:
            message = f"{name!r} is a column of the release, {earlier!r}: choose another name"
            raise config.error("topdown.attributes", message)
        if earlier != name:
            message = f"{earlier!r} and {name!r} differ in case only: choose another name for one"
            raise config.error("topdown.attributes", message)


def table_plan_of(config: Config, schema: Schema, workload: tuple[Query, ...], costs: Sequence[Cost]) -> TablePlan:
    """Return the cost of every query at every level from the ``costs`` of the levels. Raises ConfigError."""
    shares, neighbours, rows = config.method.shares, config.privacy.neighbours, config.method.rows_a_person or 1
    if isinstance(shares, str) or not isinstance(shares[0], tuple):
        return TablePlan.of_levels(strategy_of(config, schema, workload), costs, neighbours, rows)
    if len(shares) != len(costs):
        message = f"has {len(shares)} lists, but the hierarchy has {len(costs)} levels"
        raise config.error("topdown.shares", message)
    queries = _listed_queries(config, schema, workload)
    each = tuple(tuple(cost * share for share in level) for cost, level in zip(costs, shares, strict=True))
    for index, query in enumerate(queries):
        if not any(level[index] for level in each):
            raise config.error("topdown.shares", f"no level measures {query.text!r}: remove it from the strategy")
    return blamed(config, "shares", lambda: TablePlan(queries, each, neighbours, rows))


def strategy_of(config: Config, schema: Schema, workload: tuple[Query, ...]) -> Strategy:
    """Return the measured queries, by name or as listed; "optimised" is computed. Raises ConfigError."""
    section = config.method
    if section.strategy == "optimised":
        return blamed(config, "strategy", lambda: optimised_strategy(workload, schema, cost=config.privacy.cost))
    queries = _listed_queries(config, schema, workload)
    if isinstance(section.shares, str):
        return Strategy.uniform(queries)
    return blamed(config, "shares", lambda: Strategy(queries, section.shares))


def _listed_queries(config: Config, schema: Schema, workload: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return the queries of a strategy that is not computed."""
    section = config.method
    if section.strategy in ("workload", AUTO):
        return workload
    if section.strategy == "identity":
        return (parse_query("detail", schema),)
    return blamed(config, "strategy", lambda: parse_queries(section.strategy, schema))


def _invariants(config: Config, public: PublicRegions, schema: Schema) -> tuple[Invariant, ...]:
    invariants = []
    for number, invariant in enumerate(config.method.invariants):
        key = f"invariants.{number}"
        if invariant.level not in public.levels:
            levels = ", ".join(public.levels)
            message = f"{invariant.level!r} is no level of the hierarchy, which are {levels}"
            raise config.error(f"topdown.{key}.level", message)
        query = blamed(config, f"{key}.query", lambda text=invariant.query: parse_query(text, schema))
        invariants.append(Invariant(query, public.levels.index(invariant.level)))
    if invariants and config.privacy.neighbours != "replace":
        message = 'exact answers change when a person is added or removed: use neighbours = "replace"'
        raise config.error("topdown.invariants", message)
    return tuple(invariants)


def blamed(config: Config, key: str, make: Callable[..., T]) -> T:
    """Return the result of ``make``; errors in its public input become a ConfigError that names the key."""
    try:
        return make()
    except (InputError, ProblemError, HierarchyError) as error:
        message = str(error)
        if isinstance(error, InputError) and error.code == "unknown-attribute" and key in ("workload", "strategy"):
            message += f": if you took it out of [topdown.attributes], delete it from {key}, too"
    raise config.error(f"topdown.{key}", message)
