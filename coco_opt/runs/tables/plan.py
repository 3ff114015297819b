"""Everything a release of tables decides before private data is opened: schema, queries, budget, bounds, method."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from coco_opt.errors import ConfigError, InputError, ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import NoiseSource, resolve_noise
from coco_opt.privacy.ledger_chain import Charge
from coco_opt.privacy.mechanism import check_source
from coco_opt.runs.paid import charge_for
from coco_opt.runs.settings import amount_in, solvers_of
from coco_opt.runs.tables.settings import TablesSettings
from coco_opt.solver import Solver
from coco_opt.tables.bounds import read_bounds
from coco_opt.tables.persons import RESERVED
from coco_opt.tables.records import PublicRegions, read_records, read_regions
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Invariant, Invariants, RegionBounds
from coco_opt.topdown.method import Pass, TopdownMethod
from coco_opt.topdown.optimised import optimised_strategy
from coco_opt.topdown.plain import plain_schema
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.strategy import Strategy

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class TablesPlan:
    """A release's public half, checked: whatever is still wrong afterwards lies in the private table."""

    settings: TablesSettings
    public: PublicRegions
    schema: Schema
    workload: tuple[Query, ...]
    queries: TablePlan
    bounds: tuple[RegionBounds, ...]
    invariants: tuple[Invariant, ...]
    method: TopdownMethod
    solvers: Mapping[str, Solver]
    source: NoiseSource

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.public.hierarchy

    @property
    def charge(self) -> Charge:
        """Return what the release spends, bound to the configuration and to all public input that shapes an answer."""
        return charge_for(
            self.settings, self.queries.mechanism, self.queries.spent, self.queries.neighbours, self._public
        )

    @property
    def _public(self) -> Iterator[bytes]:
        """Return what the digest of a run covers beside the configuration, whose tables it reads in any order."""
        tree, public = self.hierarchy, self.public
        ids = [[name, leaf] for name, leaf in public.leaf_ids]
        asked = [[query.name, query.text] for query in self.queries.queries]
        facts = [[one.query.name, one.query.text, one.level] for one in self.bounds]
        schema = plain_schema(self.schema)
        for part in (list(tree.names), list(public.levels), ids, schema, asked, facts, self.method.seed):
            yield json.dumps(part).encode()
        yield tree.parent.tobytes()
        for one in self.bounds:
            yield one.lower.tobytes()
            yield one.upper.tobytes()

    @property
    def spent(self) -> str:
        """Return one line: the mode, and what privacy the run spends."""
        plan, neighbours = self.queries, "one person added or removed"
        if plan.neighbours == "replace":
            neighbours = "one person's record replaced"
        amount = f"{plan.unit} = {plan.spent}"
        shares = f"{plan.levels} levels, {len(plan.queries)} queries"
        if not self.source.private:
            return (
                f"NOT PRIVATE: {self.source.name} noise as for {amount} ({shares}); "
                "no privacy budget was spent, and these figures protect nobody"
            )
        exact = f", exact besides: {self.exact}" if self.invariants else ""
        return f"PRIVATE: {amount} spent ({shares}), {self.source.name} noise, neighbours differ by {neighbours}{exact}"

    @property
    def exact(self) -> str:
        """Return in words what is published without noise."""
        levels = self.public.levels
        return ", ".join(f"{one.query.text} by {levels[one.level]}" for one in self.invariants)


def plan_tables(settings: TablesSettings) -> TablesPlan:
    """Read the public tables and check everything that can be checked without the private one.

    Raises ConfigError, InputError, HierarchyError, ProblemError, MissingPackageError.
    """
    solvers = solvers_of(settings)
    source = resolve_noise(settings.privacy.noise, settings.privacy.seed)
    schema = schema_of_settings(settings)
    workload = _keyed(settings, "workload", lambda: parse_queries(settings.topdown.workload, schema))
    assert settings.data.hierarchy is not None
    public = read_regions(settings.data.hierarchy)
    strategy = strategy_of(settings, schema, workload)
    invariants = _invariants(settings, public, schema)
    bounds = () if settings.data.bounds is None else read_bounds(settings.data.bounds, public.hierarchy, schema)
    Invariants(public.hierarchy, schema, bounds, ())
    _check_method(settings, public.hierarchy, [*bounds, *invariants])
    plan = TablesPlan(
        settings=settings,
        public=public,
        schema=schema,
        workload=workload,
        queries=_table_plan(settings, strategy, public.hierarchy.levels),
        bounds=bounds,
        invariants=invariants,
        method=method_of_settings(settings, strategy),
        solvers=solvers,
        source=source,
    )
    check_source(source, plan.queries.mechanism)
    return plan


def read_private_tables(plan: TablesPlan) -> tuple[TableCounts, int]:
    """Open the private table, count, and return how many rows it has too; raises InputError without private values."""
    path = plan.settings.data.records
    assert path is not None
    return count_records(plan, path)


def count_records(plan: TablesPlan, path: Path) -> tuple[TableCounts, int]:
    """Count records in the plan's regions and cells; return their rows too. InputError messages hold no value."""
    schema = plan.schema
    found = read_records(plan.public, path, schema.attributes, schema.position < 0)
    cells = schema.position[found.cells]
    return TableCounts.from_microdata(plan.hierarchy, schema, found.leaves, cells, found.counts), found.rows_read


def schema_of_settings(settings: TablesSettings) -> Schema:
    """Return the schema, naming the key that is wrong. Raises ConfigError."""
    topdown = settings.topdown
    _check_columns(settings)
    zeros = tuple(topdown.structural_zeros or ())
    groupings = {name: ValueGroups(one.of, dict(one.groups)) for name, one in topdown.groupings.items()}
    _keyed(settings, "attributes", lambda: Schema(topdown.attributes))
    _keyed(settings, "structural_zeros", lambda: Schema(topdown.attributes, zeros))
    return _keyed(settings, "groupings", lambda: Schema(topdown.attributes, zeros, groupings))


