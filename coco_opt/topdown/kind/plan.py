"""What a configuration of tables asks, read and checked on public tables, and the private table that it is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from coco_opt.config.model import Config
from coco_opt.errors import HierarchyError, InputError, ProblemError
from coco_opt.files.inputs import InputLike
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.cost import Cost
from coco_opt.releases.kind import Plan
from coco_opt.topdown.asked.bounds_file import read_bounds
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.asked.facilities_file import read_facilities
from coco_opt.topdown.asked.optimised import optimised_strategy
from coco_opt.topdown.asked.proved import check_exact, proved
from coco_opt.topdown.asked.records import read_records
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.facilities import Facilities, FacilityType, zeros_of
from coco_opt.topdown.facts.proof import Proof
from coco_opt.topdown.invariants import Invariant, RegionBounds, Stated
from coco_opt.topdown.kind.earlier import Earlier, account_line, check_account, earlier_of
from coco_opt.topdown.kind.files import RESERVED
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.questions import AGREES, TableQuestions
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.strategy import Strategy

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class TablesDetail:
    """What is asked in the family's own values, the workload, and the public regions (None of a look-alike's).

    ``proof`` says whether some whole table meets all public facts, None where that was not asked.
    """

    questions: TableQuestions
    workload: tuple[Query, ...]
    public: PublicRegions | None = None
    proof: Proof | None = None


def plan_tables(config: Config) -> Plan:
    """Read the public tables and decide what is asked; facts that no whole table meets are refused, and named.

    Raises ConfigError, InputError, HierarchyError, ProblemError.
    """
    schema = schema_of_config(config)
    workload = workload_of(config, schema)
    public = read_regions(config.data.given("hierarchy"))
    bounds, linear = facts_of(config, public, schema)
    earlier = _earlier(config, public, schema)
    invariants = _invariants(config, public, schema)

    def planned(config: Config, proof: Proof | None = None) -> Plan:
        questions = TableQuestions(
            public.hierarchy,
            schema,
            table_plan_of(config, schema, workload, config.levels_cost(public.hierarchy.levels)),
            invariants,
            (*bounds, *earlier.bounds),
            (*linear, *earlier.linear),
            earlier.said,
        )
        proof = proved(questions) if proof is None else proof  # about the facts alone, whatever is spent
        asked = questions.asked(public.levels, public.region_ids)
        notes = [] if not earlier.said else [account_line(asked.cost, asked.neighbours, earlier.said)]
        detail = TablesDetail(questions, workload, public, proof)
        return Plan(config, asked, detail, (*notes, *_undecided(proof)), partial(planned, proof=proof))

    return planned(config)


def _earlier(config: Config, public: PublicRegions, schema: Schema) -> Earlier:
    """Return what the releases bind that these tables are to agree with. Raises ConfigError."""
    releases, counts = config.method.agrees_with, config.method.counts
    earlier = blamed(config, AGREES, lambda: earlier_of(releases, public.hierarchy, public.levels, schema, counts))
    check_account(config, earlier.said)
    return earlier


def _undecided(proof: Proof) -> Iterator[str]:
    if proof.verdict == "undecided":
        yield (
            f"UNDECIDED whether any whole table meets all public facts ({proof.how}): neither such a table nor a "
            "contradiction was found. Nothing is refused for it, but if there is none, no tables can be made after the "
            "payment. To settle it before, state fewer facts that overlap, or the same ones for larger regions"
        )


def read_tables(plan: Plan) -> TableCounts:
    """Open the private table and count; raises InputError, whose message holds no private value.

    What is declared exact is checked against the public bounds here: nothing is paid by then.
    """
    return count_records(plan, plan.config.data.given("records"))


def count_records(plan: Plan, records: InputLike) -> TableCounts:
    """Count records in the plan's regions and cells."""
    detail: TablesDetail = plan.detail
    assert detail.public is not None
    rows, spill = plan.config.method.rows_a_person, plan.config.output.private
    counts = read_records(detail.public, records, detail.questions.schema, rows, spill)
    check_exact(counts, detail.questions)
    return counts


def schema_of_config(config: Config) -> Schema:
    """Return the schema, naming the key that is wrong. Raises ConfigError."""
    section = config.method
    _check_columns(config)
    zeros = tuple(section.structural_zeros or ())
    if section.facilities is not None:
        zeros += blamed(config, "facilities", lambda: zeros_of(section.facilities.attribute, facility_types(config)))
    groupings = {name: ValueGroups(one.of, dict(one.groups)) for name, one in section.groupings.items()}
    blamed(config, "attributes", lambda: Schema(section.attributes))
    blamed(config, "structural_zeros", lambda: Schema(section.attributes, zeros))
    return blamed(config, "groupings", lambda: Schema(section.attributes, zeros, groupings))


def facility_types(config: Config) -> dict[str, FacilityType]:
    """Return the types of facilities that a configuration declares. Raises InputError."""
    types = config.method.facilities.types
    return {name: FacilityType(one.least, one.most, one.may, tuple(one.must)) for name, one in types.items()}


