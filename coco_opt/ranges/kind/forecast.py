"""What a release of ranges will be worth, from public numbers alone: exact standard errors by fan-out and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

import numpy as np

from coco_opt.privacy import MeasurementPlan
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.posterior.sampler import LEAST_DRAWS, SamplerOptions, posterior_seconds
from coco_opt.ranges.estimating.universal import Estimator, is_nonnegative
from coco_opt.ranges.interval_counts import Precision, noise_of
from coco_opt.ranges.strategy import FAN_OUTS, choose_fan_out, evenly, optimised_tree
from coco_opt.ranges.workload import Workload, over_bound
from coco_opt.releases.kind import Figures, Forecast, ForecastOptions, Plan, ResourceCost
from coco_opt.releases.reporter import Reporter
from coco_opt.releases.resource_cost import slowness

_SIZES = 5
_FIRST, _SECONDS = 0.3, 2.5e-6  # what is loaded; a node: least squares with its certificate, standard errors
_BYTES = 250  # a node, in all arrays together
_DRAWN_BYTES = 2_000  # a cell: grids and messages of the posterior
_ROW_SECONDS, _ROW_BYTES = 5e-7, 60
_ROWS = 10  # a cell, unless declared
_COMPARED = 1 << 17  # cells up to which other trees than the measured one are compared
_PAGE_SECONDS = 1.0
_AUTO, _OPTIMISED = 'fan_out = "auto"', 'fan_out = "optimised"'
_ALIKE = 1.02  # errors that differ by less than this factor need no words


def forecast_ranges(plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
    """Return the standard errors of cells and wider ranges for every fan-out, and the errors of the workload.

    They are exact, since they depend on public numbers only. O(cells) a fan-out. Unless rows are declared, the private
    table is taken to have ten a cell.
    """
    domain: DomainTree = plan.detail
    measurement_plan, section, time = plan.measurement_plan, plan.config.method, plan.config.auto.time
    workload, estimator, how = section.ranges, section.resolved(time), "chosen" if plan.chosen else "asked"
    trees = [DomainTree(domain.cells, k) for k in (None, *FAN_OUTS) if k is None or k < domain.cells]
    own = [domain.shares is None and tree.fan_out == domain.fan_out for tree in trees]
    if not any(own):
        trees, own = [*trees, domain], [*own, True]
    sizes = sizes_of(domain.cells)
    rows, plain = [], []
    with reporter.stage("Predicting"):
        for tree, is_own in zip(trees, own, strict=True):
            noise = noise_of(tree, measurement_plan.cost, measurement_plan.neighbours)
            precision = Precision(tree, noise, fitted=estimator != "noisy")
            errors = [float(np.sqrt(precision.ranges(*evenly(domain.cells, size)).mean())) for size in sizes]
            name = fan_out_name(tree.fan_out) + (f" ({how})" if is_own else "")
            rows.append((name, f"{tree.height}", *(f"{error:,.2f}" for error in errors)))
            of_size = {str(size): error for size, error in zip(sizes, errors, strict=True)}
            plain.append({"fan_out": tree.fan_out, "height": tree.height, "standard_errors": of_size})
        errors_of = workload_errors(measurement_plan, domain, workload, estimator, how)
    title = f"Standard error (entities) of a range by its number of cells, {words_of(estimator)}"
    header = ("fan-out", "levels", *(f"{size:,}" for size in sizes))
    nodes, slow = domain.tree.nodes, slowness()
    table_rows = _ROWS * domain.cells if options.rows is None else options.rows
    shares = () if domain.shares is None else (("shares of the levels", shares_name(domain.shares)),)
    return Forecast(
        tables=(Figures(title, header, tuple(rows)), _workload_table(workload, errors_of)),
        plain={
            "fan_out": domain.fan_out,
            "cells": domain.cells,
            "predicted": plain,
            "workload": [asdict(error) for error in errors_of],
        },
        notes=(
            ("fan-out", fan_out_name(domain.fan_out)),
            *shares,
            ("intervals", f"{nodes:,}"),
            *_why(errors_of, estimator),
        ),
        reading=ResourceCost(slow * _ROW_SECONDS * table_rows, _ROW_BYTES * table_rows),
        querying=ResourceCost(0.0),
        estimating=_estimating(domain, estimator, slow, time),
        writing=ResourceCost(slow * _PAGE_SECONDS),
    )


def _estimating(domain: DomainTree, estimator: Estimator, slow: float, time: float) -> ResourceCost:
    """Return what an estimation costs; a posterior takes as long as its chains need to agree."""
    nodes = domain.tree.nodes
    seconds, memory = _FIRST + _SECONDS * nodes, _BYTES * nodes
    if estimator != "posterior":
        return ResourceCost(slow * seconds, memory)
    options = SamplerOptions.within(time, domain.cells)
    first, longest = (seconds + posterior_seconds(domain.cells, attempts) for attempts in (1, options.attempts))
    memory += (_DRAWN_BYTES + 8 * max(LEAST_DRAWS, options.most_draws(domain.cells))) * domain.cells
    return ResourceCost(slow * first, memory, slow * longest)


@dataclass(frozen=True, slots=True)
class WorkloadError:
    """The root mean squared error of a workload's least squares answers, and their mean square over the bound.

    ``over_bound`` compares continuous noise; None where the bound is not known.
    """

    tree: str
    error: float
    over_bound: float | None


def workload_errors(
    measurement_plan: MeasurementPlan, domain: DomainTree, workload: Workload, estimator: Estimator, how: str
) -> list[WorkloadError]:
    """Return the errors of the tree that is measured, of the best single fan-out and of the optimised tree."""
    cost, neighbours = measurement_plan.cost, measurement_plan.neighbours
    trees = {f"measured ({how})": domain}
    if domain.cells <= _COMPARED:
        single = choose_fan_out(domain.cells, cost, neighbours=neighbours)
        trees[_AUTO] = DomainTree(domain.cells, single)
        nonnegative = is_nonnegative(estimator)
        best = optimised_tree(workload, cost, neighbours=neighbours, nonnegative=nonnegative)
        trees[_OPTIMISED] = DomainTree(domain.cells, best.fan_out, shares=best.shares)
    return [
        WorkloadError(name, float(np.sqrt(workload.variance(Precision(tree, noise_of(tree, cost, neighbours))))), over)
        for name, tree in trees.items()
        for over in (over_bound(tree, workload, cost, neighbours),)
    ]


def _why(errors: Sequence[WorkloadError], estimator: Estimator) -> Iterator[tuple[str, str]]:
    """Yield in words why "optimised" is not chosen though its error is less, or why its error is larger."""
    of_tree = {error.tree: error.error for error in errors}
    if _OPTIMISED not in of_tree:
        return
    optimised, own = of_tree[_OPTIMISED], errors[0].error
    if optimised > _ALIKE * of_tree[_AUTO] and is_nonnegative(estimator):
        yield (
            "optimised",
            "gives the whole domain a share that a nonnegative estimate needs where most cells are empty: hence its "
            "larger unbiased error here",
        )
    elif own > _ALIKE * optimised:
        yield (
            "optimised",
            f"would err {100 * (1 - optimised / own):.0f} % less over this workload. It is taken only where stated, "
            'since it serves the workload alone; "auto" weighs ranges of all sizes alike',
        )


def _workload_table(workload: Workload, errors: Sequence[WorkloadError]) -> Figures:
    words = {"ranges": "all ranges", "prefixes": "all prefixes"}.get(workload.name, f"{workload.size:,} ranges")
    title = f"Root mean squared error (entities) of {words}, unbiased, and its square over the least of any strategy"
    rows = [
        (error.tree, f"{error.error:,.2f}", "-" if error.over_bound is None else f"{error.over_bound:.2f}")
        for error in errors
    ]
    return Figures(title, ("tree", "error", "times the bound"), tuple(rows))


def sizes_of(cells: int) -> list[int]:
    """Return a few sizes of ranges from one cell to the whole domain."""
    return sorted({round(size) for size in np.geomspace(1, cells, min(cells, _SIZES)).tolist()})


def fan_out_name(fan_out: int | tuple[int, ...] | None) -> str:
    """Return a fan-out, or those of the levels, in a word."""
    if isinstance(fan_out, tuple):
        return " x ".join(map(str, fan_out))
    return "cells" if fan_out is None else f"{fan_out:,}"


def shares_name(shares: tuple[Fraction, ...] | None) -> str:
    """Return shares of the budget in a word."""
    return "equal" if shares is None else ", ".join(f"{float(share):.3g}" for share in shares)


def words_of(estimator: Estimator) -> str:
    """Return whose standard errors are stated with an estimator's figures."""
    return "of sums of the fewest noisy counts" if estimator == "noisy" else "of the least squares estimate"
