"""The post-processing that a configuration asks for, checked against what was asked; and the keys that ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coco_opt.config.model import Config
from coco_opt.privacy.measurement import Asked
from coco_opt.topdown.estimated.method import Pass, TopdownMethod, misfit
from coco_opt.topdown.kind.plan import blamed, schema_of_config, workload_of
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema


@dataclass(frozen=True, eq=False, slots=True)
class TablesMethod:
    """How tables are made whole, and the queries whose estimates are shown beside them, read by ``schema``."""

    topdown: TopdownMethod
    schema: Schema
    workload: tuple[Query, ...]


def method_of(config: Config, asked: Asked) -> TablesMethod:
    """Return the estimation that a configuration asks for.

    Raises ConfigError where it cannot keep what must hold or read what was asked, and for attributes or structural
    zeros that are not those of the measurement.
    """
    section, questions = config.method, TableQuestions.of(asked)
    schema, measured = schema_of_config(config), questions.schema
    if list(schema.attributes.items()) != list(measured.attributes.items()):
        raise config.error("topdown.attributes", "are not the attributes, values and order that were measured")
    if schema.size != measured.size or (schema.allowed != measured.allowed).any():
        raise config.error("topdown.structural_zeros", "do not leave the cells that were measured")
    exact = {(one.query.text, asked.levels[one.level]) for one in questions.invariants}
    for number, one in enumerate(section.invariants):
        query = blamed(config, f"invariants.{number}.query", lambda text=one.query: parse_query(text, schema))
        if (query.text, one.level) not in exact:
            raise config.error(f"topdown.invariants.{number}", "is not one that was measured")
    passes = blamed(config, "passes", lambda: tuple(Pass(one.queries, one.tolerance) for one in section.passes))
    workload = workload_of(config, schema)
    order = blamed(config, "rounding_order", lambda: parse_queries(section.rounding_order or (), schema))
    method = TopdownMethod(
        section.estimation, passes, rounding=section.rounding, workload=workload, rounding_order=order
    )
    bound = {one.level for one in questions.invariants} | {one.level for one in questions.bounds}
    unfit = misfit(method, questions.plan, bound)
    if unfit is not None:
        raise config.error(f"topdown.{unfit[0]}", unfit[1])
    return TablesMethod(method, schema, workload)


def asked_keys(asked: Asked) -> dict[str, Any]:
    """Return the keys of [topdown] that ask what a measurement answers."""
    questions = TableQuestions.of(asked)
    schema, plan = questions.schema, questions.plan
    texts = [query.text for query in plan.queries]
    groupings = {
        name: {"of": one.of, "groups": {group: _listed(values) for group, values in one.groups.items()}}
        for name, one in schema.groupings.items()
    }
    exact = [{"query": one.query.text, "level": asked.levels[one.level]} for one in questions.invariants]
    return {
        "attributes": {name: list(values) for name, values in schema.attributes.items()},
        **({"groupings": groupings} if groupings else {}),
        **({"structural_zeros": list(schema.structural_zeros)} if schema.structural_zeros else {}),
        "workload": texts,
        "strategy": texts,
        "shares": _shares(plan),
        **({"invariants": exact} if exact else {}),
    }


def _shares(plan: TablePlan) -> list[str]:
    """Return the queries' shares of a level's cost: those of the first level that costs something."""
    level = plan.asked[0][0]
    amounts = [cost.amount for cost in plan.costs[level]]
    return [str(amount / sum(amounts)) for amount in amounts]


def _listed(values: Any) -> list[str]:
    return [values] if isinstance(values, str) else list(values)
