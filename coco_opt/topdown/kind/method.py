"""The post-processing that a configuration asks for, checked against what was asked; and the keys that ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.config.model import Config
from coco_opt.privacy.measurement import Asked
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.estimated.method import Pass, TopdownMethod, misfit
from coco_opt.topdown.kind.plan import blamed, constraints_of, schema_of_config, workload_of
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.pooled import pooled_queries
from coco_opt.topdown.queries import Query, parse_queries, parse_query
from coco_opt.topdown.questions import AGREES, ROWS, TableQuestions
from coco_opt.topdown.schema import Schema

_STAYS = "was stated when this was measured: the tables hold it all the same, so state it here too"


@dataclass(frozen=True, eq=False, slots=True)
class TablesMethod:
    """How tables are made whole, and the queries whose estimates are shown beside them, read by ``schema``."""

    topdown: TopdownMethod
    schema: Schema
    workload: tuple[Query, ...]


def method_of(config: Config, asked: Asked, *also: Asked) -> TablesMethod:
    """Return the estimation that a configuration asks for, of one measurement or of several together.

    Raises ConfigError where it cannot keep what must hold or read what was asked, and for attributes, structural zeros,
    invariants or constraints that are not those of the measurement, all of them.
    """
    section, questions = config.method, TableQuestions.of(asked)
    schema, measured = schema_of_config(config), questions.schema
    if list(schema.attributes.items()) != list(measured.attributes.items()):
        raise config.error("topdown.attributes", "are not the attributes, values and order that were measured")
    if schema.size != measured.size or (schema.allowed != measured.allowed).any():
        raise config.error("topdown.structural_zeros", "do not leave the cells that were measured")
    if (section.rows_a_person or 1) != questions.plan.rows:
        raise config.error("topdown.rows_a_person", f"was {questions.plan.rows} when this was measured")
    exact = {(one.query.text, asked.levels[one.level]) for one in questions.invariants}
    given = set()
    for number, one in enumerate(section.invariants):
        query = blamed(config, f"invariants.{number}.query", lambda text=one.query: parse_query(text, schema))
        if (query.text, one.level) not in exact:
            raise config.error(f"topdown.invariants.{number}", "is not one that was measured")
        given.add((query.text, one.level))
    if exact - given:
        text, level = min(exact - given)
        raise config.error("topdown.invariants", f"leave out {text!r} by {level!r}, which {_STAYS}")
    measured_facts = {_key(one) for one in questions.linear}
    stated = tuple(constraints_of(config, questions.hierarchy, asked.levels, schema))
    for number, constraint in enumerate(stated):
        if _key(constraint) not in measured_facts:
            raise config.error(f"topdown.constraints.{number}", "is not one that was stated when it was measured")
    kept = {_key(one) for one in stated}
    left_out = next((one for one in questions.linear if one.is_relation and _key(one) not in kept), None)
    if left_out is not None:
        raise config.error("topdown.constraints", f"leave out {left_out.text!r}, which {_STAYS}")
    if len(section.agrees_with) != len(questions.earlier):
        names = ", ".join(repr(one["release"]) for one in questions.earlier) or "none"
        raise config.error(f"topdown.{AGREES}", f"are not the releases agreed with when this was measured: {names}")
    passes = blamed(config, "passes", lambda: tuple(Pass(one.queries, one.tolerance) for one in section.passes))
    workload = workload_of(config, schema)
    order = blamed(config, "rounding_order", lambda: parse_queries(section.rounding_order or (), schema))
    method = TopdownMethod(
        section.estimation,
        passes,
        rounding=section.rounding,
        workload=workload,
        rounding_order=order,
        implied=section.implied,
    )
    bound = {one.level for one in questions.invariants} | {one.level for one in questions.stated}
    queries, _ = pooled_queries([questions, *(TableQuestions.of(one) for one in also)])
    levels = {one.level for each in (asked, *also) for one in each.questions if not one.exact}
    unfit = misfit(method, [query.name for query in queries], levels, asked.hierarchy.levels, bound)
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
        **_constraint_keys(asked, questions.linear),
        **({ROWS: plan.rows} if plan.rows > 1 else {}),
        **({AGREES: [one["release"] for one in questions.earlier]} if questions.earlier else {}),
    }


def _constraint_keys(asked: Asked, linear: Sequence[LinearConstraint]) -> dict[str, Any]:
    """Return the constraints that were read from text, their counts as conditions."""
    found = []
    for one in linear:
        bound = (one.lower > -UNBOUNDED) | (one.upper < UNBOUNDED)
        if not one.is_relation or one.source == "release" or not bound.any():
            continue
        low, high = int(one.lower[bound][0]), int(one.upper[bound][0])
        side = f"= {low}" if low == high else f">= {low}" if low > -UNBOUNDED else f"<= {high}"
        counts = " + ".join(f"{weight} * [{count}]" for weight, count in one.terms).replace("+ -", "- ")
        paths = [asked.hierarchy.paths[v] for v in np.asarray(asked.hierarchy.level_range(one.level))[bound].tolist()]
        found.append(
            {
                "holds": f"{counts} {side}",
                "level": asked.levels[one.level],
                "source": one.source,
                **({} if bound.all() else {"regions": paths}),
            }
        )
    return {"constraints": found} if found else {}


def _key(one: LinearConstraint) -> tuple[object, ...]:
    return one.level, tuple(sorted(one.terms)), one.lower.tobytes(), one.upper.tobytes(), one.source


def _shares(plan: TablePlan) -> list[str] | list[list[str]]:
    """Return the queries' shares of each level's cost: one list where all levels that cost something have the same."""
    by_level: list[list[str]] = []
    for costs in plan.costs:
        amounts = [cost.amount for cost in costs]
        by_level.append([str(amount / sum(amounts)) for amount in amounts] if any(amounts) else [])
    first = next(shares for shares in by_level if shares)
    if all(shares in ([], first) for shares in by_level):
        return first
    return [shares or first for shares in by_level]


def _listed(values: Any) -> list[str]:
    return [values] if isinstance(values, str) else list(values)