def _check_columns(settings: TablesSettings) -> None:
    """Raise ConfigError unless attributes can be columns of a release: many programs ignore the case of their names."""
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in settings.topdown.attributes:
        other = seen.setdefault(name.casefold(), name)
        if name.casefold() in RESERVED:
            message = f"{name!r} is a column of the release, {other!r}: choose another name"
            raise ConfigError("topdown.attributes", message, settings.file)
        if other != name:
            message = f"{other!r} and {name!r} differ in case only: choose another name for one"
            raise ConfigError("topdown.attributes", message, settings.file)


def strategy_of(settings: TablesSettings, schema: Schema, workload: tuple[Query, ...]) -> Strategy:
    """Return what is measured, by name or as listed. Raises ConfigError."""
    topdown = settings.topdown
    if topdown.strategy == "optimised":
        mechanism = settings.privacy.mechanism
        return _keyed(settings, "strategy", lambda: optimised_strategy(workload, schema, mechanism=mechanism))
    if topdown.strategy == "workload":
        asked = workload
    elif topdown.strategy == "identity":
        asked = (parse_query("detail", schema),)
    else:
        asked = _keyed(settings, "strategy", lambda: parse_queries(list(topdown.strategy), schema))
    shares = topdown.shares
    if shares == "uniform":
        return Strategy.uniform(asked)
    return _keyed(settings, "shares", lambda: Strategy(asked, tuple(Fraction(share) for share in shares)))


def method_of_settings(settings: TablesSettings, strategy: Strategy) -> TopdownMethod:
    """Return the post-processing; unbiased rounding draws from a seed that the configuration determines.

    Raises ConfigError for a pass over queries that are not measured.
    """
    topdown = settings.topdown
    passes = _keyed(
        settings, "passes", lambda: tuple(Pass(tuple(one.queries), one.tolerance) for one in topdown.passes)
    )
    seed = None
    if topdown.rounding == "unbiased":
        digest = hashlib.sha256(f"coco-opt rounding {settings.name} {settings.privacy.seed}".encode()).digest()
        seed = int.from_bytes(digest[:8], "little")
    method = TopdownMethod(topdown.estimation, passes, rounding=topdown.rounding, seed=seed)
    _keyed(settings, "passes", lambda: method.groups([query.name for query in strategy.queries]))
    return method


def _table_plan(settings: TablesSettings, strategy: Strategy, levels: int) -> TablePlan:
    privacy, shares = settings.privacy, settings.privacy.split
    leaves_only = (Fraction(0),) * (levels - 1) + (Fraction(1),)
    bottom_up = settings.topdown.estimation == "bottom_up"
    chosen: Sequence[Fraction] | None = None if shares == "uniform" else tuple(Fraction(share) for share in shares)
    if chosen is not None and len(chosen) != levels:
        message = f"has {len(chosen)} entries, but the hierarchy has {levels} levels"
        raise ConfigError("privacy.split", message, settings.file)
    if bottom_up and chosen not in (None, leaves_only):
        raise ConfigError("privacy.split", "bottom_up measures only the leaves: give them the share 1", settings.file)
    return TablePlan.product(
        strategy,
        amount_in(settings),
        levels,
        level_shares=leaves_only if bottom_up else chosen,
        mechanism=privacy.mechanism,
        neighbours=privacy.neighbours,
    )


def _invariants(settings: TablesSettings, public: PublicRegions, schema: Schema) -> tuple[Invariant, ...]:
    found = []
    for number, one in enumerate(settings.topdown.invariants):
        key = f"invariants.{number}"
        if one.level not in public.levels:
            known = ", ".join(public.levels)
            message = f"{one.level!r} is no level of the hierarchy, which are {known}"
            raise ConfigError(f"topdown.{key}.level", message, settings.file)
        query = _keyed(settings, f"{key}.query", lambda text=one.query: parse_query(text, schema))
        found.append(Invariant(query, public.levels.index(one.level)))
    if found and settings.privacy.neighbours != "replace":
        message = 'exact answers change when a person is added or removed: use neighbours = "replace"'
        raise ConfigError("topdown.invariants", message, settings.file)
    return tuple(found)


def _check_method(settings: TablesSettings, tree: Hierarchy, facts: Sequence[RegionBounds | Invariant]) -> None:
    """Raise ConfigError where a method cannot keep what must hold exactly."""
    topdown = settings.topdown
    if topdown.estimation == "bottom_up" and any(one.level < tree.levels - 1 for one in facts):
        message = "bottom_up sums the leaves and cannot keep what must hold above them: use 'full' or 'classic'"
        raise ConfigError("topdown.estimation", message, settings.file)
    if topdown.rounding == "unbiased" and facts:
        message = "unbiased rounding keeps the parents' tables only: with invariants or bounds use 'nearest'"
        raise ConfigError("topdown.rounding", message, settings.file)


def _keyed(settings: TablesSettings, key: str, make: Callable[..., T]) -> T:
    """Return what ``make`` does; what is wrong with its public input is blamed on a key."""
    try:
        return make()
    except (InputError, ProblemError) as error:
        message = str(error)
    raise ConfigError(f"topdown.{key}", message, settings.file)


def charged_arrays(counts: TableCounts) -> tuple[np.ndarray[Any, Any], ...]:
    """Return all that is private in counts, for the digest that binds a run to its input."""
    return counts.offsets, counts.cells, counts.counts
