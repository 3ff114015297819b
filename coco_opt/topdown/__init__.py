"""Hierarchical tables of persons (Census TopDown): schema, queries, invariants, and tables that satisfy them.

``asked`` runs before the noise: counts, ``measure_tables``, and the choice of what to ask. ``estimated`` runs after it,
on a measurement alone. ``kind`` makes both a kind of release.
"""

from __future__ import annotations

from coco_opt.topdown.answers import TableAnswers
from coco_opt.topdown.asked.counts import TableCounts
from coco_opt.topdown.asked.measure import measure_tables
from coco_opt.topdown.asked.optimised import OBJECTIVES, Objective, optimised_strategy
from coco_opt.topdown.asked.predicted import predicted_variance
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.estimated.estimate import TablesResult, estimate_tables, linear_estimates
from coco_opt.topdown.estimated.information import FullInformation
from coco_opt.topdown.estimated.method import Pass, TopdownMethod
from coco_opt.topdown.facilities import Facilities, FacilityType
from coco_opt.topdown.invariants import Constraints, Invariant, Invariants, RegionBounds
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, marginal_query, parse_queries, parse_query
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.strategy import Strategy

__all__ = [
    "OBJECTIVES",
    "UNBOUNDED",
    "Constraints",
    "Facilities",
    "FacilityType",
    "FullInformation",
    "Invariant",
    "Invariants",
    "LinearConstraint",
    "Objective",
    "Pass",
    "Query",
    "RegionBounds",
    "Schema",
    "Strategy",
    "TableAnswers",
    "TableCounts",
    "TablePlan",
    "TableQuestions",
    "TablesResult",
    "TopdownMethod",
    "ValueGroups",
    "estimate_tables",
    "linear_estimates",
    "marginal_query",
    "measure_tables",
    "optimised_strategy",
    "parse_queries",
    "parse_query",
    "predicted_variance",
]
