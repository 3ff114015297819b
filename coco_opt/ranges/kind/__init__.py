"""Releases of ordered histograms (Hay et al. 2010): the kind ``ranges``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import doing
from coco_opt.array_types import Ints
from coco_opt.choices import Certificate
from coco_opt.config import Config, Section
from coco_opt.config.model import digest_of
from coco_opt.config.sections import DataSection
from coco_opt.estimators import estimator_row
from coco_opt.files.differences import Compared
from coco_opt.privacy import Cost, Exact, Measurement, MeasurementPlan, Neighbours, Pair
from coco_opt.privacy.promise import Promise
from coco_opt.problems import TreeLeastSquares
from coco_opt.ranges.domain import DomainTree, levels_of, shortest_fan_out
from coco_opt.ranges.estimating.universal import Estimator, UniversalHistogram, is_nonnegative, least_squares
from coco_opt.ranges.interval_counts import RANGES as NAME
from coco_opt.ranges.interval_counts import IntervalCounts, domain_of
from coco_opt.ranges.kind.files import (
    PROMISES,
    RANGES_FILE,
    promises_of,
    range_table,
    read_ranges_release,
    verify_ranges,
)
from coco_opt.ranges.kind.forecast import fan_out_name, forecast_ranges, shares_name
from coco_opt.ranges.kind.intervals import PROMISE_OF, drawn_files, posterior_account, posterior_notes
from coco_opt.ranges.kind.page import sections
from coco_opt.ranges.kind.section import CHOSEN, RangesData, RangesSection, draft_of, file_key_of, query_keys
from coco_opt.ranges.measuring.measure import cell_pair, exact_intervals, plan_ranges
from coco_opt.ranges.measuring.values import CellCounts, read_values
from coco_opt.ranges.strategy import choose_fan_out, optimised_tree
from coco_opt.ranges.workload import Workload
from coco_opt.releases.kind import (
    Instance,
    Plan,
    Released,
    ReleaseKind,
    SimulatedData,
    Truth,
    Work,
)

Shape = int | tuple[int, ...]
REGION = "all"
_FEW_CELLS = 16  # of a rehearsal
_SEED, _ENTITIES = 2010, 40  # of simulated counts: their seed, and the mean of a cell


@dataclass(frozen=True, slots=True)
class RangesMethod:
    """How counts of intervals are estimated; the posterior's counts are the best for ``workload``.

    ``coverage`` is that of the published intervals, 0 for none, ``draws`` the number of published draws. The posterior
    may draw for about so many ``seconds``. Counts are rounded unless ``fractions`` are wanted.
    """

    estimator: Estimator
    workload: Workload
    coverage: float = 0.0
    draws: int = 0
    seconds: float = 0.0
    fractions: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class RangesResult:
    """A histogram that answers any range, how well its problem was solved, and the coverage of its intervals, or 0."""

    histogram: UniversalHistogram
    certificates: tuple[Certificate, ...]
    coverage: float = 0.0


class RangesKind(ReleaseKind[CellCounts, RangesMethod, RangesResult]):
    """Noisy counts of the intervals over a public ordered domain, and estimates of any range from them."""

    name: ClassVar[str] = NAME
    section: ClassVar[str] = "ranges"
    unit: ClassVar[str] = "entity"
    data_model: ClassVar[type[DataSection]] = RangesData
    section_model: ClassVar[type[Section]] = RangesSection
    promises: ClassVar[tuple[str, ...]] = PROMISES
    least: ClassVar[tuple[str, ...]] = ("finite", "standard_errors")
    takes_several: ClassVar[bool] = False
    plainest: ClassVar[Mapping[str, Any]] = {"estimator": "nonnegative"}
    error_words: ClassVar[str] = "entities by which a cell is off"
    compared: ClassVar[tuple[Compared, ...]] = (
        Compared("ranges", "estimate", ("tree_level", "start", "stop"), error="standard_error", absent_is_zero=False),
    )

    file_key = staticmethod(file_key_of)
    draft = staticmethod(draft_of)
    section_of = staticmethod(query_keys)
    open = staticmethod(read_ranges_release)
    verify = staticmethod(verify_ranges)
    page = staticmethod(sections)
    forecast = staticmethod(forecast_ranges)

    def plan(self, config: Config) -> Plan:
        """Resolve the fan-out and plan the measurement; a stated split must give the only level everything."""
        return _planned(config)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom noise protects; nothing is published without it."""
        return Promise(measurement_plan.neighbours, self.unit)

    def read(self, plan: Plan) -> CellCounts:
        """Count the private values by cell."""
        config = plan.config
        return read_values(config.data.table_of("values"), plan.detail, config.method.outside, config.output.private)

    def exact_answers(self, plan: Plan, private: CellCounts) -> Iterable[Exact]:
        """Return the exact counts of all intervals."""
        return exact_intervals(plan.measurement_plan, plan.detail, private.cells)

    def method(self, config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> RangesMethod:
        """Return the estimator; ConfigError where the configuration states another domain or tree."""
        section: RangesSection = config.method
        domain, outside = domain_of(measurement_plan.parameters), measurement_plan.parameters["outside"]
        stated = DomainTree(section.size, None, section.edges)
        if not np.array_equal(stated.edges, domain.edges):
            key = "cells" if section.edges is None else "edges"
            raise config.error(f"ranges.{key}", f"the measurement has another domain, of {domain.cells:,} cells")
        if section.fan_out not in CHOSEN:
            if _shortest(section) != _shortest(section, domain.fan_out or "cells"):
                raise config.error("ranges.fan_out", f"the measurement's is {fan_out_name(domain.fan_out)}")
            if section.shares != domain.shares:
                raise config.error("ranges.shares", f"the measurement's are {shares_name(domain.shares)}")
        if section.outside != outside:
            raise config.error("ranges.outside", f"the measurement's is {outside}")
        estimator = section.resolved(config.auto.time)
        if estimator != "posterior":
            return RangesMethod(estimator, section.ranges, fractions=section.fractions)
        coverage = 0.9 if section.intervals is None else section.intervals
        return RangesMethod(estimator, section.ranges, coverage, section.draws or 0, config.auto.time)

    def estimate(self, measurement: Measurement, method: RangesMethod, work: Work) -> RangesResult:
        """Fit the intervals to each other as the estimator says."""
        drawing = doing("drawing counts from their posterior") if method.estimator == "posterior" else nullcontext()
        with drawing as progress:
            histogram = UniversalHistogram.fit(
                measurement,
                method.estimator,
                work.solvers,
                workload=method.workload,
                threads=work.threads,
                progress=progress,
                seconds=method.seconds,
            )
        if not (method.fractions or "integers" in estimator_row(NAME, method.estimator).keeps):
            histogram = histogram.rounded()
        return RangesResult(histogram, work.solvers.certificates, method.coverage)

    def release(self, measurement: Measurement, method: RangesMethod, result: RangesResult, config: Config) -> Released:
        """Return one row an interval; the manifest states the domain, so that any range can be answered from it."""
        histogram = result.histogram
        promises = promises_of(method.estimator, histogram.domain.fan_out, fractions=method.fractions)
        stated = {"estimator": method.estimator, "fractions": method.fractions}
        parameters = {**measurement.measurement_plan.parameters, **stated}
        drawn = drawn_files(histogram, method.workload, method.coverage, method.draws)
        return Released(
            {RANGES_FILE: range_table(histogram), **drawn},
            (*promises, *(PROMISE_OF[name] for name in drawn)),
            {NAME: parameters, **posterior_account(histogram, method.coverage, method.draws)},
            tuple(posterior_notes(histogram)),
        )

    def errors(self, measurement: Measurement, truth: Truth, result: RangesResult) -> Mapping[str, list[float]]:
        """Return the mean error of a cell (entities)."""
        cells = truth.private.cells
        named = {"this release": result, **truth.others}
        return {name: [float(np.abs(estimated.histogram.cells - cells).mean())] for name, estimated in named.items()}

    def simulated_data(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
        """Return simulated counts of the same cells, or the user's public values."""
        domain: DomainTree = plan.detail
        if public is not None:
            cells = read_values(public, domain, plan.config.method.outside, plan.config.output.private)
            return SimulatedData(plan, cells, f"the values of {public.name}")
        return SimulatedData(
            plan, CellCounts(generated_cells(domain.cells)), f"simulated counts of {domain.cells:,} cells"
        )

    def rehearsal(self, plan: Plan, method: RangesMethod) -> tuple[SimulatedData, RangesMethod]:
        """Return few cells, some empty and one full, under the narrowest levels of a plan's tree.

        A smaller tree poses the same problems with fewer unknowns; its levels have their fan-outs and shares.
        """
        section = _of_few_cells(plan.config.method, plan.detail).model_copy(update={"estimator": method.estimator})
        config = replace(plan.config, method=section)
        small = _planned(config)
        cells = generated_cells(small.detail.cells)
        cells[: cells.size // 2 : 2] = 0
        brief = self.method(small.config, small.measurement_plan)
        return SimulatedData(small, CellCounts(cells), "a small simulated instance"), replace(brief, seconds=0.0)

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return least squares on the tree, with the bounds of the configured estimator."""
        method = self.method(config, measurement.measurement_plan)
        problem = least_squares(IntervalCounts.of(measurement), nonnegative=method.estimator == "nonnegative")

        def cut(size: int) -> TreeLeastSquares:  # to the first nodes, the widest intervals
            first = slice(max(2, size))
            return TreeLeastSquares(
                problem.tree.parent[first], problem.y[first], problem.variance[first], lower=problem.lower[first]
            )

        return (Instance(TreeLeastSquares.kind, problem.variables, cut),)

    def neighbours(self, simulated_data: SimulatedData) -> Pair[CellCounts]:
        """Return counts that differ by one entity in the largest cell."""
        pair = cell_pair(simulated_data.private.cells, simulated_data.plan.measurement_plan.neighbours)
        return Pair(CellCounts(pair.first), CellCounts(pair.second), pair.words)

    def statistics(
        self, measurement_plan: MeasurementPlan, table: CellCounts | RangesResult
    ) -> Mapping[str, NDArray[Any]]:
        """Return the counts of the intervals of each measured level of the tree, the widest first."""
        domain = domain_of(measurement_plan.parameters)
        nodes = table.histogram.nodes if isinstance(table, RangesResult) else domain.counts(table.cells)
        levels = range(0 if domain.fan_out is not None else 1, domain.height)
        starts = domain.level_start
        parts = {f"intervals, level {level}": nodes[starts[level] : starts[level + 1]] for level in levels[:-1]}
        return {**parts, "cells": nodes[domain.first_leaf :]}


def _planned(written: Config, keys: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a configuration; what it leaves open is decided by public numbers, or by ``keys`` before."""
    section: RangesSection = written.method
    (cost,), neighbours = written.levels_cost(1), written.privacy.neighbours
    is_open, chosen = section.fan_out in CHOSEN, dict(keys or {})
    if is_open:
        chosen = chosen or _chosen(section, cost, neighbours)
        section = section.model_copy(update={name: _READ[name](value) for name, value in chosen.items()})
    elif section.fan_out != "cells":
        section = section.model_copy(update={"fan_out": _shortest(section)})
    fan_out = None if isinstance(section.fan_out, str) else section.fan_out  # "cells": all others are decided
    domain = DomainTree(section.size, fan_out, section.edges, section.shares)
    measurement_plan = plan_ranges(domain, cost, neighbours=neighbours, outside=section.outside, label=REGION)
    choice = digest_of([is_open] if written.method.fan_out == "auto" else [is_open, str(section.workload)])
    config = replace(written, method=section)
    return Plan(config, measurement_plan, domain, chosen=chosen, choice=choice, replanned=_planned)


def _chosen(section: RangesSection, cost: Cost, neighbours: Neighbours) -> dict[str, Any]:
    """Return the keys that say which tree is measured, as a file would state them."""
    if section.fan_out == "auto":
        return {"fan_out": choose_fan_out(section.size, cost, neighbours=neighbours) or "cells"}
    nonnegative = is_nonnegative(section.estimator)
    tree = optimised_tree(section.ranges, cost, neighbours=neighbours, nonnegative=nonnegative)
    if tree.shares is None or section.size == 1:  # one cell is a tree of its own
        return {"fan_out": tree.fan_out or "cells"}
    shortest = _shortest(section, tree.fan_out or "cells")
    fan_out = list(shortest) if isinstance(shortest, tuple) else shortest
    return {"fan_out": fan_out, "shares": [str(share) for share in tree.shares]}


def generated_cells(cells: int) -> Ints:
    """Return counts int64 (cells,): two humps over a thin ground with gaps; the same for each number of cells."""
    rng = np.random.default_rng([_SEED, cells])
    position = (np.arange(cells) + 0.5) / cells
    humps = np.exp(-(((position - 0.3) / 0.08) ** 2)) + 0.5 * np.exp(-(((position - 0.7) / 0.15) ** 2))
    weights = humps + 0.02 * (rng.random(cells) < 0.5)
    counts: Ints = rng.poisson(_ENTITIES * cells * weights / weights.sum()).astype(np.int64)
    return counts


def _of_few_cells(section: RangesSection, domain: DomainTree) -> RangesSection:
    """Return the section of a decided plan with the first cells of its domain, unless it has few.

    Of the tree the levels next to the cells are kept, as many as have few cells. Where a whole node does not fit, its
    last cells are missing, as in the domain of any number of cells.
    """
    if domain.cells <= _FEW_CELLS:
        return section
    fan_out, shares, cells = section.fan_out, section.shares, _FEW_CELLS
    if not isinstance(fan_out, str):
        fan_outs, _ = levels_of(domain.cells, fan_out)
        kept = next(n for n in range(1, len(fan_outs) + 1) if n == len(fan_outs) or prod(fan_outs[-n - 1 :]) > cells)
        fan_out, cells = tuple(fan_outs[-kept:]), min(cells, prod(fan_outs[-kept:]))
        if shares is not None:
            fan_out = shortest_fan_out(cells, fan_out)
            shares = shares[-len(levels_of(cells, fan_out)[1]) :]
            shares = tuple(share / sum(shares) for share in shares)
    edges = None if section.edges is None else section.edges[: cells + 1]
    workload: Any = section.workload
    if isinstance(workload, tuple):
        workload = ((0, cells),) if edges is None else ((edges[0], edges[-1]),)
    update = {"cells": cells if edges is None else None, "edges": edges, "fan_out": fan_out, "shares": shares}
    return section.model_copy(update={**update, "workload": workload})


def _shortest(section: RangesSection, fan_out: Shape | str | None = None) -> Shape | str:
    """Return the shortest statement of a tree over the section's domain, by default of its own tree."""
    stated = section.fan_out if fan_out is None else fan_out
    return stated if isinstance(stated, str) else shortest_fan_out(section.size, stated)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "fan_out": lambda value: tuple(value) if isinstance(value, list) else value,
    "shares": lambda value: tuple(map(Fraction, value)),
}

RANGES = RangesKind()
