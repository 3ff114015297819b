"""Hierarchical tables of persons (Census TopDown): schema, queries, invariants, and tables that satisfy them.

``measuring`` runs before the noise is added: counts, ``measure_tables``, and the choice of the queries to measure.
``estimating`` runs afterwards, on a measurement alone. ``kind`` makes both a kind of release.
"""

from __future__ import annotations

from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables, linear_estimates
from coco_opt.topdown.estimating.linear.information import FullInformation
from coco_opt.topdown.estimating.method import Pass, TopdownMethod
from coco_opt.topdown.facilities import Facilities, FacilityType
from coco_opt.topdown.invariants import Invariant, Invariants
from coco_opt.topdown.measuring.automatic import OBJECTIVES, Objective, optimised_strategy
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.measuring.predicted import predicted_variance
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.queries import Query, marginal_query, parse_queries, parse_query
from coco_opt.topdown.rows import Constraints
from coco_opt.topdown.schema import Schema, ValueGroups
from coco_opt.topdown.table_queries import TableQueries

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
    "TableCounts",
    "TableMeasurements",
    "TablePlan",
    "TableQueries",
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
