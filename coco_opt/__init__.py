"""Consistent, certified, differentially private histograms and tables over a hierarchy of regions.

Privacy comes from noise; everything after the noise is optimisation. Each step is a named problem (``problems``) that
interchangeable solvers answer (``solve``) and that certifies the answer itself. Names are imported when first used,
so ``import coco_opt`` stays light.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from coco_opt._version import __version__ as __version__
from coco_opt.lazy_names import lazy_names

if TYPE_CHECKING:
    from coco_opt.choices import SolverChoices as SolverChoices
    from coco_opt.config import Config as Config
    from coco_opt.config import configure as configure
    from coco_opt.config import load_config as load_config
    from coco_opt.config import parse_config as parse_config
    from coco_opt.files.measurement import read_measurement as read_measurement
    from coco_opt.files.measurement import write_measurement as write_measurement
    from coco_opt.groups import GroupsMethod as GroupsMethod
    from coco_opt.groups import GroupsResult as GroupsResult
    from coco_opt.groups import estimate_groups as estimate_groups
    from coco_opt.groups import measure_hierarchy as measure_hierarchy
    from coco_opt.groups.kind.files import read_groups_release as read_groups_release
    from coco_opt.histograms import CountOfCounts as CountOfCounts
    from coco_opt.histograms import Hierarchy as Hierarchy
    from coco_opt.histograms import emd as emd
    from coco_opt.privacy import DiscreteGaussian as DiscreteGaussian
    from coco_opt.privacy import Epsilon as Epsilon
    from coco_opt.privacy import Geometric as Geometric
    from coco_opt.privacy import Measurement as Measurement
    from coco_opt.privacy import OpenDPNoise as OpenDPNoise
    from coco_opt.privacy import Rho as Rho
    from coco_opt.privacy import SeededNoise as SeededNoise
    from coco_opt.problem import Problem as Problem
    from coco_opt.problems import ControlledRounding as ControlledRounding
    from coco_opt.problems import ExpectedDistance as ExpectedDistance
    from coco_opt.problems import GroupMatching as GroupMatching
    from coco_opt.problems import IntegerTreeL1 as IntegerTreeL1
    from coco_opt.problems import IntegerTreeL2 as IntegerTreeL2
    from coco_opt.problems import IsotonicL1 as IsotonicL1
    from coco_opt.problems import IsotonicL2 as IsotonicL2
    from coco_opt.problems import JointL1 as JointL1
    from coco_opt.problems import JointL2 as JointL2
    from coco_opt.problems import LinearRows as LinearRows
    from coco_opt.problems import Marginals as Marginals
    from coco_opt.problems import SimplexProjection as SimplexProjection
    from coco_opt.problems import SplitTerm as SplitTerm
    from coco_opt.problems import TableRounding as TableRounding
    from coco_opt.problems import TopdownSplit as TopdownSplit
    from coco_opt.problems import Tree as Tree
    from coco_opt.problems import TreeLeastSquares as TreeLeastSquares
    from coco_opt.ranges import UniversalHistogram as UniversalHistogram
    from coco_opt.ranges import measure_ranges as measure_ranges
    from coco_opt.ranges import measure_sorted as measure_sorted
    from coco_opt.ranges.kind.files import read_ranges_release as read_ranges_release
    from coco_opt.registry import backends as backends
    from coco_opt.registry import make_solver as make_solver
    from coco_opt.releases import check as check
    from coco_opt.releases import compare as compare
    from coco_opt.releases import differences as differences
    from coco_opt.releases import estimate as estimate
    from coco_opt.releases import forecast as forecast
    from coco_opt.releases import measure as measure
    from coco_opt.releases import read_release as read_release
    from coco_opt.releases import release as release
    from coco_opt.releases import render_report as render_report
    from coco_opt.releases import verify_release as verify_release
    from coco_opt.solution import Solution as Solution
    from coco_opt.solution import Status as Status
    from coco_opt.solving import solve as solve
    from coco_opt.solving import solve_many as solve_many
    from coco_opt.topdown import Schema as Schema
    from coco_opt.topdown import Strategy as Strategy
    from coco_opt.topdown import TableCounts as TableCounts
    from coco_opt.topdown import TablePlan as TablePlan
    from coco_opt.topdown import TopdownMethod as TopdownMethod
    from coco_opt.topdown import estimate_tables as estimate_tables
    from coco_opt.topdown import measure_tables as measure_tables
    from coco_opt.topdown import parse_queries as parse_queries
    from coco_opt.topdown.kind.files import read_tables_release as read_tables_release
    from coco_opt.topdown.kind.noisy_measurement_files import read_noisy_measurements as read_noisy_measurements

_NAMES = {
    "choices": ("SolverChoices",),
    "config": ("Config", "configure", "load_config", "parse_config"),
    "files.measurement": ("read_measurement", "write_measurement"),
    "groups": ("GroupsMethod", "GroupsResult", "estimate_groups", "measure_hierarchy"),
    "groups.kind.files": ("read_groups_release",),
    "histograms": ("CountOfCounts", "Hierarchy", "emd"),
    "privacy": ("DiscreteGaussian", "Epsilon", "Geometric", "Measurement", "OpenDPNoise", "Rho", "SeededNoise"),
    "problem": ("Problem",),
    "problems": (
        "ControlledRounding",
        "ExpectedDistance",
        "GroupMatching",
        "IntegerTreeL1",
        "IntegerTreeL2",
        "IsotonicL1",
        "IsotonicL2",
        "JointL1",
        "JointL2",
        "LinearRows",
        "Marginals",
        "SimplexProjection",
        "SplitTerm",
        "TableRounding",
        "TopdownSplit",
        "Tree",
        "TreeLeastSquares",
    ),
    "ranges": ("UniversalHistogram", "measure_ranges", "measure_sorted"),
    "ranges.kind.files": ("read_ranges_release",),
    "registry": ("backends", "make_solver"),
    "releases": (
        "check",
        "compare",
        "differences",
        "estimate",
        "forecast",
        "measure",
        "read_release",
        "release",
        "render_report",
        "verify_release",
    ),
    "solution": ("Solution", "Status"),
    "solving": ("solve", "solve_many"),
    "topdown": (
        "Schema",
        "Strategy",
        "TableCounts",
        "TablePlan",
        "TopdownMethod",
        "estimate_tables",
        "measure_tables",
        "parse_queries",
    ),
    "topdown.kind.files": ("read_tables_release",),
    "topdown.kind.noisy_measurement_files": ("read_noisy_measurements",),
}
__all__ = ["__version__", *chain(*_NAMES.values())]
__getattr__ = lazy_names("coco_opt", _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