def facts_of(
    config: Config, public: PublicRegions, schema: Schema
) -> tuple[tuple[RegionBounds, ...], tuple[LinearConstraint, ...]]:
    """Return the bounds and constraints that are stated, by file and by text. Raises ConfigError, InputError."""
    section, data = config.method, config.data
    bounds: list[RegionBounds] = []
    if data.bounds is not None:
        bounds += read_bounds(data.given("bounds"), public.hierarchy, schema, section.bounds_source)
    linear = list(constraints_of(config, public.hierarchy, public.levels, schema))
    if (section.facilities is None) != (data.facilities is None):
        given, lacking = ("data", "topdown") if section.facilities is None else ("topdown", "data")
        raise config.error(f"{given}.facilities", f"needs {lacking}.facilities beside it")
    if section.facilities is not None:
        types, one = blamed(config, "facilities", lambda: facility_types(config)), section.facilities
        counts = read_facilities(data.given("facilities"), public, list(types))
        facilities = Facilities(one.attribute, types, counts, one.source)
        found = blamed(config, "facilities", lambda: facilities.facts(schema, public.hierarchy.levels - 1))
        bounds += found[0]
        linear += found[1]
    stated: list[Stated] = [*bounds, *linear]
    for fact in stated:
        if fact.source == "data" and config.privacy.neighbours != "replace":
            message = 'facts taken from the data change when a person is added or removed: use neighbours = "replace"'
            raise config.error("privacy.neighbours", message)
    return tuple(bounds), tuple(linear)


def constraints_of(
    config: Config, hierarchy: Hierarchy, levels: Sequence[str], schema: Schema
) -> Iterator[LinearConstraint]:
    """Yield the constraints that a configuration states as text. Raises ConfigError."""
    for number, one in enumerate(config.method.constraints):
        key = f"constraints.{number}"
        if one.level is not None and one.level not in levels:
            message = f"{one.level!r} is no level of the hierarchy, which are {', '.join(levels)}"
            raise config.error(f"topdown.{key}.level", message)
        level = None if one.level is None else levels.index(one.level)
        yield blamed(
            config,
            key,
            lambda one=one, level=level: LinearConstraint.of(
                one.holds,
                hierarchy,
                schema,
                level,
                counts=config.method.counts,
                regions=one.regions,
                source=one.source,
            ),
        )


def workload_of(config: Config, schema: Schema) -> tuple[Query, ...]:
    """Return the queries to look at. Raises ConfigError."""
    return blamed(config, "workload", lambda: parse_queries(config.method.workload, schema))


def _check_columns(config: Config) -> None:
    """Raise ConfigError unless attributes can be columns of a release: many programs ignore the case of their names."""
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in config.method.attributes:
        other = seen.setdefault(name.casefold(), name)
        if name.casefold() in RESERVED:
            message = f"{name!r} is a column of the release, {other!r}: choose another name"
            raise config.error("topdown.attributes", message)
        if other != name:
            message = f"{other!r} and {name!r} differ in case only: choose another name for one"
            raise config.error("topdown.attributes", message)


def table_plan_of(config: Config, schema: Schema, workload: tuple[Query, ...], costs: Sequence[Cost]) -> TablePlan:
    """Return what every query of every level costs, ``costs`` being those of the levels. Raises ConfigError."""
    shares, neighbours, rows = config.method.shares, config.privacy.neighbours, config.method.rows_a_person or 1
    if shares == "uniform" or not isinstance(shares[0], tuple):
        return TablePlan.of_levels(strategy_of(config, schema, workload), costs, neighbours, rows)
    if len(shares) != len(costs):
        message = f"has {len(shares)} lists, but the hierarchy has {len(costs)} levels"
        raise config.error("topdown.shares", message)
    queries = _listed_queries(config, schema, workload)
    each = tuple(tuple(cost * share for share in level) for cost, level in zip(costs, shares, strict=True))
    for at, query in enumerate(queries):
        if not any(level[at] for level in each):
            raise config.error("topdown.shares", f"no level asks {query.text!r}: leave it out of the strategy")
    return blamed(config, "shares", lambda: TablePlan(queries, each, neighbours, rows))


def strategy_of(config: Config, schema: Schema, workload: tuple[Query, ...]) -> Strategy:
    """Return what is measured, by name or as listed; "optimised" is computed, from public facts. Raises ConfigError."""
    section = config.method
    if section.strategy == "optimised":
        return blamed(config, "strategy", lambda: optimised_strategy(workload, schema, cost=config.privacy.cost))
    asked = _listed_queries(config, schema, workload)
    if section.shares == "uniform":
        return Strategy.uniform(asked)
    return blamed(config, "shares", lambda: Strategy(asked, section.shares))


def _listed_queries(config: Config, schema: Schema, workload: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return the queries of a strategy that is not computed."""
    section = config.method
    if section.strategy == "workload":
        return workload
    if section.strategy == "identity":
        return (parse_query("detail", schema),)
    return blamed(config, "strategy", lambda: parse_queries(section.strategy, schema))


def _invariants(config: Config, public: PublicRegions, schema: Schema) -> tuple[Invariant, ...]:
    found = []
    for number, one in enumerate(config.method.invariants):
        key = f"invariants.{number}"
        if one.level not in public.levels:
            known = ", ".join(public.levels)
            message = f"{one.level!r} is no level of the hierarchy, which are {known}"
            raise config.error(f"topdown.{key}.level", message)
        query = blamed(config, f"{key}.query", lambda text=one.query: parse_query(text, schema))
        found.append(Invariant(query, public.levels.index(one.level)))
    if found and config.privacy.neighbours != "replace":
        message = 'exact answers change when a person is added or removed: use neighbours = "replace"'
        raise config.error("topdown.invariants", message)
    return tuple(found)


def blamed(config: Config, key: str, make: Callable[..., T]) -> T:
    """Return what ``make`` does; what is wrong with its public input is blamed on a key, as ConfigError."""
    try:
        return make()
    except (InputError, ProblemError, HierarchyError) as error:
        message = str(error)
    raise config.error(f"topdown.{key}", message)
