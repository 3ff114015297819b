"""Hierarchical tables (Census TopDown): schema, queries, measurements, invariants, and tables that satisfy them."""

from __future__ import annotations

from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Constraints, Invariant, Invariants, RegionBounds
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.method import Pass, TopdownMethod
from coco_opt.topdown.optimised import OBJECTIVES, Objective, optimised_strategy
from coco_opt.topdown.plan import TablePlan, noise_variance
from coco_opt.topdown.predicted import predicted_variance
from coco_opt.topdown.queries import Query, marginal_query, parse_queries, parse_query
from coco_opt.topdown.release import TablesResult, estimate_tables, linear_estimates
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.strategy import Strategy

__all__ = [
    "OBJECTIVES",
    "UNBOUNDED",
    "Constraints",
    "Invariant",
    "Invariants",
    "Objective",
    "Pass",
    "Query",
    "RegionBounds",
    "Schema",
    "Strategy",
    "TableCounts",
    "TableMeasurements",
    "TablePlan",
    "TablesResult",
    "TopdownMethod",
    "ValueGroups",
    "estimate_tables",
    "linear_estimates",
    "marginal_query",
    "measure_tables",
    "noise_variance",
    "optimised_strategy",
    "parse_queries",
    "parse_query",
    "predicted_variance",
]
