"""Tables of persons as a kind of release (Census TopDown)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.errors import ProblemError
from coco_opt.files.differences import Compared
from coco_opt.privacy import Exact, Measurement, MeasurementPlan, Pair
from coco_opt.privacy.blocks import Block
from coco_opt.privacy.promise import Promise
from coco_opt.problems import TableRounding, TopdownSplit
from coco_opt.problems.topdown_split import SplitTerm
from coco_opt.releases.kind import Instance, Plan, ReleaseKind, SimulatedData, Work
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.linear.query_trees import linear_stage
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import LEAST_PARENTS, split_step
from coco_opt.topdown.kind.checkpoints import LevelFiles
from coco_opt.topdown.kind.files import read_tables_release
from coco_opt.topdown.kind.forecast import forecast_tables
from coco_opt.topdown.kind.intervals import intervals_of_cells
from coco_opt.topdown.kind.method import TablesMethod, method_of, query_keys
from coco_opt.topdown.kind.page import errors_of, sections_of
from coco_opt.topdown.kind.plan import contradiction_remarks, plan_tables, read_tables
from coco_opt.topdown.kind.published import released
from coco_opt.topdown.kind.rehearsal import small_instance
from coco_opt.topdown.kind.section import TablesData, TopdownSection
from coco_opt.topdown.kind.simulated_data import (
    cells_by_level,
    neighbouring,
    simulated_or_public,
)
from coco_opt.topdown.kind.template import draft_of, file_key_of
from coco_opt.topdown.kind.verify import ALWAYS, PROMISES, checks_of
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import ExactTables, blocks_of, exact_parts
from coco_opt.topdown.noisy_measurements import TableMeasurements
from coco_opt.topdown.schema import schema_of
from coco_opt.topdown.table_queries import CELLS_MEASURED, KIND, ROWS, exact_statements


def _every_cell(manifest: Mapping[str, Any], most: int) -> Mapping[str, Any] | None:
    schema = schema_of(manifest.get("schema", {}))
    if schema.size > most:
        return None
    codes = schema.decode(np.arange(schema.size))
    return {name: np.array(values, object)[codes[name]] for name, values in schema.attributes.items()}


_LEAST_CELLS = 2  # of an instance


def _instances(measurement: Measurement, config: Config) -> Sequence[Instance]:
    """Return the split of the first region with the most children, and the rounding of its result, cut to any size.

    The region's table is its linear estimate rounded to integers. Raises ProblemError where no region has two children.
    """
    measured = TableMeasurements.of(measurement)
    region = int(np.diff(measured.hierarchy.first_child).argmax())
    if len(measured.hierarchy.children(region)) < 2:
        raise ProblemError("no region has more than one child: there is nothing to split")
    linear = linear_stage(measured).tables(*measured.hierarchy.within_level(range(region, region + 1)))[0]
    table = np.rint(np.maximum(linear, 0.0)).astype(np.int64)
    step = split_step(measured, TopdownMethod(), SolverChoices())
    regions, occupied = step.children(region), np.flatnonzero(table)
    terms = step.terms(regions, range(len(measured.queries)))

    def split(unknowns: int) -> TopdownSplit:
        count = max(1, min(occupied.size, unknowns // len(regions)))
        cells = occupied[:count] if occupied.size else np.arange(1)
        restricted = [SplitTerm(term.operator.restrict(cells), term.answers, term.weights) for term in terms]
        return TopdownSplit(restricted, table[cells].astype(np.float64))

    def rounding(unknowns: int) -> TableRounding:
        problem = split(unknowns)
        x = np.asarray(SolverChoices().solve(problem), np.float64)
        assert problem.parent is not None
        return TableRounding(np.maximum(x, 0.0), problem.parent.astype(np.int64), slack=2)

    largest = len(regions) * max(occupied.size, _LEAST_CELLS)
    return [Instance("topdown_split", largest, split), Instance("table_rounding", largest, rounding)]


class TablesKind(ReleaseKind[TableCounts, TablesMethod, TablesResult]):
    """Tables of persons for every region of a hierarchy."""

    name: ClassVar[str] = KIND
    section: ClassVar[str] = "topdown"
    unit: ClassVar[str] = "person"
    data_model: ClassVar[type[DataSection]] = TablesData
    section_model: ClassVar[type[Section]] = TopdownSection
    promises: ClassVar[tuple[str, ...]] = PROMISES
    least: ClassVar[tuple[str, ...]] = ALWAYS
    takes_several: ClassVar[bool] = True
    plainest: ClassVar[Mapping[str, Any]] = {"estimation": "full"}
    error_words: ClassVar[str] = "persons by which the cells of a region are off, in sum"
    compared: ClassVar[tuple[Compared, ...]] = (
        Compared(
            "tables",
            "persons",
            bounds="intervals",
            lower="lower",
            upper="upper",
            keyed=intervals_of_cells,
            every=_every_cell,
            measured=CELLS_MEASURED,
            ordered=lambda manifest: schema_of(manifest.get("schema", {})).attributes,
        ),
        Compared("estimates", "estimate", ("query", "answer"), error="standard_error", absent_is_zero=False),
    )

    file_key = staticmethod(file_key_of)
    draft = staticmethod(draft_of)
    section_of = staticmethod(query_keys)
    plan = staticmethod(plan_tables)
    read = staticmethod(read_tables)
    remarks = staticmethod(contradiction_remarks)
    method = staticmethod(method_of)
    release = staticmethod(released)
    open = staticmethod(read_tables_release)
    verify = staticmethod(checks_of)
    page = staticmethod(sections_of)
    errors = staticmethod(errors_of)
    rehearsal = staticmethod(small_instance)
    forecast = staticmethod(forecast_tables)
    simulated_data = staticmethod(simulated_or_public)
    instances = staticmethod(_instances)
    statistics = staticmethod(cells_by_level)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom noise protects, and the invariants, bounds and constraints that are taken from the data."""
        rows = measurement_plan.parameters.get(ROWS, 1)
        exact = exact_statements(measurement_plan)
        return Promise(measurement_plan.neighbours, self.unit, rows, exact=tuple(sorted(exact)))

    def exact_answers(self, plan: Plan, private: TableCounts) -> Iterable[Exact]:
        """Return the exact answers, a block of regions at a time."""
        return exact_parts(private, plan.detail.table_queries)

    def blocks(self, plan: Plan) -> Iterable[Block]:
        """Return regions of a level and a query, about half a million answers each."""
        return blocks_of(plan.detail.table_queries)

    def exact_blocks(self, plan: Plan, private: TableCounts) -> ExactTables:
        """Return the exact answers of blocks, from the counts."""
        return ExactTables.of(private, plan.detail.table_queries)

    def late_kernels(self, method: TablesMethod, measurement_plan: MeasurementPlan) -> tuple[str, ...]:
        """Return the rounding kernels, level-wise for many regions: they compile while splits run."""
        if method.topdown.estimation == "bottom_up":
            return ()
        parents = max(
            len(measurement_plan.hierarchy.level_range(level))
            for level in range(max(1, measurement_plan.hierarchy.levels - 1))
        )
        many = parents >= LEAST_PARENTS
        return ("table_rounding/level", "topdown_split/level") if many else ("table_rounding",)

    def estimate(self, measurement: Measurement, method: TablesMethod, work: Work) -> TablesResult:
        """Split every region's table among its children, level by level from the root."""
        levelwise = method.topdown.estimation in ("full", "classic")
        files = LevelFiles(work.scratch) if work.scratch is not None and levelwise else None
        return estimate_tables(
            measurement,
            method.topdown,
            work.solvers,
            threads=work.threads,
            executor=work.executor,
            progress=work.progress,
            after_level=None if files is None else files.keep,
            resume_from=None if files is None else files.last(),
            note=work.note,
        )

    def neighbours(self, simulated_data: SimulatedData) -> Pair[TableCounts]:
        """Return two tables that differ by one person, placed where the answers change most."""
        return neighbouring(simulated_data.private, simulated_data.plan.detail.table_queries)


TABLES = TablesKind()
