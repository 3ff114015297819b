"""The post-processing of a configuration, checked against the measurement plan; and the keys of such a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.config.model import Config
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint
from coco_opt.topdown.estimating.method import Pass, TopdownMethod, misfit
from coco_opt.topdown.kind.plan import blamed, constraints_of, schema_of_config, workload_of
from coco_opt.topdown.noisy_measurements import pooled_queries
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.schema import Schema, plain_schema
from coco_opt.topdown.table_queries import AGREES, ROWS, TableQueries

_STAYS = "was stated when this was measured: the tables hold it all the same, so state it here too"


@dataclass(frozen=True, eq=False, slots=True)
class TablesMethod:
    """How integer tables are estimated; the estimates of its workload, by ``schema``, are shown next to them."""

    topdown: TopdownMethod
    schema: Schema

    @property
    def workload(self) -> tuple[Query, ...]:
        """Return the queries to look at."""
        return self.topdown.workload


def method_of(config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> TablesMethod:
    """Return the estimation that a configuration describes, for one measurement or several together.

    Raises ConfigError where it cannot keep the constraints or use the measured queries, and where attributes,
    structural zeros, invariants or constraints differ from those of the measurement.
    """
    section, table_queries = config.method, TableQueries.of(measurement_plan)
    schema, measured = schema_of_config(config), table_queries.schema
    if list(schema.attributes.items()) != list(measured.attributes.items()):
        raise config.error("topdown.attributes", "are not the attributes, values and order that were measured")
    if schema.size != measured.size or (schema.allowed != measured.allowed).any():
        raise config.error("topdown.structural_zeros", "do not leave the cells that were measured")
    if (section.rows_a_person or 1) != table_queries.plan.rows:
        raise config.error("topdown.rows_a_person", f"was {table_queries.plan.rows} when this was measured")
    exact = {(invariant.query.text, measurement_plan.levels[invariant.level]) for invariant in table_queries.invariants}
    stated_exact = set()
    for number, invariant in enumerate(section.invariants):
        query = blamed(config, f"invariants.{number}.query", lambda text=invariant.query: parse_query(text, schema))
        if (query.text, invariant.level) not in exact:
            raise config.error(f"topdown.invariants.{number}", "is not one that was measured")
        stated_exact.add((query.text, invariant.level))
    if exact - stated_exact:
        text, level = min(exact - stated_exact)
        raise config.error("topdown.invariants", f"leave out {text!r} by {level!r}, which {_STAYS}")
    measured_keys = {_key(constraint) for constraint in table_queries.linear}
    stated = tuple(constraints_of(config, table_queries.hierarchy, measurement_plan.levels, schema))
    for number, constraint in enumerate(stated):
        if _key(constraint) not in measured_keys:
            raise config.error(f"topdown.constraints.{number}", "is not one that was stated when it was measured")
    stated_keys = {_key(constraint) for constraint in stated}
    relations = [constraint for constraint in table_queries.linear if constraint.is_relation]
    left_out = next((constraint for constraint in relations if _key(constraint) not in stated_keys), None)
    if left_out is not None:
        raise config.error("topdown.constraints", f"leave out {left_out.text!r}, which {_STAYS}")
    if len(section.agrees_with) != len(table_queries.earlier):
        names = ", ".join(repr(release["release"]) for release in table_queries.earlier) or "none"
        raise config.error(f"topdown.{AGREES}", f"are not the releases agreed with when this was measured: {names}")
    passes = blamed(config, "passes", lambda: tuple(Pass(step.queries, step.tolerance) for step in section.passes))
    order = blamed(config, "rounding_order", lambda: parse_queries(section.rounding_order or (), schema))
    method = TopdownMethod(
        section.estimation,
        passes,
        rounding=section.rounding,
        workload=workload_of(config, schema),
        rounding_order=order,
        implied=section.implied,
        time=config.auto.time,
        intervals=_coverage(config),
    )
    bound = {invariant.level for invariant in table_queries.invariants}
    bound |= {constraint.level for constraint in table_queries.constraints}
    queries, _ = pooled_queries([table_queries, *(TableQueries.of(plan) for plan in also)])
    levels = {query.level for plan in (measurement_plan, *also) for query in plan.queries if not query.exact}
    unfit = misfit(method, [query.name for query in queries], levels, measurement_plan.hierarchy.levels, bound)
    if unfit is not None:
        raise config.error(f"topdown.{unfit[0]}", unfit[1])
    return TablesMethod(method, schema)


def _coverage(config: Config) -> float:
    """Return the coverage of intervals: as configured, else 0.9 where the estimation gives intervals."""
    configured, able = config.method.intervals, config.method.estimation == "posterior"
    if configured and not able:
        raise config.error("topdown.intervals", 'only estimation = "posterior" gives intervals: leave this out, or 0')
    return 0.9 if configured is None else float(configured)


def query_keys(measurement_plan: MeasurementPlan) -> dict[str, Any]:
    """Return the keys of [topdown] that plan the queries of a measurement."""
    table_queries = TableQueries.of(measurement_plan)
    schema, plan = table_queries.schema, table_queries.plan
    texts = [query.text for query in plan.queries]
    groupings = {name: {"of": of, "groups": dict(groups)} for name, of, groups in plain_schema(schema)["groupings"]}
    exact = [
        {"query": invariant.query.text, "level": measurement_plan.levels[invariant.level]}
        for invariant in table_queries.invariants
    ]
    return {
        "attributes": {name: list(values) for name, values in schema.attributes.items()},
        **({"groupings": groupings} if groupings else {}),
        **({"structural_zeros": list(schema.structural_zeros)} if schema.structural_zeros else {}),
        "workload": texts,
        "strategy": texts,
        "shares": _shares(plan),
        **({"invariants": exact} if exact else {}),
        **_constraint_keys(measurement_plan, table_queries.linear),
        **({ROWS: plan.rows} if plan.rows > 1 else {}),
        **({AGREES: [release["release"] for release in table_queries.earlier]} if table_queries.earlier else {}),
    }


def _constraint_keys(measurement_plan: MeasurementPlan, linear: Sequence[LinearConstraint]) -> dict[str, Any]:
    """Return the constraints that were stated as text, with their counts as conditions."""
    entries = []
    for constraint in linear:
        bound = (constraint.lower > -UNBOUNDED) | (constraint.upper < UNBOUNDED)
        if not constraint.is_relation or constraint.source == "release" or not bound.any():
            continue
        low, high = int(constraint.lower[bound][0]), int(constraint.upper[bound][0])
        side = f"= {low}" if low == high else f">= {low}" if low > -UNBOUNDED else f"<= {high}"
        counts = " + ".join(f"{weight} * [{count}]" for weight, count in constraint.terms).replace("+ -", "- ")
        paths = [
            measurement_plan.hierarchy.paths[v]
            for v in np.asarray(measurement_plan.hierarchy.level_range(constraint.level))[bound].tolist()
        ]
        entries.append(
            {
                "holds": f"{counts} {side}",
                "level": measurement_plan.levels[constraint.level],
                "source": constraint.source,
                **({} if bound.all() else {"regions": paths}),
            }
        )
    return {"constraints": entries} if entries else {}


def _key(constraint: LinearConstraint) -> tuple[object, ...]:
    return (
        constraint.level,
        tuple(sorted(constraint.terms)),
        constraint.lower.tobytes(),
        constraint.upper.tobytes(),
        constraint.source,
    )


def _shares(plan: TablePlan) -> list[str] | list[list[str]]:
    """Return the queries' shares of each level's cost: one list if all levels that cost something have the same."""
    by_level: list[list[str]] = []
    for costs in plan.costs:
        amounts = [cost.amount for cost in costs]
        by_level.append([str(amount / sum(amounts)) for amount in amounts] if any(amounts) else [])
    first = next(shares for shares in by_level if shares)
    if all(shares in ([], first) for shares in by_level):
        return first
    return [shares or first for shares in by_level]
